"""The journal of `lora batch`: each line once, whenever the program was ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.cli.batch_journal import Journal
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command

FACTS = {"prompts": "5a", "model": "/models/demo"}


def entry(index: int) -> dict[str, object]:
    return {"index": index, "line": index + 1, "text": f"é{index}"}


def begun(out: Path, indexes: list[int]) -> Journal:
    journal = Journal(out, FACTS, 3)
    for index in indexes:
        journal.add(index, entry(index))
    return journal


def test_the_output_has_the_order_of_the_lines(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with begun(out, [2, 0, 1]) as journal:
        assert not out.exists()
        journal.add(0, {"index": 0, "line": 1, "text": "again"})  # the first one counts
        assert journal.finish() == 0
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        entry(i) for i in range(3)
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


def test_every_beginning_of_the_file_goes_on(tmp_path: Path) -> None:
    """Whatever part of it a killed program has written."""
    out = tmp_path / "out.jsonl"
    with begun(out, [1, 0]) as journal:
        path = journal.path
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        ends = whole[:length].count(b"\n")
        with Journal(out, FACTS, 3) as again:
            assert [index in again for index in range(3)] == [ends > 2, ends > 1, False]
            again.add(2, entry(2))
        with Journal(out, FACTS, 3) as again:  # ended once more
            assert 2 in again and len(again) == 1 + max(ends - 1, 0)
            for index in range(3):
                again.add(index, entry(index))
            again.finish()
        assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == [
            "é0", "é1", "é2",
        ]  # fmt: skip
        out.unlink()


def test_a_program_that_was_ended_while_it_finished_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with begun(out, [0, 1, 2]) as journal:
        whole = journal.path.read_bytes()
        journal.finish()
    journal.path.write_bytes(whole)  # the output is there, the journal not removed yet
    with Journal(out, FACTS, 3) as again:
        assert len(again) == 3 and again.finish() == 0


@pytest.mark.parametrize(
    ("facts", "lines", "words"),
    [
        ({**FACTS, "model": "/models/other"}, 3, "begun with another model: '/models/demo'"),
        ({**FACTS, "prompts": "6b"}, 3, "begun with another prompts"),
        (FACTS, 1, "is no entry of this batch"),
    ],
)
def test_another_batch_is_refused(
    tmp_path: Path, facts: dict[str, object], lines: int, words: str
) -> None:
    out = tmp_path / "out.jsonl"
    begun(out, [1]).__exit__(None, None, None)
    before = (tmp_path / "out.jsonl.partial").read_bytes()
    with pytest.raises(RequestError, match=words):
        Journal(out, facts, lines)
    assert (tmp_path / "out.jsonl.partial").read_bytes() == before


def test_two_programs_and_a_complete_output_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with begun(out, [0, 1, 2]) as journal:
        with pytest.raises(RequestError, match="written by another lora batch"):
            Journal(out, FACTS, 3)
        journal.finish()
    with pytest.raises(RequestError, match="exists and is complete") as raised:
        Journal(out, FACTS, 3)
    assert raised.value.usage


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.partial", "b.jsonl.new", "link"])
def test_the_file_of_the_prompts_is_not_written(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / name, tmp_path / "b.jsonl"
    if name == "link":
        out.write_text('"a"')
        prompts.symlink_to(out)
    else:
        prompts.write_text('"a"')
    before = sorted(tmp_path.iterdir())
    assert run_command(lora, "lora", ["batch", str(prompts), str(out)]) == 2
    err = capsys.readouterr().err
    assert "holds the prompts, and results would be written there; name another OUT" in err
    assert prompts.read_text() == '"a"' and sorted(tmp_path.iterdir()) == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "out.jsonl.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match=r"out\.jsonl\.partial"):
        Journal(tmp_path / "out.jsonl", FACTS, 3)
    assert (tmp_path / "elsewhere").read_text() == "kept"
