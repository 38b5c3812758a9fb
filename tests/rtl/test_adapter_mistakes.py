"""The comparison with the NumPy model would notice these mistakes in the adapters' source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.adapter_rig import Adapter, Down, Factor, Slots, plain_up, same_down, same_up
from tests.rtl.test_adapter_products import blocks_of_a, fp16
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import build, first_then_long, mistaken

pytestmark = pytest.mark.rtl

MISTAKES = {
    "a rank's product is not kept to the factor's ranks or columns": (
        "adapter/factor_sums.sv", "use_product && held", "use_product"),
    "scale*u is cut off, not rounded": (
        "fp/float_multiply.sv", "logic up = kept_3[2] && (kept_3[3] || kept_3[1:0] != 2'd0)",
        "logic up = 1'b0"),
    "segments of B are cut by the ranks that it holds": (
        "adapter/adapter.sv", "command.down ? command.k : factor.rank)",
        "command.down ? command.k : factor.rank_count)"),
    "a chunk goes to the next bank": (
        "adapter/slot_reader.sv", "bank: slots.bank_first + rest", "bank: slots.bank_first"),
    "a row without adapter is changed": (
        "adapter/adapter.sv", "else if (row_adapter[31]) state <= NEXT_ROW;",
        "else if (row_adapter[31] && command.down) state <= NEXT_ROW;"),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    path, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    units = build(tmp_path / "build", sources, unit="adapter fp16")
    factor = Factor(normal(4, 40, 60), rank_first=30, rank=80, scale=0.3)  # scale*u is not exact
    b = Adapter(up=[factor], gap=20000)
    slots = Slots([b, plain_up(60, 40)], [0, 1, -1], columns=128)
    down = Down(normal(2, 1, 300), Slots([blocks_of_a(1, 300, (9, 20), normal)], [0]))
    assert not (same_up(units, fp16(40, 60, 3), slots) and same_down(units, down))


@pytest.mark.slow
def test_other_sizes(tmp_path: Path) -> None:
    """An array of eight columns and three rows, each with an adapter of its own."""
    units = build(tmp_path, unit="adapter fp16", rows=3)
    slots = Slots([plain_up(60, 40), plain_up(60, 9, seed=5)], [0, 1, -1, 0], columns=128)
    assert same_up(units, fp16(40, 60, 7), slots)
    assert same_up(units, fp16(300, 33, 3), Slots([plain_up(33, 300)], [0], columns=300))
