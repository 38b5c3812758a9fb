"""The commands as processes: what is on stdout, what is on stderr, and the exit code."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_sdk import (
    BeamSearchParams,
    Engine,
    Result,
    SamplingParams,
    __version__,
    demo_model_path,
)
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.cli.quantize import quantize
from tests.commands import LORA, RUN, command, lora_run, one_line_error
from tests.processes import environment
from tests.variants import variant, write_checkpoint

ENVIRONMENT = environment()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("cli") / "model")


def a_line(text: str) -> str:
    """As it is printed: it ends with a newline."""
    return text if text.endswith("\n") else text + "\n"


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    file = tmp_path / "prompt.txt"
    file.write_text("The quick brown fox\n")
    return file


@pytest.fixture(scope="module")
def expected(folder: Path) -> Callable[..., Result]:
    def of(text: str, **fields: object) -> Result:
        with Engine(folder) as engine:
            result = engine.generate(text, SamplingParams(**fields))  # type: ignore[arg-type]
            assert isinstance(result, Result)
            return result

    return of


def test_stdout_is_the_text_and_nothing_else(
    folder: Path, prompt: Path, expected: Callable[..., Result]
) -> None:
    """The prompt's final newline is dropped, the text ends with one; statistics are one line on
    stderr."""
    done = lora_run("--model", folder, "--boards", 4, "-n", 20, prompt)
    want = expected("The quick brown fox", max_tokens=20)
    assert (done.returncode, done.stdout.decode()) == (0, a_line(want.text))
    line = done.stderr.decode()
    assert line.count("\n") == 1 and line.startswith("measured: ")
    assert f"{len(want.token_ids)} new tokens" in line and "4 emulated boards" in line


def test_beams_write_the_best_hypothesis_and_json_its_score(
    folder: Path, prompt: Path, tmp_path: Path
) -> None:
    params = BeamSearchParams(beam_width=3, max_tokens=9, early_stopping=True, n=2)
    with Engine(folder) as engine:
        want = engine.beam_search("The quick brown fox", params)
    assert isinstance(want, Result)
    flags = ("--model", folder, "--beams", 3, "--early-stopping", "true", "-n", 9, "-q")
    done = lora_run(*flags, prompt)
    assert (done.returncode, done.stdout.decode()) == (0, a_line(want.text))
    batch = tmp_path / "batch"
    batch.write_text(
        '{"prompt": "The quick brown fox", "n": 2}\n{"prompt": "The quick", "beam_width": null}\n'
    )
    lines = lora_run(*flags, "--batch", batch).stdout.decode().splitlines()
    first, second = (json.loads(line)["outputs"] for line in lines)
    assert [output["score"] for output in first] == [output.score for output in want.outputs]
    assert [output["score"] for output in second] == [None]


def test_flags_of_beam_search_need_beams(prompt: Path) -> None:
    done = lora_run("--early-stopping", "never", prompt)
    one_line_error(done, "--early-stopping needs --beams")


def test_stdin_option_and_echo_give_the_same(folder: Path, expected: Callable[..., Result]) -> None:
    want = a_line(expected("a € b", max_tokens=9).text)
    shared = ("--model", folder, "-n", 9, "-q")
    assert lora_run(*shared, "-", input="a € b\n".encode()).stdout.decode() == want
    assert lora_run(*shared, input="a € b\n".encode()).stdout.decode() == want
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
    assert done.stdout.decode() == a_line(expected("x", max_tokens=4).text)
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
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130  # the context's end is minutes away
    said = process.stderr.read().decode()
    assert re.search(r"^lora-run: interrupted: after [1-9]\d* new tokens? in [\d.]+ s$", said, re.M)
    assert "Traceback" not in said and process.stdout.read().endswith(b"\n")
    process.stdout.close()
    process.stderr.close()


AT_FIRST_FLUSH = f"""
import sys

class Stdout:
    def __init__(self):
        self.inner, self.first = sys.stdout, True

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def flush(self):
        self.inner.flush()
        if self.first:
            self.first = False
            raise KeyboardInterrupt

sys.stdout = Stdout()
{RUN}
"""


def test_ctrl_c_right_behind_a_text_ends_its_line(folder: Path) -> None:
    done = command(AT_FIRST_FLUSH, "--model", folder, "--ignore-eos", "-n", 9, "-p", "once")
    assert done.returncode == 130 and done.stdout.endswith(b"\n") and len(done.stdout) > 1


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
    assert lora_run("--version").stdout.decode() == f"lora-run {__version__}\n"
    assert command(LORA, "--version").stdout.decode() == f"lora {__version__}\n"


@pytest.mark.parametrize("code", [LORA, RUN])
def test_without_the_c_library_there_is_one_line(code: str) -> None:
    hidden = f"import sys; sys.modules['lora_host._lora'] = None; {code}"
    arguments = ("plan",) if code == LORA else ("-p", "x")
    one_line_error(command(hidden, *arguments), "the C library cannot be loaded", "make ext")


@pytest.mark.parametrize("group", [(), ("lab",), ("lab", "spec"), ("overlay",)])
def test_a_group_without_a_command_shows_its_help(group: tuple[str, ...]) -> None:
    done = command(LORA, *group)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"Usage: lora") and b"\nCommands:\n" in done.stderr


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
    one_line_error(command(LORA, "eval", "--model", folder, "--text", tmp_path / "no"), "not exist")


def test_eval_says_what_its_time_was(folder: Path, prompt: Path) -> None:
    said = command(LORA, "eval", "--model", folder, "--text", prompt).stdout.decode()
    (line,) = [line for line in said.splitlines() if line.startswith("measured ")]
    found = re.fullmatch(
        r"measured +([\d.]+) s: loading ([\d.]+) s, scoring on 1 board ([\d.]+) s, "
        r"the float32 reference on this computer ([\d.]+) s", line,
    )  # fmt: skip
    assert found is not None, line
    whole, *parts = map(float, found.groups())
    assert whole == pytest.approx(sum(parts), abs=0.02) and min(parts[0], parts[2]) > 0


def test_log_records_say_which_command_warns(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"what_is_this": 1}))
    done = lora_run("--model", tmp_path / "model", "-n", 1, "-p", "a")
    warning, measured = done.stderr.decode().splitlines()
    assert warning.startswith("lora-run: warning: ") and "'what_is_this'" in warning
    assert measured.startswith("measured: ") and done.returncode == 0


def test_a_misspelt_choice_gets_the_nearest_one() -> None:
    done = command(LORA, "lab", "plot", "breakdwn", "-o", "a.svg")
    one_line_error(done, "'breakdwn' is not one of", "did you mean 'breakdown'?")
    far = one_line_error(command(LORA, "lab", "plot", "xyz", "-o", "a.svg"), "is not one of")
    assert "did you mean" not in far


def test_quantize_shows_progress_before_its_first_layer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    def record(_: ProgressBar, done: int, total: int) -> None:
        seen.append((done, total))
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressBar, "__call__", record)
    out = str(tmp_path / "out")
    CliRunner().invoke(quantize, [str(demo_model_path()), out, "--scheme", "w8a8"])
    assert [done for done, _ in seen] == [0] and seen[0][1] > 4


def test_what_is_nearly_right_names_the_way_out() -> None:
    one_line_error(command(LORA, "run", "-p", "x"), "it is lora-run")
    one_line_error(command(LORA, "plan", "--model", "llama2-13b"), "llama2-7b", "gpt2-345m")
    one_line_error(command(LORA, "top"), "--once", "--json")


@pytest.mark.parametrize("group", [("boardd",), ("ray",), ("lab", "spec"), ("overlay",)])
def test_commands_of_a_group_are_described_whole(group: tuple[str, ...]) -> None:
    assert b"..." not in command(LORA, *group, "--help").stdout.partition(b"Commands:")[2]
