"""What the README and the first pages say can be done as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lora_sdk import demo_model_path
from tests.commands import LORA, RUN, command

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CARDS = ("xrt:", "FOLDER", "lora serve")  # a card, or a server that runs until it is ended


def blocks(text: str) -> list[tuple[str, str]]:
    """Kind and text of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def lines(text: str) -> list[str]:
    """Command lines in a page's blocks."""
    found = [line.partition(" #")[0] for _, block in blocks(text) for line in block.splitlines()]
    return [line for line in found if line.startswith(("lora-run ", "lora "))]


PAGES = [(ROOT / "docs" / name).read_text(encoding="utf-8")
         for name in ("index.md", "start/quick_start.md", "start/first_card.md")]  # fmt: skip
LINES = lines(TEXT)
LATER = [line for page in PAGES for line in lines(page) if not any(c in line for c in CARDS)]


def marked(line: str) -> object:
    """Calibration and measurements take seconds."""
    slow = line.startswith(("lora quantize", "lora lab bench"))
    return pytest.param(line, marks=pytest.mark.slow if slow else ())


@pytest.mark.parametrize("line", [marked(line) for line in [*LINES, *LATER]])
def test_commands_work(line: str, tmp_path: Path) -> None:
    program, *arguments = shlex.split(line)
    known = {"DIR": str(demo_model_path()), "FILE": "examples/prompt.txt"}
    known |= {"OUT": str(tmp_path / "out"), "OUT.jsonl": str(tmp_path / "out.jsonl")}
    known["IN.jsonl"] = "examples/prompts.jsonl"
    if arguments[:2] == ["lab", "synth"]:  # the demo's shape in place of a model of 700 MB
        known = {"DIR": str(tmp_path / "model"), arguments[2]: str(demo_model_path())}
        known[arguments[2]] += "/config.json"
    if program == "lora-run":
        known["OUT"] = known["DIR"]  # what the line above it has written
    arguments = [known.get(argument, argument) for argument in arguments]
    if arguments[0] == "quantize" and "--windows" not in arguments:
        arguments += ["--windows", "2"]  # a test may not take as long as calibration may
    done = command(RUN if program == "lora-run" else LORA, *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout or Path(known["OUT.jsonl"]).stat().st_size


def test_the_demo_prints_what_stands_there() -> None:
    """Its text and modelled times; sums of weights depend on this computer, so they are apart."""
    (block,) = [block for _, block in blocks(TEXT) if "\nmodelled: " in block]
    done = command(RUN, "--boards", "4", "--stats", "examples/prompt.txt", cwd=ROOT)
    text, said = done.stdout.decode(), done.stderr.decode()
    shown = block.partition("[...]")[0].rstrip()
    assert shown in text
    for line in re.findall(r"^modelled: .*(?=: [\d.]+ ms in all)", block, re.MULTILINE):
        assert line in said
    phases = re.findall(r"prefill .*sampled\)", block)
    assert len(phases) == 2 and all(phase in said for phase in phases)


def test_the_python_example_runs() -> None:
    for page, least in zip((TEXT, *PAGES[:2]), (100, 20, 10), strict=True):
        (code,) = [block for kind, block in blocks(page) if kind == "python"]
        done = command(code, cwd=ROOT)
        assert done.returncode == 0 and len(done.stdout) > least, done.stderr.decode()


def test_make_targets_and_files_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", TEXT, re.MULTILINE)
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    paths = re.findall(r"\b(?:sdk|host|csrc|firmware|docs|overlays|examples)/[\w./]+\w", TEXT)
    assert len(paths) > 10 and not [path for path in paths if not (ROOT / path).exists()]
