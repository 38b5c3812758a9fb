"""Builds and runs tests/rtl/sequenced: matmuls that the sequencer announces, starts and aborts."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lora_host import abi
from tests.rtl.bench_rig import counted, run
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import FP16, FP32, LINE, padded
from tests.unit.kernel_rig import NO_BANK, NO_COUNTER, ONCHIP, TABLES, WEIGHT_BANKS, Rig

BANK_BYTES, ROWS = 1 << 20, 2


@dataclass
class Chain:
    """Matmuls of sizes [(k, n)], each with an x that a command of the vector unit brings. The rig
    ends as the NumPy model leaves it; `before` are the banks without any x or y."""

    sizes: list[tuple[int, int]]
    rig: Rig = field(default_factory=lambda: Rig(bank_bytes=BANK_BYTES))
    commands: list[Any] = field(default_factory=list)
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rig.rows(ROWS)
        lines, offset, placed = 1, 0, []
        for number, (k, n) in enumerate(self.sizes):
            w, bias = normal(2 * number, k, n), normal(2 * number + 1, n)
            self.rig.place_matrix(w, merge=2, first=0, line=lines)
            self.rig.place(TABLES, 4096 * number, bias)
            placed.append((lines, offset))
            lines += -(-k // 128) * -(-n // 32) * 128
            offset += ROWS * (padded(2 * k) + padded(4 * n))
        assert lines * LINE < BANK_BYTES and offset < BANK_BYTES
        self.before = {bank: memory.copy() for bank, memory in self.rig.banks.items()}
        for number, place in enumerate(placed):
            self._matmul(number, *place)
        self._command("command", opcode=abi.CMD_END, unit=abi.UNIT_CONTROL)

    def _command(self, kind: str, **fields: Any) -> None:
        command = self.rig.ffi.new(f"struct lora_{kind} *")
        for name, value in fields.items():
            setattr(command, name, value)
        if "wait_counter" not in fields:
            command.wait_counter = NO_COUNTER
        if "signal_counter" not in fields:
            command.signal_counter = NO_COUNTER
        self.commands.append(bytes(self.rig.ffi.buffer(command)))

    def _matmul(self, number: int, weight_line: int, offset: int) -> None:
        k, n = self.sizes[number]
        x, x_stride = normal(100 + number, ROWS, k), padded(2 * k)
        y_type = FP32 if number % 2 else FP16
        piece = np.zeros((ROWS, x_stride), np.uint8)
        piece[:, : 2 * k] = x.view(np.uint8)
        self.pieces.append((offset, piece.tobytes()))
        self.rig.place(ONCHIP, offset, piece)
        fields = {
            "bank_first": WEIGHT_BANKS[0], "bank_count": WEIGHT_BANKS[1], "merge": 2,
            "weight_type": abi.WEIGHT_FP16, "weight_line": weight_line, "x_bank": ONCHIP,
            "y_bank": ONCHIP, "k": k, "n": n, "x_offset": offset, "x_stride": x_stride,
            "y_offset": offset + ROWS * x_stride, "y_stride": padded(4 * n), "y_type": y_type,
            "bias_line": 64 * number, "bias_bank": TABLES if number % 3 else NO_BANK,
        }  # fmt: skip
        assert self.rig.run("matrix", **fields).status == abi.OK
        behind = {"wait_counter": 2 * number - 1, "wait_value": 1} if number else {}
        self._command("command", opcode=abi.CMD_VECTOR, unit=abi.UNIT_VFU,
                      signal_counter=2 * number, **behind)  # fmt: skip
        self._command("matrix", opcode=abi.CMD_MATRIX, unit=abi.UNIT_MPU, wait_value=1,
                      wait_counter=2 * number, signal_counter=2 * number + 1, **fields)  # fmt: skip

    def write(self, path: Path) -> None:
        """As bench.cpp reads it."""
        parts = [struct.pack("<4I", ROWS, 2 * len(self.sizes), BANK_BYTES, len(self.before))]
        for bank, memory in self.before.items():
            parts += [struct.pack("<I", bank), memory.tobytes()]
        parts += [struct.pack("<I", len(self.commands)), *self.commands]
        parts.append(struct.pack("<I", len(self.pieces)))
        for offset, piece in self.pieces:
            parts += [struct.pack("<2I", offset, len(piece)), piece]
        path.write_bytes(b"".join(parts))

    def run(self, bench: Path, path: Path, *arguments: int) -> tuple[bool, dict[str, int]]:
        """Whether all banks are the model's in the end, and what was counted. The bench's message
        as an AssertionError where it finds something wrong."""
        self.write(path)
        counts = counted(run(bench, path, *arguments))
        found = np.frombuffer(Path(f"{path}.banks").read_bytes(), np.uint8).reshape(-1, BANK_BYTES)
        wanted = [self.rig.banks[bank] for bank in sorted(self.before)]
        return all(map(np.array_equal, found, wanted)), counts
