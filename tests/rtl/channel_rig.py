# SPDX-License-Identifier: Apache-2.0
"""Matmuls in the layout of the channels, in groups that share memory, as
tests/rtl/channel/bench.cpp reads them: with the native kernels' statuses, counts and bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from tests.rtl_rig import FP16, FP32, padded
from tests.unit.kernel_rig import Rig
from tests.unit.test_kernels_native import run_native, values
from tests.unit.test_kernels_quantized import BLOCK_BYTES, random_bytes

Y_BANK, TABLES, ONCHIP = 40, 41, 63
DONE, FAILED, BAD_KIND, BAD_SIZE, BAD_K, BAD_BANKS, BAD_MERGE = range(7)  # channel_types.sv
ROW_SCALES = np.array([1, 0.37, -1e-40, np.inf, np.nan, 0, -0.0, 3e38], np.float32)
MAX_K = 32640


@dataclass
class Channels:
    """One matmul. `group` 0 is W8A8. `extreme`: the share of the largest integers and of zero,
    infinite, NaN and subnormal scales. `wrong`: fields that the unit has to refuse; `status`: what
    it says then."""

    k: int
    n: int
    rows: int = 1
    group: int = 128
    bias: bool = True
    row_scales: bool = False
    y_type: int = FP16
    first: int = 0
    extreme: float = 0.0
    seed: int = 1
    wrong: dict[str, int] = field(default_factory=dict)
    status: int = DONE


@dataclass
class Places:
    """Next free lines: of all weight banks, tables, rows of x and of y."""

    weights: int = 2
    tables: int = 3
    x: int = 1
    y: int = 0


class ChannelRig:
    """Puts groups of matmuls into a file."""

    def __init__(self, channels: int, path: Path, bank_bytes: int = 1 << 20) -> None:
        self.channels, self.file = channels, path.open("wb")
        self.rig = Rig(bank_bytes=64, runner=run_native)
        self.rig.banks.clear()
        for bank in (*range(channels), Y_BANK, TABLES, ONCHIP):
            self.rig.banks[bank] = np.zeros(bank_bytes, np.uint8)
        self.known: dict[int, NDArray[np.uint8]] = {}

    def lines(self, one: Channels) -> int:
        """Lines that the busiest bank gives for it."""
        tiles = -(-one.n // 32)
        return -(-tiles // self.channels) * self._tile_lines(one)

    @staticmethod
    def _tile_lines(one: Channels) -> int:
        return -(-one.k // 128) * BLOCK_BYTES[one.group] // 64

    def _place(self, one: Channels, places: Places) -> dict[str, Any]:
        rig, generator = self.rig, np.random.default_rng(one.seed)
        tiles, blocks = -(-one.n // 32), -(-one.k // 128)
        for tile in range(tiles):
            size = BLOCK_BYTES[one.group]
            data = generator.integers(0, 256, (blocks, size)).astype(np.uint8)
            if one.extreme:
                data[generator.random(data.shape) < one.extreme] = 0x80
            if one.group:
                each = 64 * 128 // one.group
                scales = values(one.seed + tile, (blocks, each // 2), one.extreme / 8, False)
                data[:, 2048 : 2048 + each] = scales.view(np.uint8)
            place = one.first + tile
            line = places.weights + place // self.channels * self._tile_lines(one)
            rig.place(place % self.channels, 64 * line, data)
        scales = (generator.random(one.n) * np.exp2(generator.integers(-18, 2, one.n))).astype(
            np.float32
        )
        if one.extreme:
            chosen = generator.random(one.n) < one.extreme
            special = np.array([np.inf, np.nan, 0, -1e-40, 3e38], np.float32)
            scales[chosen] = generator.choice(special, int(chosen.sum()))
        rig.place(TABLES, 64 * places.tables, scales)
        if one.bias:
            bias = values(one.seed + 9, (one.n,), one.extreme, False)
            rig.place(TABLES, 64 * places.tables + padded(4 * one.n), bias)
        x_stride = padded(one.k) + 64 * (1 + one.seed % 2)
        x = random_bytes(one.seed + 7, one.rows, one.k, extreme=one.extreme)
        rig.place_rows(ONCHIP, 64 * places.x, x_stride, x)
        chosen_scales = generator.choice(ROW_SCALES, (one.rows, 1))
        rig.place_rows(ONCHIP, 64 * places.x + padded(one.k) + 32, x_stride, chosen_scales)
        y_stride = padded(2 * one.y_type * one.n) + 64
        kind = abi.WEIGHT_W4A8 | one.group.bit_length() - 1 << 4 if one.group else abi.WEIGHT_INT8
        flags = (0 if one.bias else abi.FLAG_NO_BIAS) | (
            abi.FLAG_ROW_SCALES if one.row_scales else 0
        )
        fields = {
            "opcode": abi.CMD_MATRIX,
            "unit": abi.UNIT_MPU,
            "bank_first": 0,
            "bank_count": self.channels,
            "merge": blocks,
            "weight_type": kind,
            "weight_line": places.weights,
            "first": one.first,
            "k": one.k,
            "n": one.n,
            "x_bank": ONCHIP,
            "x_offset": 64 * places.x,
            "x_stride": x_stride,
            "y_bank": Y_BANK,
            "y_offset": 64 * places.y,
            "y_stride": y_stride,
            "y_type": one.y_type,
            "bias_line": places.tables,
            "bias_bank": TABLES,
            "flags": flags,
        }
        places.weights += (-(-(one.first + tiles) // self.channels)) * self._tile_lines(one)
        places.tables += padded(4 * one.n) // 64 + padded(2 * one.n) // 64
        places.x += one.rows * x_stride // 64
        places.y += one.rows * y_stride // 64
        return fields

    def write(self, group: list[Channels]) -> None:
        """A group: what runs in it, memory before and behind it."""
        ffi, places = self.rig.ffi, Places()
        commands = [(one, self._place(one, places)) for one in group]
        before = {bank: memory.copy() for bank, memory in self.rig.banks.items()}
        records = b""
        for one, fields in commands:
            self.rig.rows(one.rows)
            status, count, row = one.status, 0, -1
            if not one.wrong:
                found = self.rig.run("matrix", **fields)
                assert found.status == abi.OK
                count, row = found.nonfinite_count, found.nonfinite_row
            rows = one.wrong.get("rows", one.rows)
            command = ffi.new(
                "struct lora_matrix *", fields | {k: v for k, v in one.wrong.items() if k != "rows"}
            )
            records += bytes(ffi.buffer(command)) + struct.pack(
                "<IIII", status, count, row & 0xFFFFFFFF, rows
            )
        self.file.write(struct.pack("<I", len(group)) + records)
        self._changes(self.known, before)
        self._changes(before, self.rig.banks)
        self.known = {bank: memory.copy() for bank, memory in self.rig.banks.items()}

    def _changes(
        self, old: dict[int, NDArray[np.uint8]], new: dict[int, NDArray[np.uint8]]
    ) -> None:
        changed = [b for b in new if b not in old or not np.array_equal(old[b], new[b])]
        self.file.write(struct.pack("<I", len(changed)))
        for bank in changed:
            self.file.write(struct.pack("<II", bank, new[bank].size) + new[bank].tobytes())

    def close(self) -> None:
        self.file.close()


WRONG: list[tuple[dict[str, int], int]] = [
    ({"k": 0}, BAD_K),
    ({"k": MAX_K + 1}, BAD_K),
    ({"k": 65535}, BAD_K),
    ({"n": 0}, BAD_SIZE),
    ({"n": (1 << 24) + 1}, BAD_SIZE),
    ({"rows": 0}, BAD_SIZE),
    ({"rows": 65}, BAD_SIZE),
    ({"merge": 200}, BAD_MERGE),
    ({"bank_count": 1}, BAD_BANKS),
    ({"weight_type": abi.WEIGHT_FP16}, BAD_KIND),
    ({"weight_type": abi.WEIGHT_W4A8 | 8 << 4}, BAD_KIND),
]


def drawn(random: Random, channels: int, most: int) -> Channels:
    """A matmul of any kind that the unit knows."""
    group = random.choice((0, 32, 64, 128, 128))
    k = (
        random.choice((1, 7, 64, 130, 200, 300))
        if group == 0
        else group * random.randint(1, max(1, most // group))
    )
    columns = (
        1,
        31,
        32,
        33,
        32 * channels,
        32 * channels + 5,
        64 * channels - 1,
        96 * channels + 40,
    )
    return Channels(
        k=k,
        n=random.choice(columns),
        rows=random.choice((1, 1, 2, 3, 5)),
        group=group,
        bias=random.random() < 0.7,
        row_scales=random.random() < 0.4,
        y_type=random.choice((FP16, FP32)),
        first=random.choice((0, 1, channels - 1, channels, 3 * channels + 1)),
        extreme=random.choice((0.0, 0.0, 0.2)),
        seed=random.randrange(1 << 30),
    )


def random_groups(rig: ChannelRig, seed: int, count: int, most: int = 700) -> None:
    """Groups of one to four, some with a command that is refused."""
    random = Random(seed)
    for _ in range(count):
        group = [drawn(random, rig.channels, most) for _ in range(random.randint(1, 4))]
        if random.random() < 0.3:
            wrong, status = random.choice(WRONG)
            plain = Channels(k=128, n=32, group=128)
            group.insert(random.randint(0, len(group)), replace(plain, wrong=wrong, status=status))
        rig.write(group)
