"""Builds and runs tests/rtl/slots: random commands and bad ones, each with the status that the
native kernels end it with."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lora_host import abi
from tests.rtl.bench_rig import counted, run
from tests.rtl_rig import ROOT
from tests.unit.kernel_rig import CONTROL, KV_BANKS, NO_BANK, ONCHIP, TABLES, Rig
from tests.unit.test_vector_operations import declared, native_runner

BANK_BYTES = 1 << 17
BLOCK = 0x4000  # the step block, in the control bank
UNRESERVED = 40
BIG = 0x7FFFFF00


@dataclass
class Cases:
    """Commands on one rig; `late`: what is wrong lies where only the memory port can see it."""

    seed: int
    rig: Rig = field(default_factory=lambda: Rig(bank_bytes=BANK_BYTES, runner=native_runner))
    made: list[bytes] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.rig.state.block_offset = BLOCK

    def draw_rows(self, selects: bool = True, most: int = 6) -> int:
        """Rows of the step; returns the command's flags."""
        one, rig = self.random, self.rig
        count = one.randint(1, most)
        chosen = sorted(one.sample(range(count), one.randint(1, count)))
        rig.rows(count, chosen)
        for i in range(count):
            row = rig.state.rows[i]
            row.token, row.position = one.randrange(20), one.randrange(20)
            row.flags = one.choice((0, 0, abi.ROW_WANT_LOGITS, abi.ROW_VECTOR))
            if row.flags & abi.ROW_VECTOR:
                row.token = 2 * one.randrange(1000)
        return abi.FLAG_SELECTED if selects and one.random() < 0.5 else 0

    def last_row(self, fields: dict[str, Any], operand: str) -> int:
        """Where the first row would begin for the last one to begin at the end of its bank."""
        state = self.rig.state
        selects = fields["flags"] & abi.FLAG_SELECTED
        rows = state.selected_count if selects else state.row_count
        begin: int = BANK_BYTES - fields[f"{operand}_stride"] * (rows - 1)
        return begin

    def add(self, kind: str, late: bool, fields: dict[str, Any]) -> int:
        """The kernel's status; the case is kept with it."""
        ffi, rig = self.rig.ffi, self.rig
        status: int = rig.run(kind, **fields).status
        command = ffi.new(f"struct lora_{kind} *", fields)
        late = late and status == abi.ERR_ADDRESS
        parts = [bytes(ffi.buffer(x)) for x in (command, rig.list, rig.state)]
        self.made.append(b"".join(parts) + struct.pack("<2I", status, late))
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status

    def run(self, bench: Path, path: Path, seed: int) -> dict[str, int]:
        """What was counted. The bench's message as an AssertionError where it differs."""
        head = struct.pack("<2I", BANK_BYTES, len(self.made))
        path.write_bytes(head + b"".join(self.made))
        return counted(run(bench, path, seed))


HEADS = ("ROPE", "QUANTIZE_HEADS", "RMS_HEADS")
ROW_HEADS = ("HEAD_SUMS", "RMS_ROW")
SUMS = ("LN_SUMS", "RMS_SUMS")
MAXIMA = ("ROW_MAX", "QUANTIZE_ROW")
# Operations that use them; others ignore the field.
USES_A = (
    "EMBED",
    "EMBED_SCALED",
    "LN_APPLY",
    "RMS_APPLY",
    "ROPE",
    "PERMUTE",
    "RMS_HEADS",
    "RMS_ROW",
)
USES_B = ("EMBED", "EMBED_SCALED", "ADD_POSITION", "LN_APPLY")
IN_Y = ("SCALE", "SOFTCAP", "ARGMAX")
# Fields whose other values the source does not know: heads of a width of their own, a factor of
# SwiGLU, squares.
NOT_IN_SOURCE: dict[str, dict[str, int]] = {
    "HEAD_SUMS": {"b_line": 0}, "RMS_ROW": {"b_line": 0}, "SWIGLU": {"scalar": 0},
    "RELU": {"extra": 32},
}  # fmt: skip


def vector_command(cases: Cases, name: str) -> dict[str, Any]:
    """A command that the kernels accept."""
    one, rig = cases.random, cases.rig
    head_dim = one.choice((2, 8, 16, 32, 64))
    rig.list.head_dim = head_dim
    heads = one.randint(1, 4)
    columns = head_dim * heads if name in (*HEADS, *ROW_HEADS) else one.choice((1, 7, 32, 100, 256))
    first, extra = 2 * one.randrange(8), one.choice((1, 32, 100, 300))
    if name in ("EMBED", "EMBED_SCALED", "ADD_POSITION"):
        extra = one.randrange(4)
    if name in HEADS:
        extra = head_dim
    if name in ROW_HEADS:
        before = one.randrange(3)
        first, extra = before * head_dim, (before + heads + one.randrange(3)) * head_dim
    if name in SUMS:  # REGISTER accepts whole segments alone
        first, extra = 0, columns
    if name in MAXIMA:
        extra = one.randint(1, 8)
        first = one.randrange(extra)
    if name == "PERMUTE":
        extra = one.choice((1, 2))
        rig.place(TABLES, 0x1000, np.arange(columns, dtype=np.uint32)[::-1])
    stride = 64 * one.randint(16, 20)
    fields = {
        "opcode": abi.CMD_VECTOR, "unit": abi.UNIT_VFU, "op": declared()[name],
        "flags": cases.draw_rows(), "columns": columns, "first": first, "extra": extra,
        "x_offset": 0x400 + 4 * one.randrange(8), "x_stride": stride,
        "y_offset": 0x8000 + 4 * one.randrange(8), "y_stride": stride,
        "z_offset": 0x10000 + 4 * one.randrange(8), "z_stride": stride,
        "y_bank": one.choice((ONCHIP, CONTROL)), "a_bank": TABLES, "b_bank": TABLES,
        "a_line": 0x40, "b_line": 0x80, "scalar": one.choice((0x3F800000, 0x3DCCCCCD)),
    }  # fmt: skip
    if name in NOT_IN_SOURCE:
        fields |= NOT_IN_SOURCE[name]
    if name in ("LN_APPLY", "RMS_APPLY") and one.random() < 0.5:
        fields["a_bank"] = NO_BANK
    if name in USES_B and one.random() < 0.5 and name != "ADD_POSITION":
        fields["b_bank"] = NO_BANK
    if name in ("RMS_APPLY", "RMS_HEADS", "RMS_ROW") and one.random() < 0.5:
        fields["flags"] |= abi.FLAG_ONE_PLUS
    if one.random() < 0.05 and name not in SUMS:
        fields["columns"] = 0
    return fields


def spoil(cases: Cases, name: str, fields: dict[str, Any]) -> bool:
    """Makes one field wrong; whether only the memory port can see it."""
    one, onchip_y = cases.random, fields["y_bank"] == ONCHIP
    rows, late = ["x", "y", "z"], False
    kind = one.choice(("columns", "op", "extra", "extra", "first", "end", "near", "near",
                       "near", "place", "bank", "bank", "table", "table", "vector",
                       "head_dim"))  # fmt: skip
    if name in SUMS and kind in ("columns", "extra", "first"):
        fields["extra"], kind = 0, "none"
    if kind == "columns":
        fields["columns"] = one.choice(((1 << 24) + 1, 1 << 31, fields["columns"] + 1))
        if name == "PERMUTE":  # else its table is short
            fields["columns"] |= 1 << 25
        late = not onchip_y
    elif kind == "op":
        fields["op"] = one.choice((0, max(declared().values()) + 1, 255))
    elif kind == "extra":
        fields["extra"] = one.choice((0, 3, 9, fields["extra"] + 1, 1 << 25))
        late = True  # a table's row; heads of another length
    elif kind == "first":
        fields["first"] = one.choice((1, 3, 8, 100, BIG, fields["extra"]))
        late = True  # a vector's columns
    elif kind == "end":
        one_of = one.choice(rows)
        fields[f"{one_of}_{one.choice(('offset', 'stride'))}"] = BIG
        late = not onchip_y and (one_of == "y" or name == "ARGMAX")
    elif kind == "near":  # about where the last row fits
        one_of = one.choice(rows)
        bytes_ = one.choice(
            (8, 32, 64, fields["columns"], 2 * fields["columns"], 4 * fields["columns"])
        )
        begin = cases.last_row(fields, one_of) - bytes_ + 4 * one.randint(-2, 2)
        fields[f"{one_of}_offset"] = begin // 4 * 4
        late = not onchip_y and (one_of == "y" or name == "ARGMAX")
    elif kind == "place":
        fields[f"{one.choice(rows)}_{one.choice(('offset', 'stride'))}"] += one.choice((1, 2, 3))
    elif kind == "bank":
        fields["y_bank"] = one.choice((UNRESERVED, 64, NO_BANK))
        late = fields["y_bank"] == UNRESERVED
    elif kind == "table":
        which = "a" if name in ROW_HEADS else one.choice("ab")
        if one.random() < 0.5 and name != "EMBED" and name != "EMBED_SCALED":
            fields[f"{which}_bank"] = one.choice((UNRESERVED, 64, 200))
            late = fields[f"{which}_bank"] == UNRESERVED
        else:
            fields[f"{which}_line"] = BIG
            late = True
    elif kind == "vector":
        late = one.random() < 0.5  # else it does not begin at an element
        for i in range(cases.rig.state.row_count):
            row = cases.rig.state.rows[i]
            row.flags, row.token = abi.ROW_VECTOR, 0x1FFFFF00 if late else 101
    elif kind == "head_dim":
        cases.rig.list.head_dim = one.choice((0, 3, 48))
    return late


def in_hardware() -> dict[str, int]:
    """Of the declared operations those that the vector unit's source has."""
    text = (ROOT / "overlays/rtl/vfu/vector_operands.sv").read_text()
    return {name: n for name, n in declared().items() if f"LORA_VEC_{name})" in text}


def vector_cases(seed: int, count: int) -> Cases:
    """Of each operation as many, half of them spoiled."""
    cases = Cases(seed)
    names: Iterable[str] = sorted(in_hardware())
    for number in range(count):
        for name in names:
            fields = vector_command(cases, name)
            late = bool(number % 2 and fields["columns"] and spoil(cases, name, fields))
            cases.add("vector", late, fields)
    return cases


TABLE_LINE, SLOPE_LINE, TILES, PAGES = 0x20, 0x100, 4, 6


def path(cases: Cases, own: int, free: list[int]) -> None:
    """Slot `own` behind a random path of others."""
    one, slots = cases.random, cases.rig.state.slots
    above = [free.pop() for _ in range(one.choice((0, 0, 1, 3)))]
    for slot, parent in zip([*above, own], [-1, *above], strict=True):
        slots[slot].parent = parent


def attention_list(cases: Cases) -> None:
    """The list's header, and the page table."""
    one, rig = cases.random, cases.rig
    header, head_dim = rig.list, one.choice((2, 8, 16))
    header.kv_type = one.choice((abi.KV_FP16, abi.KV_INT8, abi.KV_INT8_HEADS))
    header.kv_bank_first, header.kv_bank_count, header.kv_line = *KV_BANKS, 1
    header.kv_layers, header.kv_heads, header.head_dim = 1, 2, head_dim
    header.table_bank, header.table_line, header.max_tiles = TABLES, TABLE_LINE, TILES
    rig.place(TABLES, TABLE_LINE * 64, np.full(3 * 32, 4, np.uint16))


def attention_rows(cases: Cases, lengths: Sequence[int] = (0, 1, 33, 128)) -> None:
    """Sequences and paths of the step's rows."""
    one, rig = cases.random, cases.rig
    free = one.sample(range(abi.MAX_SCRATCH), 40)
    for sequence in range(3):
        rig.state.lengths[sequence] = one.choice(lengths)
    for i in range(rig.state.row_count):
        row = rig.state.rows[i]
        row.sequence, row.slot = one.randrange(3), free.pop()
        path(cases, row.slot, free)


def attention_fields(cases: Cases, flags: int) -> dict[str, Any]:
    """A command of that list and step."""
    one, head_dim = cases.random, cases.rig.list.head_dim
    group, kv_first = one.randint(1, 3), one.randrange(3)
    kv_heads = one.randint(1, 2)
    q_first = group * kv_first + one.randrange(group)
    q_heads = one.randint(1, group * (kv_first + kv_heads) - q_first)
    stride = 64 * one.randint(4, 6)
    return {
        "opcode": abi.CMD_ATTENTION, "unit": abi.UNIT_MPU, "flags": flags, "head_dim": head_dim,
        "kv_layer": 0, "q_heads": q_heads, "q_first": q_first, "kv_heads": kv_heads,
        "kv_first": kv_first, "group": group, "slope_kind": one.randrange(3),
        "slope_bank": TABLES, "slope_line": SLOPE_LINE, "q_offset": 0x400 + 2 * one.randrange(8),
        "q_stride": stride, "y_offset": 0x8000 + 2 * one.randrange(8), "y_stride": stride,
        "scale": 0x3DCCCCCD, "v_scale": 0x3C23D70A, "window": one.choice((0, 1, 40)),
        "cap": one.choice((0, 0x41200000)),
    }  # fmt: skip


def attention_command(cases: Cases) -> dict[str, Any]:
    """A command that the kernels accept."""
    attention_list(cases)
    flags = cases.draw_rows()
    attention_rows(cases)
    return attention_fields(cases, flags)


def spoil_path(cases: Cases, kind: str) -> None:
    """Of one of the step's rows."""
    one, state = cases.random, cases.rig.state
    row = state.rows[one.randrange(state.row_count)]
    if kind == "slot":
        row.slot = one.choice((-2, 128, 300))  # -1: a step has no such row
    elif kind == "parent":
        state.slots[row.slot].parent = one.choice((-2, 128, 300, row.slot))
    elif kind == "sequence":
        row.sequence = one.choice((64, 1 << 20, 1 << 31))
    else:  # 128 slots, and one more
        slots = one.sample(range(abi.MAX_SCRATCH), abi.MAX_SCRATCH)
        for slot, parent in zip(slots, [one.choice((-1, slots[-1])), *slots], strict=False):
            state.slots[slot].parent = parent
        row.slot = slots[-1]


def spoil_attention(cases: Cases, fields: dict[str, Any]) -> bool:
    """Makes one field wrong; whether only the memory port can see it."""
    one, header = cases.random, cases.rig.list
    kind = one.choice(("head_dim", "group", "kv_first", "kv_heads", "q_first", "q_heads", "near",
                       "near", "near", "place", "slope", "slope_table", "list", "slot", "slot",
                       "parent", "sequence", "long", "committed", "table"))  # fmt: skip
    if kind in ("head_dim", "group", "kv_first", "kv_heads", "q_first", "q_heads"):
        fields[kind] = one.choice((0, 1, fields[kind] + 1, 0x7FFF))
    elif kind == "near":
        which = one.choice("qy")
        width = fields["q_heads"] * fields["head_dim"]
        size = one.choice((width, 2 * width))
        fields[f"{which}_offset"] = cases.last_row(fields, which) - size + one.randint(-2, 2)
    elif kind == "place":
        fields[one.choice(("q_offset", "q_stride", "y_offset", "y_stride"))] += 1
    elif kind == "slope":
        fields["slope_kind"] = one.choice((4, 255))
    elif kind == "slope_table":
        bank = one.choice((UNRESERVED, 64, 255, TABLES))
        fields["slope_bank"], fields["slope_line"] = bank, BIG
        return bool(bank <= ONCHIP)
    elif kind == "list":
        header.kv_bank_count = one.choice((0, KV_BANKS[1]))
        header.max_tiles = 0x10001 if header.kv_bank_count else TILES
    elif kind == "committed":
        length = one.choice((TILES * 32 + 1, 1 << 20))
        for sequence in range(3):
            cases.rig.state.lengths[sequence] = length
    elif kind == "table":
        header.table_bank = UNRESERVED
        return True
    else:
        spoil_path(cases, kind)
    return False


def attention_cases(seed: int, count: int) -> Cases:
    """Every other one is spoiled."""
    cases = Cases(seed)
    for bank in range(KV_BANKS[0], sum(KV_BANKS)):
        cases.rig.banks[bank][:] = 0x3C
    cases.rig.place(TABLES, SLOPE_LINE * 64, np.ones(512, np.float32))
    for number in range(count):
        fields = attention_command(cases)
        late = bool(number % 2 and spoil_attention(cases, fields))
        cases.add("attention", late, fields)
    return cases
