"""`sim:` boards: simulated cards behind the same API as emulated boards. Same tokens, and cycles
that do not depend on this computer."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from lora_host import abi, sim
from lora_host.errors import LoraError
from lora_sdk import Engine, SamplingParams
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.quant.recipe import Recipe
from lora_sdk.step.tree_shape import TreeShape
from tests.adapter_folders import Folder, write_adapter
from tests.calibrated import write_quantized
from tests.commands import LORA, RUN
from tests.processes import ROOT, environment
from tests.rtl.card_build import build
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.rtl, pytest.mark.slow, pytest.mark.usefixtures("cards")]
LONG = pytest.mark.long

COUNT = 4
GREEDY = SamplingParams(max_tokens=COUNT, temperature=0, ignore_eos=True)
PROMPT = [3, 1, 4, 1, 5]
LIMIT_S = 900
BOARDS = pytest.mark.parametrize("boards", [1, 2, 4])
QUANTIZED = "mistral"
RECIPES = {"w8a8": Recipe("w8a8"), "w4a8": Recipe("w4a8", group=32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("sim") / "model")


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A model of each scheme, calibrated once."""

    @cache
    def written(scheme: str) -> Path:
        place = tmp_path_factory.mktemp(scheme)
        write_quantized(QUANTIZED, place, RECIPES[scheme])
        return place / "quantized"

    return written


def run(
    folder: Path,
    scheme: str,
    boards: int,
    speculation: SpeculationOptions | None = None,
    adapter: Path | None = None,
) -> tuple[list[int], list[int]]:
    """(tokens, cycles a board)."""
    with Engine(
        folder,
        boards,
        [f"{scheme}:u280"],
        speculation=speculation,
        max_adapters=1 if adapter else 0,
    ) as engine:
        if adapter:
            engine.load_adapter("one", adapter)
        params = replace(GREEDY, adapter="one" if adapter else None)
        found = engine.generate([PROMPT], params)[0]
        if speculation:
            assert engine.speculation and max(engine.speculation.lengths) > 3
        assert engine.cluster.emulated
        return list(found.token_ids), engine.cluster.emulated.simulated_cycles()


@pytest.mark.parametrize("boards", [1, 2, pytest.param(4, marks=LONG)])
def test_tokens_are_those_of_emulated_boards(folder: Path, boards: int) -> None:
    wanted, none = run(folder, "emu", boards)
    tokens, cycles = run(folder, "sim", boards)
    assert tokens == wanted and len(tokens) == COUNT and none == []
    assert len(cycles) == boards and min(cycles) > 10_000


@LONG
@BOARDS
@pytest.mark.parametrize("scheme", RECIPES)
def test_quantized_models(quantized: Callable[[str], Path], scheme: str, boards: int) -> None:
    tokens, cycles = run(quantized(scheme), "sim", boards)
    assert tokens == run(quantized(scheme), "emu", boards)[0] and len(cycles) == boards


@LONG
@BOARDS
def test_an_adapter(folder: Path, boards: int, tmp_path: Path) -> None:
    adapter = write_adapter(variant("llama_narrow"), Folder("one"), tmp_path / "one")
    wanted, _ = run(folder, "emu", boards, adapter=adapter)
    assert run(folder, "sim", boards, adapter=adapter)[0] == wanted
    assert wanted != run(folder, "emu", boards)[0]


@LONG
def test_an_adapter_of_a_quantized_model(quantized: Callable[[str], Path], tmp_path: Path) -> None:
    model = quantized("w8a8")
    adapter = write_adapter(variant(QUANTIZED), Folder("one"), tmp_path / "one")
    wanted, _ = run(model, "emu", 2, adapter=adapter)
    assert run(model, "sim", 2, adapter=adapter)[0] == wanted != run(model, "emu", 2)[0]


@LONG
@BOARDS
def test_a_tree(folder: Path, boards: int) -> None:
    """The model drafts for itself, so branches are left and blocks are accepted."""
    tree = SpeculationOptions("draft", folder, TreeShape.by_width((2, 2)))
    assert run(folder, "sim", boards, tree)[0] == run(folder, "emu", boards)[0]


@LONG
@pytest.mark.parametrize("seed", [3, 4])
def test_memory_and_links_that_answer_now_and_then(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, whenever they like: the same tokens."""
    wanted, _ = run(folder, "emu", 2)
    monkeypatch.setattr("lora_host.cluster.Cards", partial(sim.Cards, bench=sim.Bench(seed=seed)))
    assert run(folder, "sim", 2)[0] == wanted


MISTAKES = (
    ("line_memory.hpp", "it.data, it.bytes)", "it.data, ~0ull)"),  # neighbours are written over
    ("control_memory.hpp", "address_ += LORA_LINE_BYTES;", ""),  # a list's first line again
)


@LONG
@pytest.mark.parametrize(("name", "right", "wrong"), MISTAKES)
def test_mistakes_around_the_card_are_noticed(
    name: str, right: str, wrong: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card as it is, its surroundings with a planted mistake."""
    sources = Path(shutil.copytree(ROOT / "csrc" / "sim", tmp_path / "sim"))
    text = (sources / name).read_text()
    assert text.count(right) == 1
    (sources / name).write_text(text.replace(right, wrong))
    wanted, _ = run(folder, "emu", 1)
    bench = sim.Bench(library=sim.load(build(tmp_path, sources)))
    monkeypatch.setattr("lora_host.cluster.Cards", partial(sim.Cards, bench=bench))
    try:
        tokens, _ = run(folder, "sim", 1)
    except LoraError:
        return
    assert tokens != wanted


@LONG
def test_cycles_are_the_same_each_time(folder: Path) -> None:
    """On any number of threads, whatever else the computer does."""
    assert run(folder, "sim", 2) == run(folder, "sim", 2)


@LONG
def test_a_frame_that_is_damaged_ends_the_step(folder: Path) -> None:
    """A fault of a link, which recovery is not to hide."""
    with Engine(folder, devices=["sim:u280"], boards=2, speculation=None, recovery="off") as engine:
        assert engine.cluster.emulated
        engine.cluster.emulated.fault(0, abi.FAULT_LINK_FLIP, 0, 0, 50)
        engine.cluster.emulated.fault(0, abi.FAULT_LINK_FLIP, 1, 0, 50)
        with pytest.raises(LoraError, match=r"CRC|link"):
            engine.generate([PROMPT], GREEDY)


@LONG
@pytest.mark.parametrize(
    ("fault", "said"),
    [(abi.FAULT_RECORD_STEP, "step 0 epoch 1"), (abi.FAULT_RECORD_EPOCH, "step 1 epoch 0")],
)
def test_records_that_lag_behind_end_the_step(folder: Path, fault: int, said: str) -> None:
    """The card writes them by words."""
    with Engine(folder, devices=["sim:u280"], speculation=None, recovery="off") as engine:
        assert engine.cluster.emulated
        engine.cluster.emulated.fault(0, fault)
        with pytest.raises(LoraError, match=f"{said}; operation 3 step 1 epoch 1 expected"):
            engine.generate([PROMPT], GREEDY)


@LONG
def test_stats_say_cycles(folder: Path) -> None:
    """And the timing model has those of steps, where nothing else runs."""
    words = (
        *("--model", str(folder), "--device", "sim:u280", "--stats", "--check-weights", "off"),
        *("-n", "2", "-p", "a"),
    )
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "; 1 simulated board" in done.stderr and "kernels" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("simulated: "))
    assert int(line.split()[1]) > 10_000 and " at 200 MHz) in " in line
    modelled = next(line for line in done.stderr.splitlines() if "of the simulated card" in line)
    assert 0.95 < int(modelled.split()[1]) / int(line.split()[1]) < 1.05


@LONG
def test_validate_finds_cards_sound() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LORA, "validate", "--device", "sim:u280", "--boards", "2"],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "router units: 4 steps of a random model of one layer: right" in done.stdout
    assert done.stdout.endswith("2 simulated boards: sound\n")


@LONG
def test_ctrl_c_ends_a_run(folder: Path) -> None:
    """Within seconds, with its exit code, and no process is left."""
    words = ("--model", str(folder), "--device", "sim:u280", "--ignore-eos", "-n", "200", "-p", "a")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdout and process.stdout.read(1)  # a token is there
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and b"Traceback" not in errors
    assert time.monotonic() - began < 60
