"""The commands as processes: what is on stdout, what is on stderr, and the exit code."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_sdk import Engine, Result, SamplingParams
from tests.processes import environment
from tests.variants import variant, write_checkpoint

ROOT = Path(__file__).resolve().parents[2]
RUN = "from lora_sdk.cli.run import main; main()"
ENVIRONMENT = environment()
LORA = "from lora_sdk.cli.main import main; main()"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("cli") / "model")


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    file = tmp_path / "prompt.txt"
    file.write_text("The quick brown fox\n")
    return file


def command(code: str, *arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        timeout=60,
        env=ENVIRONMENT,
        **more,  # type: ignore[call-overload]
    )


def lora_run(*arguments: object, **more: object) -> subprocess.CompletedProcess[bytes]:
    return command(RUN, *arguments, **more)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Callable[..., Result]:
    def of(text: str, **fields: object) -> Result:
        with Engine(folder) as engine:
            result = engine.generate(text, SamplingParams(**fields))  # type: ignore[arg-type]
            assert isinstance(result, Result)
            return result

    return of


def one_line_error(done: subprocess.CompletedProcess[bytes], *parts: str) -> str:
    """The single line on stderr of a command that failed, stdout empty."""
    text = done.stderr.decode()
    assert done.returncode in (1, 2) and done.stdout == b""
    assert text.count("\n") == 1 and "Traceback" not in text, text
    for part in parts:
        assert part in text, text
    return text


def test_stdout_is_the_text_and_nothing_else(
    folder: Path, prompt: Path, expected: Callable[..., Result]
) -> None:
    """The file's final newline is dropped; statistics are one line on stderr."""
    done = lora_run("--model", folder, "--boards", 4, "-n", 20, prompt)
    want = expected("The quick brown fox", max_tokens=20)
    assert (done.returncode, done.stdout.decode()) == (0, want.text)
    line = done.stderr.decode()
    assert line.count("\n") == 1 and line.startswith("measured: ")
    assert f"{len(want.token_ids)} new tokens" in line and "4 emulated boards" in line


def test_stdin_option_and_echo_give_the_same(folder: Path, expected: Callable[..., Result]) -> None:
    want = expected("a € b", max_tokens=9).text
    shared = ("--model", folder, "-n", 9, "-q")
    assert lora_run(*shared, "-", input="a € b\n".encode()).stdout.decode() == want
    assert lora_run(*shared, "-p", "a € b").stdout.decode() == want
    echoed = lora_run(*shared, "--echo", "-p", "a € b")
    assert echoed.stdout.decode() == "a € b" + want and echoed.stderr == b""


def test_sampling_flags_reach_the_sampler(folder: Path, expected: Callable[..., Result]) -> None:
    flags = ("--temp", 0.9, "--top-k", 30, "--top-p", 0.9, "--min-p", 0.02, "--seed", 5)
    penalties = ("--repeat-penalty", 1.2, "--presence-penalty", 0.3, "--frequency-penalty", 0.1)
    done = lora_run("--model", folder, "-n", 16, *flags, *penalties, "--json", "-p", "once")
    want = expected(
        "once", max_tokens=16, temperature=0.9, top_k=30, top_p=0.9, min_p=0.02, seed=5,
        repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.1,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["outputs"][0]["token_ids"] == list(want.token_ids)
    assert found["seed"] == 5 and found["usage"]["prompt_tokens"] == want.prompt_tokens


def test_numpy_kernels_write_the_same(folder: Path, expected: Callable[..., Result]) -> None:
    done = lora_run("--model", folder, "--boards", 2, "--kernels", "numpy", "-n", 4, "-p", "x")
    assert done.stdout.decode() == expected("x", max_tokens=4).text
    assert "numpy kernels" in done.stderr.decode()


def test_batch_results_are_json_lines_in_order(
    folder: Path, tmp_path: Path, expected: Callable[..., Result]
) -> None:
    file = tmp_path / "batch.jsonl"
    lines = [
        {"prompt": "alpha", "max_tokens": 12},
        "beta",
        {"tokens": [5, 6, 7], "temperature": 0.7, "seed": 1, "n": 2, "logit_bias": {"9": 1.5}},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    done = lora_run("--model", folder, "--batch", file, "-n", 5)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["index"] for entry in found] == [0, 1, 2]
    assert found[0]["outputs"][0]["text"] == expected("alpha", max_tokens=12).text
    assert found[1]["outputs"][0]["text"] == expected("beta", max_tokens=5).text
    assert len(found[2]["outputs"]) == 2 and found[2]["prompt"] is None


@pytest.mark.parametrize(
    "content, part",
    [
        ("", "is empty"),
        ("{", "line 1 is not JSON"),
        ('"a"\n[1]', "line 2 holds a list"),
        ('{"prompt": "a", "temprature": 1}', "line 1: sampling parameter 'temprature' is unknown"),
        ('{"prompt": "a", "tokens": [1]}', "expected one of prompt, tokens, messages"),
        ('{"tokens": "a"}', "expected a list"),
    ],
)
def test_bad_batch_lines_are_named(folder: Path, tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text(content)
    one_line_error(lora_run("--model", folder, "--batch", file), part)


def test_a_prompt_of_a_batch_that_is_too_long_is_named(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text(json.dumps("a") + "\n" + json.dumps({"tokens": [5] * 400}))
    done = lora_run("--model", folder, "--batch", file)
    one_line_error(done, "prompt 1: the prompt has 400 tokens, 16 more than the context of 384")


@pytest.mark.parametrize(
    "content, parts",
    [
        (None, ("is not there",)),
        (b"", ("is empty",)),
        (b"\n", ("is empty",)),
        (b"ab\xff\xfe", ("is not UTF-8", "0xff at 2")),
        (b"x " * 250, ("tokens", "more than the context of 384")),
    ],
)
def test_bad_prompt_files(
    folder: Path, tmp_path: Path, content: bytes | None, parts: tuple[str, ...]
) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    one_line_error(lora_run("--model", folder, file), *parts)


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (("--boards", 3), ("3 boards", "1, 2, 4 or 8")),
        (("--boards", 0), ("0 boards",)),
        (("--device", "emo:u280"), ("emo", "did you mean")),
        (("--device", "emu:u28"), ("did you mean", "u280")),
        (("--overlay", "lora_f_u28"), ("did you mean",)),
        (("--temp", "-1"), ("temperature",)),
        (("-n", "0"), ("max_tokens",)),
        (("--top-p", "2"), ("top_p",)),
        (("-c", "9999"), ("context 9999",)),
        (("--cluster", "/nowhere.yaml"), ("/nowhere.yaml",)),
        (("--chat",), ("no chat template",)),
        (("--nonsense",), ("nonsense",)),
    ],
)
def test_bad_arguments(folder: Path, arguments: tuple[object, ...], parts: tuple[str, ...]) -> None:
    one_line_error(lora_run("--model", folder, *arguments, "-p", "hi"), *parts)


def test_a_prompt_comes_from_one_place(folder: Path, prompt: Path) -> None:
    one_line_error(lora_run("--model", folder), "found none")
    one_line_error(lora_run("--model", folder, "-p", "x", prompt), "-p and PROMPT_FILE")


def broken(folder: Path, target: Path, change: Callable[[Path], None]) -> Path:
    shutil.copytree(folder, target)
    change(target)
    return target


def _cut(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _garbage(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"\xff" * 4000)


def _architecture(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "mamba"}')


def _only_bin(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


@pytest.mark.parametrize(
    "change, parts",
    [
        (_cut, ("model.safetensors",)),
        (_garbage, ("model.safetensors",)),
        (_architecture, ("mamba", "gpt2")),
        (_only_bin, (".bin",)),
        (lambda model: (model / "tokenizer.json").unlink(), ("no tokenizer.json",)),
        (lambda model: (model / "tokenizer.json").write_text("{}"), ("tokenizer.json",)),
        (lambda model: (model / "config.json").unlink(), ("config.json",)),
        (lambda model: (model / "config.json").write_text("{"), ("config.json", "JSON")),
    ],
)
def test_bad_models(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], parts: tuple[str, ...]
) -> None:
    model = broken(folder, tmp_path / "model", change)
    one_line_error(lora_run("--model", model, "-p", "hi"), *parts)


def test_more_boards_than_query_heads(tmp_path: Path) -> None:
    from dataclasses import replace

    small = variant("llama_narrow")
    config = {**small.config, "num_attention_heads": 4, "hidden_size": 64}
    model = write_checkpoint(replace(small, name="few_heads", config=config), tmp_path / "model")
    one_line_error(
        lora_run("--model", model, "--boards", 8, "-p", "x"), "8 boards", "4 query heads"
    )


def test_a_model_that_does_not_fit_says_how_many_boards_would_do(tmp_path: Path) -> None:
    """Refused from config.json alone: no weights are there."""
    config = {
        "model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 28672, "num_hidden_layers": 80,
        "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = lora_run("--model", tmp_path, "-p", "x")
    one_line_error(done, "board 0", "requested", "capacity", "MiB", "4 boards would fit")


def test_an_overlay_of_another_abi_is_refused(folder: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    shutil.copytree(ROOT / "overlays" / "lora_f_u280", overlay)
    manifest = overlay / "manifest.yaml"
    text = manifest.read_text()
    assert "abi: 1" in text
    manifest.write_text(text.replace("abi: 1", "abi: 7"))
    one_line_error(
        lora_run("--model", folder, "--overlay", overlay, "-p", "x"), "ABI 7 found, 1 expected"
    )


def test_ctrl_c_stops_at_once_with_130_and_no_traceback(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "--model", str(folder), "--ignore-eos", "-n", "-1",
         "--kernels", "numpy", "--boards", "4", "-p", "once"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(1)  # it has begun to write
    pressed = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert time.monotonic() - pressed < 3
    assert b"Traceback" not in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


def test_a_reader_that_leaves_is_no_traceback(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "--model", str(folder), "--ignore-eos", "-n", "300",
         "--kernels", "numpy", "-p", "once"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(timeout=30) == 1 and errors == b""
    process.stderr.close()


def test_help_has_examples_and_the_group_lists_its_commands() -> None:
    text = lora_run("--help").stdout.decode()
    assert "lora-run --boards 4 prompt.txt" in text and "--repeat-penalty" in text
    assert {"eval", "plan"} <= set(command(LORA, "--help").stdout.decode().split())
    one_line_error(command(LORA, "pln"), "did you mean 'plan'")


def test_importing_the_package_touches_nothing() -> None:
    code = (
        "import sys, lora_sdk\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "('numpy', 'tokenizers', 'lora_host', 'jinja2', 'cffi')))"
    )
    assert command(code).stdout == b"[]\n"


def test_eval_counts_every_byte(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("def f(x):\n    return x\n" * 30)
    shared = ("eval", "--model", folder, "--text", file, "--json", "-c", 128)
    found = json.loads(command(LORA, *shared).stdout)
    assert found["bytes"] == file.stat().st_size and found["windows"] > 1
    # A random model's best guess is no better than uniform over the vocabulary.
    assert 0.8 < found["bits_per_byte"] * found["bytes"] / found["tokens"] / 8.18 < 1.5
    again = command(LORA, *shared, "--boards", 4)
    assert json.loads(again.stdout)["bits_per_byte"] == found["bits_per_byte"]
    one_line_error(command(LORA, "eval", "--model", folder, "--text", tmp_path / "no"), "not there")
