"""What a matmul on channels of a card (overlays/rtl/channel) makes the busiest one do: how often,
by name. `pass`: over the weights, for as many rows as a channel takes at once. `cycle`: in which
it takes a line of weights, or adds a part of W4A8 to its columns' sums, whichever lasts longer,
and in which its last tile waits for the finisher that it shares, which takes two at once of a pass
of one row; scales and bias are there in time, lines as `channel_lines` are. `x_line` of x that a
pass begins with: all channels are given the rest while it runs."""

from __future__ import annotations

from math import ceil

from lora_host import abi
from lora_lab.timing.matmul_counts import HALF, eight_bit_tile, four_bit_tile, matmul_kind
from lora_lab.timing.vector_counts import CHUNK, Counts
from lora_sdk.compile.isa import Matrix

ROWS = 2  # CHANNEL_ROWS of integer_arrays.sv
LINES = 8192  # of a channel's buffer, LINES of the same
AHEAD = 3  # commands that the MPU is told beyond the one that runs, AHEAD of card.sv
FINISHERS = 8  # FINISHERS of channel_matmul.sv: neighbours share one
FINISH = 36  # cycles from tile to tile of a finisher


def on_channels(channels: int, command: Matrix) -> bool:
    """Whether a card of so many runs it there (by_columns of integer_arrays.sv)."""
    blocks = ceil(command.k / abi.BLOCK_K)
    placed = (command.bank_first, command.bank_count, command.merge) == (0, channels, blocks)
    return placed and not command.adapter and matmul_kind(command) not in HALF


def channel_kind(command: Matrix) -> str:
    """Its name in the data."""
    return f"{matmul_kind(command)}_channels"


def channel_counts(channels: int, command: Matrix, rows: int) -> Counts:
    """Of a command on `rows` rows, whose lines are there in time."""
    passes = ceil(rows / ROWS)
    in_all = ceil(command.n / CHUNK)
    each = ceil(in_all / channels) * _tile_cycles(command) - _ahead(command)
    shared = min(in_all, ceil(channels / FINISHERS))  # last tiles at a finisher
    alone = rows % ROWS  # passes of one row: two at once
    waits = alone * (ceil(shared / 2) - 1) + (passes - alone) * (shared - 1)
    return {
        "command": 1,
        "pass": passes,
        "cycle": passes * each + waits * FINISH,
        "x_line": rows * _first_lines(command),
    }


def _first_lines(command: Matrix) -> int:
    """Of a row of x, that a pass begins with (x_head_lines of channel_types.sv)."""
    lines = ceil(command.k / abi.LINE_BYTES)
    return min(lines, 2 + 2 * (lines // 16))


def channel_lines(channels: int, command: Matrix, rows: int) -> int:
    """Lines of weights that the busiest channel reads for a command on `rows` rows."""
    return ceil(rows / ROWS) * ceil(ceil(command.n / CHUNK) / channels) * _tile_lines(command)


def _tile_lines(command: Matrix) -> int:
    """Of a tile of 32 columns."""
    if matmul_kind(command) == "w8a8":
        return eight_bit_tile(command.k).lines
    return ceil(command.k / abi.BLOCK_K) * (abi.BLOCK_K // 4 + 1 + abi.BLOCK_K // _group(command))


def _tile_cycles(command: Matrix) -> int:
    """Of a tile of 32 columns, which are added one a cycle, empty segments too; the tree's steps go
    beside first parts."""
    if matmul_kind(command) == "w8a8":
        return _tile_lines(command)
    tile = four_bit_tile(command.k, _group(command))
    return max(tile.lines, (tile.parts + tile.empty) * CHUNK)


def _ahead(command: Matrix) -> int:
    """Of a pass of W4A8, before the first block is there: the first segment, where it is empty."""
    return CHUNK * (matmul_kind(command) != "w8a8" and command.k <= (abi.SEGMENTS - 1) * CHUNK)


def _group(command: Matrix) -> int:
    return 1 << (command.weight_type >> abi.WEIGHT_GROUP_SHIFT)
