"""What a matmul makes an array of overlays/rtl do: how often, by name.

`pass`: over the weights, for as many rows as the array has; `again`: a line of weights before the
first product of a pass, but of the first one, which is fetched while the command is only told.
`cycle`: in which the array multiplies or, of INT8, takes a line of weights or waits for one.
INT8: `tile` of 32 columns, `x_line` of x, which every pass reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
PER_STRIPE = frozenset({"cycle", "tile"})  # of what one stripe of columns takes
STRIPES = 16  # until each takes as long as the one before
STRIPE = 32  # cycles of a stripe's tree and bias: four turns of eight
ROUND = 256  # of a turn of 32 columns of each of eight segments
PASS = 8  # cycles of a pass over a tile's FP32 sums (w4_passes)
JOINS = abi.SEGMENTS - 1  # passes that join a tile's segments
LAST = 4 * PASS  # of the last part: its own pass and the joins of the tree


@dataclass(frozen=True)
class Arrays:
    """`lanes` of the FP16 array's group, `rows` at once. A side of its stream buffer is filled in
    `fill` cycles and one for each line. `store`: from a write to the next one of the same line.
    `tile`: of INT8 by kind, from the read of a tile's scales to its last result, besides its lines
    and passes; two tiles are under way. A block is used when all its lines are there."""

    lanes: int
    rows: int
    fill: float
    store: float = 0.0
    tile: Mapping[str, float] = field(default_factory=dict)


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
    of_pass = _half(arrays, command) if kind in HALF else _integer(arrays, kind, command)
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


def _integer(arrays: Arrays, kind: str, command: Matrix) -> Counts:
    """A pass of the INT8 array: tiles of 32 columns, whose blocks come one after the other."""
    group = 1 << (command.weight_type >> abi.WEIGHT_GROUP_SHIFT)
    each = eight_bit_tile(command.k) if kind == "w8a8" else four_bit_tile(command.k, group)
    waits = (each.chain + arrays.tile.get(kind, 0.0)) / 2
    tiles = ceil(command.n / CHUNK)
    cycle = tiles * max(each.lines, each.passes, waits)
    return {"tile": tiles, "cycle": cycle, "x_line": ceil(command.k / abi.LINE_BYTES)}


@dataclass(frozen=True)
class Tile:
    """Cycles of a tile of 32 columns: reads of the stream buffer, passes over FP32 sums, and both
    where the tile before is waited for. `parts` of W4A8 (docs/numbers.md, 6.3) and `empty`
    segments."""

    lines: int
    passes: int
    chain: int
    parts: int = 0
    empty: int = 0


def eight_bit_tile(k: int) -> Tile:
    """Of W8A8."""
    blocks = ceil(k / abi.BLOCK_K)
    rest = k - (blocks - 1) * abi.BLOCK_K
    lines = abi.BLOCK_K // 2 * (blocks - 1) + 2 * ceil(rest / 4)
    return Tile(lines, 0, lines + min(lines, abi.BLOCK_K // 2))


def four_bit_tile(k: int, group: int) -> Tile:
    """Each block has a line of zero points and one for 128 scales; a part that begins within a
    group reads its scales again."""
    ends = [sum(segments(k)[: i + 1]) for i in range(len(segments(k)))]
    parts = len({k, *range(group, k, group), *ends})
    blocks = ceil(k / abi.BLOCK_K)
    lines = k // 4 + blocks * (1 + abi.BLOCK_K // group) + parts - ceil(k / group)
    empty = abi.SEGMENTS - len(ends)
    passes = PASS * (parts + empty + JOINS)
    return Tile(lines, passes, max(lines + LAST, passes), parts, empty)
