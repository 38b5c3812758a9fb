"""Random commands of the MPU, of every kind, good and bad, in groups that share list, step and
memory: with the native kernels' statuses and bytes, as tests/rtl/slotted/bench_mpu.cpp reads
them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from tests.rtl.adapter_rig import LINE as _SLOTS_LINE
from tests.rtl.adapter_rig import MATRICES, MATRIX, Adapter, Factor, Slots
from tests.rtl.slots_rig import (
    BANK_BYTES,
    BIG,
    UNRESERVED,
    Cases,
    attention_fields,
    attention_list,
    attention_rows,
    spoil_attention,
)
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import FP16, FP32, padded
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, SELECTED, TABLES, WEIGHT_BANKS

BANKS = (0, 1, 2, 4, 5, 6, CONTROL, TABLES, ONCHIP)
MAX_K = 32767  # of the arrays
X, Y, H = 0, 0x8000, 0x10000 + 6
BIAS_LINE, SCALE_LINE, SLOTS_LINE = 0x200, 0x300, 0x400
COLUMNS = 40  # of h
WEIGHTS = {
    "fp16": abi.WEIGHT_FP16, "int8": abi.WEIGHT_INT8, "w4a8": abi.WEIGHT_W4A8,
    "w4a16": abi.WEIGHT_W4A16,
}  # fmt: skip
Command = tuple[str, dict[str, Any]]
assert SLOTS_LINE > _SLOTS_LINE


@dataclass
class Groups:
    """`write` puts one group after the other into a file."""

    seed: int
    rows: int = 1  # of the arrays
    channels: int = 0
    commands: int = 4  # of a group, at most
    statuses: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cases = Cases(self.seed)
        self.random, self.rig = self.cases.random, self.cases.rig
        self.generator = np.random.default_rng(self.seed)
        self.written: dict[int, bytes] = {}  # the banks that the bench has

    # --- memory ---------------------------------------------------------------------------------
    def _halves(self) -> NDArray[np.float16]:
        values = self.generator.standard_normal(BANK_BYTES // 2).astype(np.float16)
        if self.random.random() < 0.3:
            values[self.generator.integers(0, values.size, 300)] = np.inf
        return values

    def _fill(self, banks: tuple[int, ...]) -> None:
        for bank in banks:
            self.rig.place(bank, 0, self._halves())
        if TABLES in banks:
            scales = self.generator.standard_normal(2048).astype(np.float32)
            self.rig.place(TABLES, 64 * SCALE_LINE, scales)

    # --- list and step --------------------------------------------------------------------------
    def _slots(self, k: int, spoiled: bool) -> Slots:
        one = self.random
        adapters = []
        for number in range(2):
            ranks, gap = one.choice((1, 5, 8, 11)), one.choice((0, 0, 9000))
            run = {"h_first": one.randrange(4), "h_run": one.choice((3, 64)), "h_skip": 5}
            first = one.randrange(k)
            a = Factor(normal(number + 1, ranks, one.randint(1, k - first)), first=first, **run)
            begin = one.choice((0, 0, 5, 40))
            b = Factor(
                normal(number + 9, ranks, one.randint(1, 70)),
                first=begin,
                scale=one.choice((0.5, -3.0)),
                **run,
            )
            adapters.append(Adapter([a], [b] if one.random() < 0.8 else [b, b], gap))
        rows = [one.choice((-1, 0, 1)) for _ in range(4)]
        spoil = self._spoil_table if spoiled else None
        return Slots(adapters, rows, COLUMNS, spoil=spoil, line=SLOTS_LINE)

    def _spoil_table(self, image: NDArray[np.uint8]) -> None:
        """A rank beyond those that the unit has, of A or of B; or factors beyond the slot."""
        at = padded(64 + 8 * MATRICES)
        which = self.random.randrange(3)
        if which == 2:
            image[64 + 8 * MATRIX :][:4] = np.array([1 << 20], np.uint32).view(np.uint8)
            return
        factor = image[at + 64 * which :].view(abi.dtype("adapter_factor"))[:1]
        factor["rank"] = 2048

    def _place(self, slots: Slots) -> None:
        def place(name: str, call: Any) -> int:
            slots.place(call)
            return abi.OK

        kept, self.rig.runner = self.rig.runner, place
        self.rig.run("matrix")
        self.rig.runner = kept

    # --- commands -------------------------------------------------------------------------------
    def _rows(self, fields: dict[str, Any]) -> int:
        state = self.rig.state
        chosen = fields["flags"] & SELECTED
        return int(state.selected_count if chosen else state.row_count)

    def _matmul(self, flags: int, name: str, k_adapted: int) -> dict[str, Any]:
        one, integers = self.random, name in ("int8", "w4a8")
        adapted = one.random() < 0.3
        log = one.choice((5, 6, 7)) if name.startswith("w4") else 0
        k = one.choice((1, 7, 31, 64, 70, 129, 200))
        if log:
            k = one.choice((1, 2)) << log
        if adapted:
            k, log = k_adapted, 5 if log else 0
        n, y_type = one.choice((1, 7, 32, 33, 70)), one.choice((FP16, FP32))
        if integers:
            flags |= one.choice((0, abi.FLAG_NO_BIAS)) | one.choice((0, abi.FLAG_ROW_SCALES))
        x_bytes = padded(k) + 64 if integers else 2 * k
        columns = self.channels and integers and not adapted and one.random() < 0.8
        banks = one.choice((1, WEIGHT_BANKS[1]))
        placed = {
            "bank_first": 0, "bank_count": self.channels, "merge": -(-k // 128),
            "first": one.randrange(2 * self.channels),
        } if columns else {}  # fmt: skip
        return {
            "opcode": abi.CMD_MATRIX, "unit": abi.UNIT_MPU, "flags": flags,
            "weight_type": WEIGHTS[name] | log << abi.WEIGHT_GROUP_SHIFT,
            "bank_first": WEIGHT_BANKS[0], "bank_count": banks, "merge": one.randint(1, 3),
            "first": one.randrange(1 + banks),  # blocks do not leave their banks
            "weight_line": one.randrange(200),
            "k": k, "n": n, "x_bank": one.choice((ONCHIP, ONCHIP, CONTROL)),
            "x_offset": X + 64 * one.randrange(256),
            "x_stride": padded(x_bytes) + 64 * one.randrange(3),
            "y_bank": one.choice((ONCHIP, ONCHIP, CONTROL)), "y_type": y_type,
            "y_offset": Y + 64 * one.randrange(256),
            "y_stride": padded(2 * y_type * n) + 64 * one.randrange(3),
            "bias_line": (SCALE_LINE if integers else BIAS_LINE) + one.randrange(16),
            "bias_bank": TABLES if integers else one.choice((TABLES, NO_BANK)),
            "adapter": MATRIX + 1 if adapted else 0, "h_offset": H, "h_stride": 2 * COLUMNS + 10,
            **placed,
        }  # fmt: skip

    def _down(self, flags: int, k: int) -> dict[str, Any]:
        one = self.random
        return {
            "opcode": abi.CMD_ADAPTER, "unit": abi.UNIT_MPU, "flags": flags, "adapter": MATRIX,
            "k": k, "x_offset": X + 64 * one.randrange(256), "x_stride": padded(2 * k),
            "h_offset": H, "h_stride": 2 * COLUMNS + 10,
        }  # fmt: skip

    def _command(self, k: int) -> Command:
        one, names = self.random, (*WEIGHTS, "down", "attention")
        if self.channels:
            names += ("int8", "w4a8") * 3
        name, flags = one.choice(names), one.choice((0, SELECTED))
        if name == "down":
            return "adapter", self._down(flags, k)
        if name != "attention":
            return "matrix", self._matmul(flags, name, k)
        fields = attention_fields(self.cases, flags)
        fields["q_heads"] = min(2, fields["q_heads"])  # a head takes long
        return "attention", fields

    # --- what may be wrong ----------------------------------------------------------------------
    def _spoil(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "attention":
            spoil_attention(self.cases, fields)
            return
        one, operand = self.random, self.random.choice("xyyh" if kind == "matrix" else "xh")
        names = ["k", "end", "end", "near", "near", "place", "meet", "meet", "row", "number"]
        if kind == "matrix":
            names += ["n", "n", "type", "type", "scales", "banks", "banks", "bank", "bias", "line"]
        what = one.choice(names)
        if what == "k":
            fields["k"] = one.choice((0, fields["k"] + 1, 40000, 1 << 15, (1 << 24) + 1, 1 << 31))
        elif what == "n":
            fields["n"] = one.choice((0, 0, (1 << 24) + 1, 1 << 18, 1 << 31))
        elif what == "type":
            fields["weight_type"] = one.choice(
                (0, 2, 6, 0x51, 0x53, 4, 5, 0x44, 0x84, 0x85, 0xF4, 0x55)
            )
        elif what == "scales":
            fields["flags"] ^= abi.FLAG_ROW_SCALES
        elif what == "banks":
            which, value = one.choice(
                (
                    ("bank_count", 0),
                    ("merge", 0),
                    ("bank_first", UNRESERVED),
                    ("bank_first", 61),
                    ("bank_count", 255),
                )
            )
            fields[which] = value
        elif what == "bank":
            fields[one.choice(("x_bank", "y_bank"))] = one.choice((UNRESERVED, 64, NO_BANK))
        elif what == "bias":
            fields["bias_bank"] = one.choice((UNRESERVED, 64, NO_BANK))
        elif what == "line":
            fields[one.choice(("weight_line", "bias_line"))] = BIG
        elif what == "end":
            fields[f"{operand}_{one.choice(('offset', 'stride'))}"] = BIG // 64 * 64
        elif what == "near":
            begin = self.cases.last_row(fields, operand)
            size = one.choice((2 * COLUMNS, 2 * fields["k"], fields["k"], 2 * fields.get("n", 1)))
            at = begin - (size if operand == "h" else padded(size)) + one.choice((-64, 0, 64, 2))
            fields[f"{operand}_offset"] = at if operand == "h" else at // 64 * 64
        elif what == "place":
            fields[f"{operand}_{one.choice(('offset', 'stride'))}"] += one.choice((1, 2, 4, 32))
        elif what == "meet":
            self._meet(kind, fields)
        elif what == "row":  # there is no such slot
            for i in range(self.rig.state.row_count):
                self.rig.state.rows[i].adapter = one.choice((2, 1024, 1 << 30))
        else:
            fields["adapter"] = one.choice((MATRICES + 1, 0xFFFF))

    def _meet(self, kind: str, fields: dict[str, Any]) -> None:
        """Rows that are written lie about where others are read."""
        one = self.random
        if kind == "adapter":
            fields["h_offset"] = fields["x_offset"] + one.choice(
                (0, 2, 2 * fields["k"] - 2, 2 * fields["k"])
            )
            return
        if one.random() < 0.5:
            fields["y_bank"] = fields["x_bank"]
            fields["y_offset"] = fields["x_offset"] + 64 * one.choice((-1, 0, 1, 2, 8))
            fields["y_offset"] = max(fields["y_offset"], 0)
        else:
            fields["h_offset"] = fields["y_offset"] + one.choice((-2 * COLUMNS, 0, 6, 200))

    # --- what the unit does not do --------------------------------------------------------------
    def _ends(self, fields: dict[str, Any], operand: str, size: int) -> tuple[int, int]:
        begin = fields[f"{operand}_offset"]
        return begin, begin + fields[f"{operand}_stride"] * (self._rows(fields) - 1) + size

    def _meets(self, fields: dict[str, Any], first: str, other: str) -> bool:
        kind = fields.get("weight_type", abi.WEIGHT_FP16) & abi.WEIGHT_TYPE_MASK
        integers = kind in (abi.WEIGHT_INT8, abi.WEIGHT_W4A8)
        scaled = fields["flags"] & abi.FLAG_ROW_SCALES
        x = padded(fields["k"]) + 64 if scaled else fields["k"] * (1 if integers else 2)
        y = fields.get("n", 0) * (4 if fields.get("y_type") == FP32 else 2)
        sizes = {"x": x, "y": y, "h": 2 * COLUMNS}
        (a, a_end), (b, b_end) = (self._ends(fields, o, sizes[o]) for o in (first, other))
        return bool(a < b_end and b < a_end)

    def _status(self, kind: str, fields: dict[str, Any], native: int) -> int:
        """The unit's: docs/rtl.md, what its slot refuses besides."""
        if kind == "attention" or native not in (abi.OK, abi.ERR_ADDRESS):
            return native
        if fields["k"] > MAX_K:
            return abi.ERR_SIZE
        places = ["x_offset", "x_stride"]
        if kind == "adapter":
            wrong = self._meets(fields, "x", "h")
        else:
            places += ["y_offset", "y_stride"]
            wrong = fields["bank_first"] + fields["bank_count"] > abi.MAX_BANKS
            many = self._rows(fields) > self.rows or fields["flags"] & abi.FLAG_ROW_SCALES
            if many and fields["x_bank"] == fields["y_bank"]:
                wrong = wrong or self._meets(fields, "x", "y")
            if fields["adapter"] and fields["y_bank"] == ONCHIP:
                wrong = wrong or self._meets(fields, "y", "h")
        wrong = wrong or any(fields[place] % 64 for place in places)
        return abi.ERR_ADDRESS if wrong else native

    # --- groups ---------------------------------------------------------------------------------
    def _draw(self, number: int) -> list[Command]:
        one, cases = self.random, self.cases
        if number % 4 == 0:
            self._fill(BANKS if number % 16 == 0 else (CONTROL, ONCHIP))
        attention_list(cases)
        cases.draw_rows(most=3)
        attention_rows(cases, (0, 1, 33, 40))
        k, spoiled = one.choice((64, 96, 128)), number % 2 == 1
        tables = spoiled and one.random() < 0.15
        self._place(self._slots(k, tables))
        commands = [self._command(k) for _ in range(one.randint(1, self.commands))]
        if spoiled and not tables:
            self._spoil(*commands[-1])
        return commands

    def _banks(self) -> bytes:
        """Those that the bench does not have yet."""
        now = {bank: self.rig.banks[bank].tobytes() for bank in BANKS}
        new = [bank for bank in BANKS if now[bank] != self.written.get(bank)]
        self.written = now
        mask = sum(1 << BANKS.index(bank) for bank in new)
        return struct.pack("<I", mask) + b"".join(now[bank] for bank in new)

    def _group(self, number: int) -> bytes:
        commands, ffi = self._draw(number), self.rig.ffi
        before, parts = self._banks(), []
        head = [bytes(ffi.buffer(x)) for x in (self.rig.list, self.rig.state)]
        for kind, fields in commands:
            found = self.rig.run(kind, **fields)
            status = self._status(kind, fields, found.status)
            parts.append(bytes(ffi.buffer(ffi.new(f"struct lora_{kind} *", fields))))
            parts.append(struct.pack("<3I", status, found.nonfinite_count, found.nonfinite_row))
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status != abi.OK:
                break
        return b"".join([*head, struct.pack("<I", len(parts) // 2), *parts, before, self._banks()])

    def write(self, path: Path, count: int) -> None:
        with path.open("wb") as file:
            for number in range(count):
                file.write(self._group(number))
