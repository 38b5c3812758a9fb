"""Commands that are begun and ended show these mistakes in a unit's announce, abort and reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.disturbed_rig import disturbed
from tests.rtl.test_fp16_matmul import normal
from tests.rtl_rig import Matmul, build, first_then_long, mistaken, same

pytestmark = pytest.mark.rtl

PORT, ARRAY = "port/unit_port.sv", "mpu/mpu_fp16.sv"
# file, right, wrong, what is said
MISTAKES = {
    "answers are not waited for": (
        PORT, "under_way == '0 && !abort_valid", "!abort_valid", "idle, but reads are under way"),
    "a write begins behind an abort": (
        PORT, "unit_write_valid && (runs || (state == HOLD && hold_write))", "unit_write_valid",
        "a write begins behind an abort"),
    "an announced command writes": (
        ARRAY, ".read_x(started && state == LOAD)", ".read_x(state == LOAD)",
        "a write, but the command is not started"),
}  # fmt: skip
MORE_MISTAKES = {
    "a read begins behind an abort": (
        PORT, "unit_read_valid && (runs || (state == HOLD && hold_read))", "unit_read_valid",
        "a read begins behind an abort"),
    "an offered write is withdrawn": (
        PORT, "(state == HOLD && hold_write)", "1'b0",
        "a write that was offered changes before it is taken"),
    "an offered read is withdrawn": (
        PORT, "(state == HOLD && hold_read)", "1'b0",
        "a read that was offered changes before it is taken"),
    "an abort does not end what was announced": (
        ARRAY, "    if (clear) begin\n      state <= IDLE;\n      started",
        "    if (rst || (clear && started)) begin\n      state <= IDLE;\n      started", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long({**MISTAKES, **MORE_MISTAKES}))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    path, right, wrong, said = (MISTAKES | MORE_MISTAKES)[name]
    sources = mistaken(tmp_path, path, right, wrong)
    units = build(tmp_path / "build", sources)
    cases = [Matmul(normal(k, 1, k), normal(2, k, 40), normal(3, 40)) for k in (70, 300)]
    assert all(same(case, units) for case in cases)  # without abort, announce and reset
    with disturbed(units, "fp16", 200) as counts:
        right_bytes = all([same(case, units) for case in cases])
    assert not right_bytes
    assert said in counts.error and counts.error
