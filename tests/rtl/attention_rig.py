"""Runs attention on the NumPy model and on the simulated unit, over banks whose pages hold values
of one kind everywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lora_host import abi, rtl
from tests.rtl_rig import padded, units_runner
from tests.unit.kernel_rig import KV_BANKS, ONCHIP, TABLES, Result, Rig, Runner, numpy_runner

Q, Y, TABLE_LINE, SLOPE_LINE = 62, 1 << 20, 7, 1 << 14
SPILL_BANKS = (0, 2)  # first, count
SCRATCH = abi.MAX_SCRATCH
SEQUENCES = 3
PAGES = 40  # the first four hold scratch slots
KINDS = {"fp16": abi.KV_FP16, "int8": abi.KV_INT8, "int8_heads": abi.KV_INT8_HEADS}
Draw = Callable[[np.random.Generator, int], np.ndarray]


def finite(generator: np.random.Generator, count: int) -> np.ndarray:
    """FP16 values whose bytes are also usual INT8 values."""
    return generator.standard_normal(count).astype(np.float16)


def anything(generator: np.random.Generator, count: int) -> np.ndarray:
    """FP16 of any bits."""
    return generator.integers(0, 1 << 16, count, dtype=np.uint16).view(np.float16)


def cancelling(generator: np.random.Generator, count: int) -> np.ndarray:
    """Finite; two segments of K's columns, of heads of 256, sum to large values that cancel."""
    values = finite(generator, count)
    lines = values[: count // 32 * 32].reshape(-1, 32)
    lines[3::256], lines[131::256] = 4096, -4096  # of each block's lines the first and the 129th
    return values


def bits(value: float) -> int:
    return int(np.array(value, np.float32).view(np.uint32))


@dataclass
class Attention:
    """Rows of a tree behind `committed` positions of each sequence. `path`: from how many on, and
    below how many ancestors of a row are uncommitted."""

    kind: str
    head_dim: int
    committed: Sequence[int] = (70, 0, 33)
    rows: int = 4
    heads: tuple[int, int, int] = (3, 2, 2)  # of q, of K, of q by one of K
    path: tuple[int, int] = (0, 5)
    draw: Draw = finite
    seed: int = 0
    scale: float = 0.1
    fields: dict[str, Any] = field(default_factory=dict)
    selected: tuple[int, ...] | None = None
    spills: bool = False
    pages: Callable[[np.random.Generator, int], np.ndarray] | None = None
    bank_bytes: int = 2 << 20

    def products(self) -> int:
        """Of q*k and e*v, at least."""
        q_heads = self.heads[0]
        return sum(
            2 * self.committed[i % SEQUENCES] * q_heads * self.head_dim for i in range(self.rows)
        )

    def place_list(self, rig: Rig) -> None:
        header = rig.list
        header.kv_type = KINDS[self.kind]
        header.kv_bank_first, header.kv_bank_count = KV_BANKS
        header.kv_layers, header.kv_heads, header.head_dim = 2, self.heads[1], self.head_dim
        header.kv_line, header.table_bank, header.table_line = 3, TABLES, TABLE_LINE
        header.max_tiles = -(-max(self.committed) // 32) + 3
        header.max_scratch, header.page_count = SCRATCH, PAGES
        if self.spills:
            header.kv_spill_page, header.kv_spill_line = 9, 5
            header.kv_spill_bank_first, header.kv_spill_bank_count = SPILL_BANKS

    def place_step(self, rig: Rig, generator: np.random.Generator) -> None:
        """A random tree in random slots; row i belongs to sequence i modulo 3."""
        tiles = rig.list.max_tiles
        choose = self.pages or (lambda g, n: g.integers(4, PAGES, n))
        for sequence in range(SEQUENCES):
            rig.state.lengths[sequence] = self.committed[sequence]
            table = choose(generator, tiles).astype(np.uint16)
            rig.place(TABLES, TABLE_LINE * 64 + sequence * padded(2 * tiles), table)
        slots = generator.permutation(SCRATCH).tolist()
        rig.rows(self.rows if self.selected is None else max(self.selected) + 1, self.selected)
        for i in range(rig.state.row_count):
            above = [slots.pop() for _ in range(int(generator.integers(*self.path)))]
            own = slots.pop()
            for parent, slot in zip([-1, *above], [*above, own], strict=True):
                rig.state.slots[slot].parent = parent
            rig.state.rows[i].sequence, rig.state.rows[i].slot = i % SEQUENCES, own

    def run(self, runner: Runner) -> tuple[Rig, Result]:
        generator = np.random.default_rng(self.seed)
        rig = Rig(bank_bytes=self.bank_bytes, runner=runner)
        self.place_list(rig)
        self.place_step(rig, generator)
        first, count = KV_BANKS
        for bank in (*range(first, first + count), *range(SPILL_BANKS[1])):
            rig.place(bank, 0, self.draw(generator, self.bank_bytes // 2))
        q_heads, kv_heads, group = self.heads
        width = q_heads * self.head_dim
        stride = padded(2 * width) + 66
        rig.place_rows(
            ONCHIP, Q, stride, self.draw(generator, self.rows * width).reshape(self.rows, -1)
        )
        slopes = generator.standard_normal((q_heads, 2)).astype(np.float32)
        rig.place(TABLES, SLOPE_LINE * 64, slopes.view(np.uint32) & np.uint32(0xFFFF0000))
        return rig, rig.run(
            "attention", **{
                "head_dim": self.head_dim, "kv_layer": 1, "q_heads": q_heads, "q_first": 2 * group,
                "kv_heads": kv_heads, "kv_first": 2, "group": group, "q_offset": Q,
                "q_stride": stride, "y_offset": Y, "y_stride": stride, "scale": bits(self.scale),
                "v_scale": bits(0.013), "slope_bank": TABLES, "slope_line": SLOPE_LINE,
                "flags": 0 if self.selected is None else abi.FLAG_SELECTED, **self.fields,
            },
        )  # fmt: skip

    def same(self, units: Any) -> bool:
        """Whether both give the same status, the same counts and the same bytes in every bank."""
        before = rtl.simulated_work(units)
        (model, wanted), (unit, found) = self.run(numpy_runner), self.run(units_runner(units))
        after = rtl.simulated_work(units)
        assert after.attentions == before.attentions + 1 and after.attention == before.attention
        banks = all(np.array_equal(model.banks[b], unit.banks[b]) for b in model.banks)
        return banks and wanted == found and wanted.status == 0
