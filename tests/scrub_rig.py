"""Flips bits of weights on emulated boards, and sets how often they are summed."""

from __future__ import annotations

from dataclasses import replace

from lora_host.placing import Range
from lora_sdk import Engine

LAST = 0x40  # of an FP16 value's high byte: a factor of 2 ** 16, up or down


def sum_at_every_step(engine: Engine) -> None:
    """All weights after every step, in place of a share of the time."""
    assert engine._watch is not None
    scrubbers = [engine._watch.scrubber]
    if engine._watch._draft is not None:
        scrubbers.append(engine._watch._draft[0])
    for one in scrubbers:
        one.facts = replace(one.facts, share=1e9, loop_tokens=1)
        one.proved()


def sum_nothing(engine: Engine) -> None:
    """Between steps, that is."""
    assert engine._watch is not None
    scrubber = engine._watch.scrubber
    scrubber.facts = replace(scrubber.facts, share=1e-12, slice_bytes=64)
    scrubber.proved()


def flip(
    engine: Engine, board: int = 1, matrix: str = "layer.1.down", bit: int = LAST, byte: int = 3
) -> str:
    """A bit of board `board`'s share of a matrix. Returns what a message says of the place."""
    plan = next(one for one in engine.plan.boards if one.board == board)
    bank, offset = plan.matrices[matrix].address(0)
    flip_at(engine, board, bank, offset + byte, bit)
    name = engine.plan.board.bank_name(bank)
    return f"board {board} bank {name}: 1 byte of {matrix}"


def flip_at(engine: Engine, board: int, bank: int, offset: int, bit: int = LAST) -> None:
    """A bit of a byte."""
    (byte,) = engine.cluster.read(board, bank, offset, 1)
    engine.cluster.write(board, bank, offset, bytes([byte ^ bit]))


def flip_adapter(engine: Engine, name: str, board: int = 1) -> Range:
    """Bits of the values of an adapter on a board: all of a line. Returns the range that holds
    them."""
    longest = max(
        (one for one in engine._adapters.ranges()[name] if one.board == board),
        key=lambda one: one.bytes,
    )
    at = longest.offset + longest.bytes // 128 * 64
    line = engine.cluster.read(board, longest.bank, at, 64)
    engine.cluster.write(board, longest.bank, at, bytes(byte ^ 0x44 for byte in line))
    return longest
