"""Faults of memory: bits of weights, adapters and command lists, changed through the host's own
accesses."""

from __future__ import annotations

from contextlib import suppress

from lora_host.errors import LoraError
from lora_lab.torture.faults import Fault
from lora_lab.torture.target import Target
from lora_sdk.engine.engine import Engine

LIST_HEADER = 256  # bytes before the first command
RUINED = 256  # bytes


def flip_weight(target: Target, fault: Fault) -> None:
    """A bit of a matrix of the board."""
    bank, offset, name = _place(target, fault)
    if name:
        _flip(target, fault.board, bank, offset, bytes([1 << fault.numbers[1] % 8]))


def ruin_weights(target: Target, fault: Fault) -> None:
    """A run of a matrix of the board, all bits of it."""
    bank, offset, name = _place(target, fault)
    if name:
        _flip(target, fault.board, bank, offset, b"\xff" * RUINED)


def flip_adapter(target: Target, fault: Fault) -> None:
    """A bit of an adapter that is in its slot on the board."""
    engine = _engine(target)
    ranges = [
        one for each in engine.adapter_ranges().values() for one in each if one.board == fault.board
    ]
    if ranges:
        place = ranges[fault.numbers[0] % len(ranges)]
        at = place.offset + fault.numbers[0] % place.bytes
        _flip(target, fault.board, place.bank, at, bytes([1 << fault.numbers[1] % 8]))
        target.damaged.append(f"board {fault.board}")


def flip_list(target: Target, fault: Fault) -> None:
    """A bit of a command of the board's list."""
    engine = _engine(target)
    boards = [plan for plan in engine.plan.boards if plan.board == fault.board]
    if boards and not engine.cluster.closed:
        at = boards[0].control.list_offset + LIST_HEADER + 64 * (fault.numbers[0] % 8) + 6
        bank = engine.cluster.overlay.control_bank
        _flip(target, fault.board, bank, at, bytes([1 << fault.numbers[1] % 8]))


def _engine(target: Target) -> Engine:
    assert target.engine is not None
    return target.engine


def _place(target: Target, fault: Fault) -> tuple[int, int, str]:
    """Bank, offset and name of a weight that the fault's numbers choose; "" without the board."""
    engine = _engine(target)
    boards = [plan for plan in engine.plan.boards if plan.board == fault.board]
    if not boards or engine.cluster.closed:
        return 0, 0, ""
    names = sorted(boards[0].matrices)
    name = names[fault.numbers[0] % len(names)]
    bank, offset = boards[0].matrices[name].address(0)
    target.damaged.append(f"board {fault.board}")
    return bank, offset + 2 * (fault.numbers[0] // len(names) % 64) + 1, name


def _flip(target: Target, board: int, bank: int, offset: int, bits: bytes) -> None:
    cluster = _engine(target).cluster
    with suppress(LoraError):  # the board has left the bus
        found = cluster.read(board, bank, offset, len(bits))
        cluster.write(board, bank, offset, bytes(a ^ b for a, b in zip(found, bits, strict=True)))
