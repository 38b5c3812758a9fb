"""JOIN_HEADS of the native and the NumPy kernels against a spelling of the rule, one column after
the other (docs/numbers.md, 3.21; struct lora_vector)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lora_host import abi
from tests.unit import kernel_rig
from tests.unit.kernel_rig import ONCHIP, Rig
from tests.unit.test_kernels_native import run_native

X, Y, Z, STRIDE = 64, 1 << 18, 1 << 19, 1 << 12
RUNNERS = {"native": run_native, "numpy": kernel_rig.numpy_runner}
ROWS = 5
Fields = dict[str, int]


def run(kernels: str, x: np.ndarray, z: np.ndarray, fields: Fields) -> tuple[int, Any]:
    """The status, and y [rows, columns]."""
    rig = Rig(runner=RUNNERS[kernels], bank_bytes=1 << 20)
    rig.rows(ROWS)
    rig.place_rows(ONCHIP, X, STRIDE, x)
    rig.place_rows(ONCHIP, Z, STRIDE, z)
    found = rig.run(
        "vector", op=abi.VEC_JOIN_HEADS, x_offset=X, x_stride=STRIDE, y_bank=ONCHIP, y_offset=Y,
        y_stride=STRIDE, z_offset=Z, z_stride=STRIDE, **fields,
    )  # fmt: skip
    if found.status:
        return found.status, None
    assert found.nonfinite_count == 0  # copies are counted where they were made
    return 0, rig.read_rows(ONCHIP, Y, STRIDE, (ROWS, fields["columns"]), np.uint16)


def by_rule(x: np.ndarray, z: np.ndarray, f: Fields) -> np.ndarray:
    y = np.zeros((len(x), f["columns"]), np.uint16)
    for head in range(f["columns"] // f["extra"]):
        for column in range(f["a_line"] + f["scalar"]):
            at = head * f["extra"] + column
            if column < f["a_line"]:
                y[:, at] = z[:, head % f["b_line"] * f["a_line"] + column]
            else:
                y[:, at] = x[:, head * f["first"] + column - f["a_line"]]
    return y


CASES = {
    "k": {"columns": 144, "extra": 12, "first": 8, "scalar": 8, "a_line": 4, "b_line": 2},
    "v": {"columns": 96, "extra": 24, "first": 16, "scalar": 16, "a_line": 0, "b_line": 0},
    "v as wide": {"columns": 96, "extra": 24, "first": 24, "scalar": 24, "a_line": 0, "b_line": 0},
    "y": {"columns": 60, "extra": 12, "first": 24, "scalar": 12, "a_line": 0, "b_line": 0},
    "all": {"columns": 70, "extra": 14, "first": 9, "scalar": 5, "a_line": 6, "b_line": 3},
    "none": {"columns": 0, "extra": 14, "first": 9, "scalar": 5, "a_line": 0, "b_line": 0},
}


@pytest.mark.parametrize("kernels", RUNNERS)
@pytest.mark.parametrize("name", CASES)
def test_the_rule(name: str, kernels: str) -> None:
    draw, fields = np.random.default_rng(7), CASES[name]
    x, z = (draw.integers(0, 1 << 16, (ROWS, 300)).astype(np.uint16) for _ in range(2))
    status, found = run(kernels, x, z, fields)
    assert status == 0 and np.array_equal(found, by_rule(x, z, fields))


WRONG = [
    {"extra": 0}, {"extra": 11}, {"scalar": 9}, {"first": 7}, {"a_line": 5}, {"b_line": 0},
    {"scalar": 0xFFFFFFFF}, {"a_line": 0xFFFFFFFF}, {"b_line": 1 << 25}, {"first": 1 << 25},
    {"first": 1 << 20}, {"x_offset": 1 << 20}, {"y_offset": 1 << 20}, {"z_offset": 1 << 20},
    {"x_offset": 65}, {"z_stride": 3},
]  # fmt: skip


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_native_kernels_refuse_what_firmware_should_have(fields: Fields) -> None:
    rig = Rig(runner=run_native, bank_bytes=1 << 20)
    rig.rows(ROWS)
    good = {"op": abi.VEC_JOIN_HEADS, "x_offset": X, "x_stride": STRIDE, "y_bank": ONCHIP,
            "y_offset": Y, "y_stride": STRIDE, "z_offset": Z, "z_stride": STRIDE,
            **CASES["k"]}  # fmt: skip
    assert rig.run("vector", **good).status == 0
    assert rig.run("vector", **{**good, **fields}).status != 0
