"""The greedy loop in C emits the tokens that steps driven from Python emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import ModelError, RequestError
from lora_host.records import GreedyResult
from lora_lab.timing.host_access import step_accesses
from lora_sdk.step.runner import KvOp, Row, Runner
from tests.drive import open_runner
from tests.transports import Transport
from tests.variants import variant, write_checkpoint

PROMPT = (5, 17, 99, 3)
COUNT = 12
FIRST_PAGE = abi.MAX_SCRATCH // abi.TILE_POSITIONS


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Runner]:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("greedy") / "model")
    with open_runner(folder, 4, transport=transport) as opened:
        yield opened


def prefill(runner: Runner, sequence: int) -> int:
    """Commits the prompt; returns the token after it."""
    ops = [KvOp.length(sequence, 0), KvOp.table(sequence, 0, FIRST_PAGE + sequence)]
    last = len(PROMPT) - 1
    rows = [
        Row(sequence, place, token, place, place - 1, want_argmax=place == last)
        for place, token in enumerate(PROMPT)
    ]
    result = runner.step(rows, ops)
    assert result.argmax is not None
    runner.step([], [KvOp.commit(sequence, 0, 0, len(PROMPT))], list(range(len(PROMPT))))
    return int(result.argmax[1][0])


def by_steps(runner: Runner, sequence: int, token: int, count: int) -> list[int]:
    """Tokens after `token`, a step each; every step commits the row before."""
    tokens: list[int] = []
    ops: list[KvOp] = []
    path: list[int] = []
    for turn in range(count):
        position, slot = len(PROMPT) + turn, 10 + turn % 2
        result = runner.step([Row(sequence, position, token, slot, want_argmax=True)], ops, path)
        assert result.argmax is not None
        token = int(result.argmax[1][0])
        tokens.append(token)
        ops, path = [KvOp.commit(sequence, position, 0, 1)], [slot]
    return tokens


def greedy(
    runner: Runner, token: int, count: int = COUNT, at: int = len(PROMPT), **options: Any
) -> tuple[list[int], GreedyResult]:
    """Tokens received from the loop on sequence 0, and its result."""
    received: list[int] = []
    options.setdefault("on_token", received.append)
    offset = runner.plan.boards[0].control.block_offset
    result = runner.cluster.greedy(0, at, token, (40, 41, 42), count, offset, **options)
    return received, result


def test_the_loop_equals_steps_from_python(runner: Runner) -> None:
    token = prefill(runner, 0)
    received, result = greedy(runner, token)
    assert (result.emitted, result.last_token) == (COUNT, received[-1])
    assert len(set(received)) > 1
    runner.step([], [KvOp.length(0, 0)])
    assert prefill(runner, 1) == token
    assert by_steps(runner, 1, token, COUNT) == received
    runner.step([], [KvOp.length(1, 0)])


def test_a_token_costs_the_accesses_that_the_timing_model_charges(runner: Runner) -> None:
    """One transfer down, one register written, polls, one transfer up."""
    assert abi.RECORDS_BYTES <= 4096
    token = prefill(runner, 0)
    before = runner.cluster.stats()
    greedy(runner, token)
    after = runner.cluster.stats()
    charged, each = step_accesses(), COUNT * runner.plan.size
    assert after.memory_writes - before.memory_writes == charged.dma_before * each
    assert after.memory_reads - before.memory_reads == charged.dma_after * each
    assert after.doorbells - before.doorbells == each
    polls = after.polls - before.polls
    assert polls >= charged.reads_after * each
    reads = after.register_reads - before.register_reads
    assert reads - polls == charged.reads_before * each
    writes = after.register_writes - before.register_writes
    assert writes == charged.writes_before * each
    runner.step([], [KvOp.length(0, 0)])


def test_a_second_call_goes_on_from_the_uncommitted_row(runner: Runner) -> None:
    token = prefill(runner, 0)
    whole, _ = greedy(runner, token)
    prefill(runner, 0)
    first, result = greedy(runner, token, 5)
    assert result.last_slot in (40, 41, 42)
    rest, _ = greedy(runner, first[-1], COUNT - 5, len(PROMPT) + 5, pending_slot=result.last_slot)
    assert first + rest == whole


def test_it_ends_at_a_stop_token_and_when_the_listener_says_so(runner: Runner) -> None:
    token = prefill(runner, 0)
    received, _ = greedy(runner, token, 6)
    stop = received[2]
    count = received.index(stop) + 1
    prefill(runner, 0)
    cut, result = greedy(runner, token, stop_tokens=[stop])
    assert cut == received[:count] and result.emitted == count
    prefill(runner, 0)
    assert greedy(runner, token, on_token=lambda _token: True)[1].emitted == 1


def test_what_the_listener_raises_comes_out(runner: Runner) -> None:
    def fail(_token: int) -> None:
        raise LookupError("listener")

    token = prefill(runner, 0)
    with pytest.raises(LookupError, match="listener"):
        greedy(runner, token, on_token=fail)


def test_bad_slots_and_counts_are_refused(runner: Runner) -> None:
    offset = runner.plan.boards[0].control.block_offset
    with pytest.raises(RequestError, match="slots 4, 5 and 4"):
        runner.cluster.greedy(0, 1, 5, (4, 5, 4), 1, offset)
    with pytest.raises(RequestError, match="argmax of 65 rows, at most 64 expected"):
        runner.cluster.argmax(0, 65)


# Board 0 has no column of the FFN in this narrow model; board 3 has.
def test_a_value_that_is_not_finite_ends_the_loop(runner: Runner) -> None:
    token = prefill(runner, 0)
    plan = runner.plan.boards[3]
    matrix = plan.matrices["layer.1.down"]
    bank, offset = matrix.bank_first + matrix.first, matrix.weight_line * abi.LINE_BYTES
    kept = runner.cluster.read(plan.board, bank, offset, 2)
    runner.cluster.write(plan.board, bank, offset, np.array([0x7E00], np.uint16))
    try:
        with pytest.raises(ModelError, match=r"board \d .* command \d+ row 0: .* not finite"):
            greedy(runner, token)
    finally:
        runner.cluster.write(plan.board, bank, offset, kept)
