"""`lora-run`'s drafts: the same text, and what they were worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_sdk import demo_model_path
from tests.commands import lora_run, one_line_error

DRAFT = demo_model_path().parent / "demo_draft"
PROMPT = ("-p", "import os\nimport ", "-n", "24", "-s", "3", "-q")


@pytest.fixture(scope="module")
def plain() -> bytes:
    done = lora_run(*PROMPT, "--temp", "0.7", "--speculative", "off")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "flags",
    [
        ("--speculative", "4", "--draft", DRAFT),
        ("--proposer", "lookup", "--boards", "2"),
        ("-md", DRAFT.parent / "demo_eagle3"),
        ("--speculative", "auto"),
    ],
    ids=["draft", "lookup", "eagle3", "auto"],
)
def test_the_text_is_that_of_plain_decoding(flags: tuple[object, ...], plain: bytes) -> None:
    done = lora_run(*PROMPT, "--temp", "0.7", *flags)
    assert done.returncode == 0 and done.stdout == plain, done.stderr


def test_json_and_statistics_tell_what_was_accepted(tmp_path: Path) -> None:
    batch = tmp_path / "prompts.jsonl"
    batch.write_text('"import os"\n{"prompt": "import sys", "temperature": 1.0, "seed": 1}\n')
    flags = ("--speculative", "3", "--draft", DRAFT, "-n", "20")
    single = lora_run("-p", "import os", "--json", "--stats", *flags)
    found = json.loads(single.stdout)["speculation"]
    assert found["proposer"] == "draft" and Path(found["draft"]) == DRAFT
    assert found["emitted"] == 19 and found["chosen_lengths"] == {"3": found["verifications"]}
    assert 1 < found["mean_emitted"] <= 3 and found["accepted"]
    said = single.stderr.decode()
    assert "speculation: demo_draft, 3 rows per verification" in said
    assert "measured: speculation: accepted by position 1: " in said
    both = lora_run("--batch", batch, *flags)
    lines = [json.loads(line) for line in both.stdout.splitlines()]
    assert lines[0]["outputs"] == json.loads(single.stdout)["outputs"]
    assert all(line["speculation"]["verifications"] > 0 for line in lines)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (("--speculative", "many"), "expected auto, off or rows"),
        (("--draft", "nowhere"), "no such folder"),
        (("--proposer", "lookup", "--speculative", "off"), "a draft is named"),
        (("--draft", DRAFT, "--proposer", "eagle3"), "expected draft or longspec"),
        (("--draft", DRAFT.parent / "demo_eagle3", "--proposer", "draft"), "expected eagle3"),
    ],
)
def test_a_wrong_wish_is_one_line(flags: tuple[object, ...], part: str) -> None:
    one_line_error(lora_run("-p", "a", "-n", "3", *flags), part)
