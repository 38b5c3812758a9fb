"""Commands that the core gives the DMA unit by its mailbox: KV moves before a table entry changes,
sums of memory, and a sum that fails; and what the Router's mailbox says of a gather that does not
end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from lora_host import abi
from lora_host.errors import LoraError
from lora_sdk.step.runner import KvOp, Row, Runner

SEQUENCE = 1
PROMPT = (9, 4, 33, 7)
SLOTS = tuple(range(20, 20 + len(PROMPT)))


def error_of(runner: Runner, board: int) -> Mapping[str, int]:
    """The board's error record."""
    kind, bank = abi.dtype("error_record"), runner.plan.overlay.control_bank
    data = runner.cluster.read(board, bank, abi.ERROR_OFFSET, kind.itemsize)
    record = np.frombuffer(data, kind)[0]
    return {name: int(record[name]) for name in ("code", "unit", "found", "expected")}


def move_before_table(runner: Runner) -> int:
    """The token of a row that reads what a prompt has left in a page, copied from where it was
    committed by a step that then maps another one."""
    page = runner.plan.page_count - 4
    rows = [
        Row(SEQUENCE, at, token, SLOTS[at], SLOTS[at - 1] if at else -1)
        for at, token in enumerate(PROMPT)
    ]
    runner.step(rows, [KvOp.length(SEQUENCE, 0), KvOp.table(SEQUENCE, 0, page)])
    ops = [
        KvOp.copy(page, page + 1, 3),  # of what was there before
        KvOp.copy(page + 1, page + 3, 2),  # more operations than the step before had
        KvOp.commit(SEQUENCE, 0, 0, len(PROMPT)),
        KvOp.table(SEQUENCE, 0, page + 2),
        KvOp.copy(page, page + 2, len(PROMPT)),
    ]
    row = Row(SEQUENCE, len(PROMPT), 11, SLOTS[-1] + 1, want_argmax=True)
    found = runner.step([row], ops, SLOTS)
    assert found.argmax is not None
    return int(found.argmax[1][0])


def sums(runner: Runner) -> Iterator[int]:
    """Of ranges of the banks with the first weights."""
    for board in range(runner.plan.size):
        for bank, first, count in ((0, 3, 200), (1, 64, 9_999)):
            yield runner.cluster.checksum(board, bank, first, count)


def failing_sum(runner: Runner) -> Iterator[int]:
    """The record of a sum of board 0 that fails, and the sum after it."""
    emulated = runner.cluster.emulated
    assert emulated
    emulated.fault(0, abi.FAULT_UNIT_FAILS, abi.UNIT_DMA, 0)
    try:
        runner.cluster.checksum(0, 0, 0, 64)
    except LoraError:
        yield from error_of(runner, 0).values()
    else:
        raise AssertionError("the sum did not fail")
    emulated.fault(0, abi.FAULT_NONE)
    yield runner.cluster.checksum(0, 0, 0, 64)


def unended_gather(runner: Runner) -> Iterator[int]:
    """Codes and Router's records of boards after a step whose frames are lost on their way from
    board 0. The step is not run again."""
    emulated, bank = runner.cluster.emulated, runner.plan.overlay.control_bank
    assert emulated
    for port in range(abi.PORTS):
        emulated.fault(0, abi.FAULT_LINK_DROP, port)
    try:
        runner.step([Row(SEQUENCE, len(PROMPT) + 1, 5, SLOTS[0], SLOTS[-1] + 1)])
    except LoraError:
        pass
    else:
        raise AssertionError("the step did not fail")
    kind = abi.dtype("router_record")
    for board in range(runner.plan.size):
        yield error_of(runner, board)["code"]
        data = runner.cluster.read(board, bank, abi.ROUTER_OFFSET, kind.itemsize)
        record = np.frombuffer(data, kind)[0]
        for name in ("collective", "begun", "waits", "sent", "received"):
            yield from np.atleast_1d(record[name]).tolist()
    emulated.fault(0, abi.FAULT_NONE)
