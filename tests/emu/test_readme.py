"""What the README says can be done as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lora_sdk import demo_model_path
from tests.commands import LORA, RUN, command

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
LINES = [
    line.partition(" #")[0]
    for kind, block in BLOCKS
    for line in block.splitlines()
    if line.startswith(("lora-run ", "lora "))
]


def marked(line: str) -> object:
    """Calibration and measurements take seconds."""
    slow = line.startswith(("lora quantize", "lora lab bench"))
    return pytest.param(line, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("line", [marked(line) for line in LINES])
def test_commands_work(line: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(line)
    known = {"DIR": str(demo_model_path()), "FILE": "examples/prompt.txt"}
    known |= {"OUT": str(tmp_path / "out"), "OUT.jsonl": str(tmp_path / "out.jsonl")}
    known["IN.jsonl"] = "examples/prompts.jsonl"
    if arguments[:2] == ["lab", "synth"]:  # the demo's shape in place of a model of 700 MB
        known = {"DIR": str(tmp_path / "model"), arguments[2]: str(demo_model_path())}
        known[arguments[2]] += "/config.json"
    arguments = [known.get(argument, argument) for argument in arguments]
    if arguments[0] == "quantize":
        arguments += ["--windows", "2"]  # a test may not take as long as calibration may
    done = command(RUN if program == "lora-run" else LORA, *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout or Path(known["OUT.jsonl"]).stat().st_size


def test_the_demo_prints_what_stands_there() -> None:
    """Its text and modelled times; sums of weights depend on this computer, so they are apart."""
    (block,) = [block for _, block in BLOCKS if "\nmodelled: " in block]
    done = command(RUN, "--boards", "4", "--stats", "examples/prompt.txt", cwd=ROOT)
    text, said = done.stdout.decode(), done.stderr.decode()
    shown = block.partition("[...]")[0].rstrip()
    assert shown in text
    for line in re.findall(r"^modelled: .*(?=: [\d.]+ ms in all)", block, re.MULTILINE):
        assert line in said
    phases = re.findall(r"prefill .*sampled\)", block)
    assert len(phases) == 2 and all(phase in said for phase in phases)


def test_the_python_example_runs() -> None:
    (code,) = [block for kind, block in BLOCKS if kind == "python"]
    done = command(code, cwd=ROOT)
    assert done.returncode == 0 and len(done.stdout) > 100, done.stderr.decode()


def test_make_targets_and_files_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", TEXT, re.MULTILINE)
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    paths = re.findall(r"\b(?:sdk|host|csrc|firmware|docs|overlays|examples)/[\w./]+\w", TEXT)
    assert len(paths) > 10 and not [path for path in paths if not (ROOT / path).exists()]
