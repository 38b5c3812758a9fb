"""The committed inputs of every fuzzed parser, run once each without a fuzzer."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host.errors import ModelError
from tests.fuzz import target as judge
from tests.fuzz.campaign import C_TARGETS, HERE
from tests.fuzz.corpora import CORPORA, inputs
from tests.fuzz.target import Fault, Target
from tests.fuzz.targets import TARGETS, opened
from tests.mutations import memory_limit

MAX_CORPORA = 300 << 10
ALWAYS = {"cluster_messages", "daemon"}
"""Targets that answer each input, and refuse in the answer."""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_a_corpus(name: str, caplog: pytest.LogCaptureFixture) -> None:
    paths = inputs(name)
    assert paths, f"{CORPORA / name} has no input"
    taken = refused = 0
    with opened(name) as target, memory_limit(), caplog.at_level(logging.CRITICAL, "lora_sdk"):
        for number, path in enumerate(paths):
            try:
                found = target.run(path.read_bytes())
            except Exception as error:
                raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
            taken, refused = taken + found, refused + (not found)
            if not number:
                target.settle()
        if not taken:  # what is taken is too large to be committed
            taken = any(target.run(data) for data in target.seeds())
    assert taken, "expected an input that is taken"
    assert refused or name in ALWAYS, "expected an input that is refused"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C targets without sanitizers: `make -C tests/c check` runs them with."""
    folder = tmp_path_factory.mktemp("fuzz")
    command = ["make", "-s", "-j2", "-C", str(HERE / "c"), f"BUILD={folder}", "replay"]
    subprocess.run(command, check=True)
    return folder / "replay"


@pytest.mark.slow
def test_the_corpora_in_c(programs: Path) -> None:
    for name in C_TARGETS:
        done = subprocess.run(
            [programs / name, *inputs(name)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        found = re.fullmatch(r"(\d+) inputs, (\d+) taken\n", done.stdout)
        assert found, done.stdout
        count, taken = map(int, found.groups())
        assert count == len(inputs(name)) and 0 < taken < count, f"{name}: {done.stdout}"


def test_the_corpora_are_small_and_named() -> None:
    names = {path.name for path in CORPORA.iterdir()}
    assert names == {*TARGETS, *C_TARGETS}
    assert sum(path.stat().st_size for path in CORPORA.rglob("*") if path.is_file()) < MAX_CORPORA


def _leave_a_descriptor(_: bytes) -> None:
    os.dup(0)


def _leave_a_file(folder: Path) -> Callable[[bytes], None]:
    return lambda data: (folder / "left").write_bytes(data) and None


def _say_two_lines(_: bytes) -> None:
    error = ModelError("one")
    error.args = ("one\ntwo",)
    raise error


@pytest.mark.parametrize("kind", ["descriptor", "file", "lines", "time", "other"])
def test_what_a_target_finds(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_SECONDS", 0.05)
    reads: dict[str, Callable[[bytes], object]] = {
        "descriptor": _leave_a_descriptor,
        "file": _leave_a_file(tmp_path),
        "lines": _say_two_lines,
        "time": lambda _: _spend(0.2),
        "other": lambda data: data[1],
    }
    target = Target(reads[kind], list, folder=tmp_path)
    target.settle()
    with pytest.raises(IndexError if kind == "other" else Fault):
        target.run(b"x")


def _spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
