"""Hostile files: each of thousands of mutations of a format is taken, or refused in one line of at
most 500 characters, in bounded time. 200 of each run always, 10,000 among the slow tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import hostile_host
from tests.mutations import Subject, campaign

FORMATS: dict[str, Callable[[Path], Subject]] = {
    "vrtbin": hostile_host.vrtbin,
    "xclbin": hostile_host.xclbin,
    "cluster": hostile_host.cluster,
    "manifest": hostile_host.manifest,
}


def run(name: str, folder: Path, count: int) -> None:
    outcome = campaign(name, FORMATS[name](folder), count)
    assert not outcome.faults, f"{name}: {outcome}\n" + "\n".join(outcome.faults[:20])
    assert outcome.taken and outcome.refused, f"{name}: {outcome}; expected some of both"


@pytest.mark.parametrize("name", FORMATS)
def test_some_mutations(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_ten_thousand_mutations(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, 10_000)
