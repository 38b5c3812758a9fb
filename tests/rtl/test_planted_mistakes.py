"""The comparison with the NumPy model would notice these mistakes in the hardware source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.rtl.test_fp16_matmul import any_bits, normal
from tests.rtl_rig import FP16, FP32, Matmul, build, first_then_long, mistaken, same

pytestmark = pytest.mark.rtl

MISTAKES = {
    "ties away from zero in the adder": (
        "fp/sum_add.sv",
        "up = sum[4] && (sum[5] || sum[3:0] != 4'd0)",
        "up = sum[4]",
    ),
    "no sticky bit": ("fp/sum_add.sv", "sum_4[0] <= sticky", "sum_4[0] <= 1'b0 && sticky"),
    "ties away from zero in FP16": (
        "fp/sum_to_float.sv",
        "(shifted[26] || shifted[24:0] != 25'd0)",
        "1'b1",
    ),
    "segments cut at another unit": (
        "mpu/mpu_types.sv",
        "* {4'd0, units}) >> 3)",
        "* {4'd0, units} + 15'd4) >> 3)",
    ),
    "another tree": (
        "mpu/fp16_schedule.sv",
        "control.join_hold = slot[1:0] == 2'd3",
        "control.join_hold = slot == 3'd5 || last_slot",
    ),
}


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    path, right, wrong = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    units = build(tmp_path / "build", sources)
    y_type = FP16 if "FP16" in name else FP32
    x, w = normal(1, 4, 300), normal(2, 300, 64)
    plain = same(Matmul(x, w, None, y_type), units)
    ties = same(Matmul(np.ones((1, 3), np.float16), any_bits(3, 3, 640), None, y_type), units)
    assert not (plain and ties)
