"""What a matmul makes an array of overlays/rtl do: how often, by name.

`pass`: over the weights, for as many rows as the array has; `again`: a line of weights before the
first product of a pass, but of the first one, which is fetched while the command is only told.
FP16: `cycle`, in which the array multiplies. INT8: `tile` of 32 columns, `line` of weights, `part`
of W4A8 (docs/numbers.md, 6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

from lora_host import abi
from lora_lab.timing.vector_counts import CHUNK, Counts, segments
from lora_sdk.compile.isa import Matrix

KINDS = {
    abi.WEIGHT_FP16: "fp16",
    abi.WEIGHT_W4A16: "w4a16",
    abi.WEIGHT_INT8: "w8a8",
    abi.WEIGHT_W4A8: "w4a8",
}
HALF = frozenset({"fp16", "w4a16"})  # on the FP16 array
PER_STRIPE = frozenset({"cycle", "tile", "line", "part"})  # of what one stripe of columns takes
STRIPES = 16  # until each takes as long as the one before
STRIPE = 32  # cycles of a stripe's tree and bias: four turns of eight
ROUND = 256  # of a turn of 32 columns of each of eight segments


@dataclass(frozen=True)
class Arrays:
    """`lanes` of the FP16 array's group, `rows` at once. A side of its stream buffer is filled in
    `fill` cycles and one for each line. `store`: from a write to the next one of the same line."""

    lanes: int
    rows: int
    fill: float
    store: float = 0.0


def matmul_kind(command: Matrix) -> str:
    """Its name in the data."""
    return KINDS[command.weight_type & abi.WEIGHT_TYPE_MASK]


def stripe_columns(arrays: Arrays, command: Matrix) -> int:
    """Columns whose results an array makes at once."""
    return arrays.lanes if matmul_kind(command) in HALF else CHUNK


def matmul_counts(arrays: Arrays, command: Matrix, rows: int) -> Counts:
    """Of a command on `rows` rows."""
    passes = ceil(rows / arrays.rows)
    kind = matmul_kind(command)
    of_pass = _half(arrays, command) if kind in HALF else _integer(kind, command)
    found = {"command": 1, "pass": passes, **{name: passes * n for name, n in of_pass.items()}}
    return {**found, "again": (passes - 1) * _ahead(kind, command)}


def _half(arrays: Arrays, command: Matrix) -> Counts:
    """A pass of the FP16 array: stripes of columns, each of which reads its tile."""
    each = _stripe_cycles(command.k, arrays.fill)
    return {"cycle": ceil(command.n / arrays.lanes) * each}


@cache
def _stripe_cycles(k: int, fill: float) -> float:
    """Cycles of one of many stripes, whose rounds of up to eight units are multiplied while the
    next one is read: into the other side of the buffer, as soon as that has been read."""
    units = ceil(k / CHUNK)
    rounds = _units_by_round(units)
    free, read, at, ends = [0.0, 0.0], 0.0, 0.0, []
    for number in range(STRIPES * len(rounds)):
        side, turn = number % 2, number % len(rounds)
        read = max(read, free[side]) + min(k, CHUNK * rounds[turn])
        free[side] = at = max(at, read + fill) + (8 * k if units == 1 else ROUND)
        if turn + 1 == len(rounds):
            at += STRIPE
            ends.append(at)
    return (ends[-1] - ends[STRIPES // 2 - 1]) / (STRIPES // 2)


def _units_by_round(units: int) -> list[int]:
    """Units of 32 columns: one of each segment a round, while it has any."""
    widths = [((s + 1) * units >> 3) - (s * units >> 3) for s in range(abi.SEGMENTS)]
    return [sum(width > turn for width in widths) for turn in range(max(widths))]


def _ahead(kind: str, command: Matrix) -> int:
    """Lines of weights before a pass's first product."""
    if kind in HALF:
        return min(command.k, CHUNK * len(segments(command.k)))
    return min(command.k // (2 if kind == "w8a8" else 4), abi.BLOCK_K)


def _integer(kind: str, command: Matrix) -> Counts:
    """A pass of the INT8 array: tiles of 32 columns, whose blocks come one after the other."""
    tiles, blocks = ceil(command.n / CHUNK), ceil(command.k / abi.BLOCK_K)
    if kind == "w8a8":
        rest = command.k - (blocks - 1) * abi.BLOCK_K
        lines = abi.BLOCK_K // 2 * (blocks - 1) + 2 * ceil(rest / 4)
        return {"tile": tiles, "line": tiles * lines}
    parts = _parts(command.k, 1 << (command.weight_type >> abi.WEIGHT_GROUP_SHIFT))
    return {"tile": tiles, "line": tiles * (command.k // 4 + blocks), "part": tiles * parts}


def _parts(k: int, group: int) -> int:
    """Parts of a column: what lies in one group and in one segment."""
    ends = {k, *range(group, k, group)}
    at = 0
    for width in segments(k):
        at += width
        ends.add(at)
    return len(ends)
