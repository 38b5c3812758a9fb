"""Boards that begin a gather at once move no frames; every counter is as if they had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lora_host import abi
from lora_sdk import Engine, Result, SamplingParams
from tests.recovery_rig import Folders, opened, write_folders

PROMPT = list(range(5, 45))
PARAMS = SamplingParams(max_tokens=12, ignore_eos=True)
FIELDS = ["frames_sent", "frames_received", "frames_dropped", "cycles"]
NEVER = 1 << 30  # frames that pass before a fault strikes


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("counters"))


def ends(engine: Engine) -> Iterator[tuple[int, int]]:
    for board in range(engine.plan.size):
        for port in range(abi.PORTS):
            yield board, port


def counters(folders: Folders, boards: int, framed: bool) -> tuple[list[int], list[Any], list[Any]]:
    """Tokens, what each port has counted, and the end of boards' records."""
    with opened(folders, boards) as engine:
        emulated = engine.cluster.emulated
        assert emulated is not None
        if framed:  # a link with a fault: frames move
            emulated.fault(boards - 1, abi.FAULT_LINK_DROP, 0, NEVER, 1)
        result = engine.generate(PROMPT, PARAMS)
        assert isinstance(result, Result)
        ports = [(engine.cluster.link_status(*end), emulated.link_bytes(*end))
                 for end in ends(engine)]  # fmt: skip
        records = engine.cluster.completions()
        return list(result.token_ids), ports, records[FIELDS].tolist()


@pytest.mark.parametrize("boards", [2, 4, 8])
def test_counters_are_those_of_frames(folders: Folders, boards: int) -> None:
    found, framed = counters(folders, boards, False), counters(folders, boards, True)
    assert found == framed
    assert sum(status.frames_received for status, _ in found[1]) > 100 * boards
