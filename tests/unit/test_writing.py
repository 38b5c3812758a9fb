"""A disk without room: one line that names the file and what to do, and nothing half written in the
way of the next try."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import pytest

from lora_host.boardd import keys
from lora_host.writing import writing
from lora_lab.torture.report import Report
from lora_sdk.cli.batch_journal import NEW, Journal
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
from lora_sdk.quant import tensor_file
from lora_sdk.quant.folder_writer import FolderWriter
from lora_sdk.quant.kept_work import KeptWork

CURE = "free some space, or write to another disk"
FULL = Path("/dev/full")
WEIGHTS = {"a.weight": np.zeros(4096, np.float32)}


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file can be written beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def too_large(path: Path) -> Iterator[None]:
    """What is written inside fails, and the error names `path`."""
    with pytest.raises(OSError, match="File too large") as raised, at_most(1024):
        yield
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))


def test_the_command_names_the_file_and_the_cure(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def full() -> None:
        with writing(FULL):
            FULL.write_text("x" * 99)

    assert run_command(full, "lora", []) == 1
    assert capsys.readouterr().err == f"lora: error: /dev/full: No space left on device; {CURE}\n"


def test_a_copy_names_what_is_written(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(9999))
    with pytest.raises(OSError, match="No space left") as raised, writing(FULL):
        shutil.copyfile(source, FULL)
    assert raised.value.filename == str(FULL)


def test_a_name_that_is_known_stays(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, writing(tmp_path):
        (tmp_path / "no").read_bytes()
    assert raised.value.filename == str(tmp_path / "no")


def test_shards_of_a_quantized_folder(tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    partial.mkdir()
    with FolderWriter(tmp_path / "out", partial) as writer:
        writer.add(WEIGHTS)
        with too_large(partial / "shard-0.partial"):
            writer.flush()


def test_other_files_of_a_quantized_folder(tmp_path: Path) -> None:
    partial, source = tmp_path / "partial", tmp_path / "source"
    for folder in (partial, source):
        folder.mkdir()
    (source / "tokenizer.json").write_bytes(bytes(4096))
    with FolderWriter(tmp_path / "out", partial) as writer:
        with too_large(partial / "tokenizer.json"):
            writer.copy_from(source)
        with too_large(partial / "config.json"):
            writer.finish({"x": "y" * 4096})


def test_kept_work_of_an_interrupted_run(tmp_path: Path) -> None:
    with KeptWork(tmp_path / "out", "inputs") as kept, FolderWriter(tmp_path / "out") as writer:
        with too_large(kept.folder / "layer-00000.safetensors.new"):
            kept.save(WEIGHTS, [], writer.written)
        with too_large(kept.folder / "streams-00001.npz.new"):
            kept.save({}, [np.zeros((9, 999), np.float32)], writer.written)


def test_an_error_without_a_number_is_one_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object, **_named: object) -> None:
        raise tensor_file.SafetensorError("Error while serializing: strange")

    monkeypatch.setattr(tensor_file, "save_file", fails)
    with pytest.raises(OSError, match="strange") as raised:
        tensor_file.save_tensors({}, tmp_path / "a")
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, str(tmp_path / "a"))


def test_the_journal_of_a_batch(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with too_large(out.with_name("out.jsonl.partial")):
        Journal(out, {"model": "m" * 4096}, 1)
    with too_large(out.with_name("out.jsonl.partial")), Journal(out, {}, 2) as journal:
        journal.add(0, {"index": 0, "text": "x" * 4096})
    with Journal(out, {}, 1) as again:  # what was cut off is dropped
        assert not len(again)
        again.add(0, {"index": 0, "text": "x"})
        new = out.with_name(out.name + NEW)
        new.symlink_to(FULL)
        with pytest.raises(OSError, match="No space left") as raised:
            again.finish()
        assert raised.value.filename == str(new) and not out.exists()


def test_the_report_of_a_campaign(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_arguments: object) -> Iterator[object]:
        yield from ()

    monkeypatch.setattr("lora_lab.torture.jobs.verdicts", none)
    monkeypatch.setattr(Report, "markdown", lambda _self: "x" * 99)
    assert run_command(lora, "lora", ["lab", "torture", "--runs", "1", "--report", str(FULL)]) == 1
    assert f"/dev/full: No space left on device; {CURE}" in capsys.readouterr().err


def test_half_of_the_keys_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    folder, made, real = tmp_path / "keys", [], os.fdopen

    def full(descriptor: int, mode: str) -> object:
        made.append(descriptor)
        if len(made) == 1:
            return real(descriptor, mode)
        os.close(descriptor)
        return FULL.open("wb")

    monkeypatch.setattr(keys.os, "fdopen", full)
    with pytest.raises(OSError, match="No space left") as raised:
        keys.write_keys(folder, ["lab1"])
    assert raised.value.filename == str(folder / "ca.pem") and not folder.exists()
    monkeypatch.undo()
    assert len(keys.write_keys(folder, ["lab1"])) == 2
