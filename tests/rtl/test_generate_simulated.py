"""GENERATE on boards whose controls are simulated (tests/rtl/core/board_control.cpp): the core runs
the committed image, the sequencer the lists. Units, links and memory are the emulated board's, so
tokens are computed and votes pass from board to board. Expected is what the host's own loop of
single steps gives on emulated boards."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from lora_host import abi
from tests.rtl.boards_build import ask, in_process
from tests.rtl.generations import Fault, Request, Seen, as_text, by_host
from tests.rtl.generations import run as run_here
from tests.variants import variant, write_checkpoint

pytestmark = pytest.mark.rtl
SLOW = pytest.mark.slow
LEAST_CYCLES = 2_000  # of a control for a token


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("simulated") / "model")


@cache
def expected(folder: Path, boards: int, count: int) -> Seen:
    return by_host(folder, boards, count)


def generated(request: Request) -> Seen:
    """On simulated controls."""
    found = ask(as_text(request))
    seen = Seen(**found["seen"])
    seen.ring = [(step, token) for step, token in seen.ring]
    assert found["cycles"] > LEAST_CYCLES * request.boards * seen.rows
    return seen


def is_same(seen: Seen, wanted: Seen) -> bool:
    """Tokens, those of the single steps behind them, and the KV cache."""
    return (seen.tokens, seen.after, seen.kv) == (wanted.tokens, wanted.after, wanted.kv)


def numbered(tokens: list[int]) -> list[tuple[int, int]]:
    return list(enumerate(tokens, 1))


@pytest.mark.parametrize(
    ("boards", "count"), [(1, 8), *(pytest.param(n, 64, marks=SLOW) for n in (1, 2, 4))]
)
def test_tokens_are_those_of_the_hosts_loop(folder: Path, boards: int, count: int) -> None:
    wanted = expected(folder, boards, count)
    seen = generated(Request(str(folder), boards, count))
    assert is_same(seen, wanted) and len(set(wanted.tokens)) > 5
    assert seen.steps == [count] * boards and seen.rows == count and not seen.error
    assert seen.ring == numbered(wanted.tokens)
    assert seen.doorbells == boards and seen.redone == 0
    # A look a token, and one that finds the run over; the ring is never read.
    assert (seen.reads, seen.looks) in ((0, count), (0, count + 1))


def test_a_stop_token_ends_it_in_the_middle(folder: Path) -> None:
    tokens = expected(folder, 1, 8).tokens
    stop = next(token for token in tokens if tokens.index(token) > 2)
    count = tokens.index(stop) + 1
    seen = generated(Request(str(folder), 1, 8, stop=(stop, 1 << 20)))
    assert is_same(seen, expected(folder, 1, count))
    assert seen.steps == [count] and count < 8


@pytest.mark.slow
def test_cancel_ends_it_within_one_token(folder: Path) -> None:
    seen = generated(Request(str(folder), 2, 64, end_after=5))
    assert is_same(seen, expected(folder, 2, 5))
    assert seen.steps[0] == seen.steps[1] <= 6 and not seen.error


HANGS = Fault(1, 6, abi.FAULT_UNIT_STUCK, (abi.UNIT_MPU,))
FAILS = Fault(1, 6, abi.FAULT_UNIT_FAILS, (abi.UNIT_MPU, 2))  # the third command from now on
FLIPS = Fault(1, 6, abi.FAULT_LINK_FLIP, (0, 0, 20))  # of each frame from port 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (HANGS, [abi.ERR_LINK_POISON, abi.ERR_WATCHDOG]),
        (FAILS, [abi.ERR_LINK_POISON, abi.ERR_UNIT]),
        (FLIPS, [abi.ERR_LINK_CRC, abi.ERR_LINK_POISON]),
    ],
)
def test_boards_are_one_step_apart_after_a_failure(
    folder: Path, fault: Fault, codes: list[int]
) -> None:
    seen = generated(Request(str(folder), 2, 12, fault=fault))
    wanted = expected(folder, 2, 12).tokens
    assert seen.error and 6 <= len(seen.tokens) < 12
    assert seen.tokens == wanted[: len(seen.tokens)]
    assert seen.codes == codes  # one has failed, and its poison has ended the other's run
    assert max(seen.steps) - min(seen.steps) <= 1
    assert seen.rows in (len(seen.tokens), len(seen.tokens) - 1)
    assert seen.after == (wanted + expected(folder, 2, 12).after)[seen.rows :][:4]


@pytest.mark.slow
def test_a_damaged_frame_is_redone_by_the_host(folder: Path) -> None:
    fault = Fault(1, 6, abi.FAULT_LINK_FLIP, (0, 7, 1))
    request = Request(str(folder), 2, 12, fault=fault)
    seen, emulated = generated(request), run_here(request)
    assert is_same(seen, expected(folder, 2, 12)) and is_same(emulated, seen)
    assert seen.redone >= 1


CASES = (
    "test_stop_tokens_end_it_on_the_boards[emu]",
    "test_a_listener_ends_it_within_one_token[emu]",
    "test_a_misfiled_vote_is_noticed",
    "test_a_value_that_is_not_finite_is_named_as_by_the_host[emu]",
)


@pytest.mark.slow
def test_cases_of_emulated_boards_pass() -> None:
    done = in_process(
        [
            *("-m", "pytest", "-q", "-n", "0", "-p", "tests.rtl.simulated_boards"),
            *("-p", "no:cacheprovider"),
            *(f"tests/emu/test_generate.py::{case}" for case in CASES),
        ]
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
