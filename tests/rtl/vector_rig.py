"""Runs a command of the vector unit on the NumPy model and on the simulated unit."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi, rtl
from tests.rtl_rig import padded, units_runner
from tests.unit.kernel_rig import CONTROL, NO_BANK, ONCHIP, Result, Rig, Runner, numpy_runner

X, Y, Z = 64, 1 << 20, 1 << 21
BLOCK = 3 << 20  # the step block, in the control bank
IN_Y = (abi.VEC_SCALE, abi.VEC_SOFTCAP)  # FP32 in place


def bits(value: float) -> int:
    return int(np.array(value, np.float32).view(np.uint32))


def run(
    runner: Runner, op: int, x: np.ndarray, z: np.ndarray | None = None, places: Any = (),
    selected: tuple[int, ...] | None = None, head_dim: int = 0, vectors: bool = False,
    **fields: Any,
) -> tuple[Rig, Result]:  # fmt: skip
    """One command on rows x and z; FP32 rows lie in y's bank, from y on. `places`: (bank, offset,
    values). `vectors`: rows bring vectors, which lie in the control bank."""
    rig = Rig(bank_bytes=1 << 22, runner=runner)
    rig.list.head_dim = head_dim
    rig.state.block_offset = BLOCK
    rig.rows(len(x) if selected is None else max(selected) + 1, selected)
    for i in range(rig.state.row_count):
        rig.state.rows[i].token, rig.state.rows[i].position = (7 * i + 3) % 11, (5 * i + 1) % 11
        if vectors and i % 2 == 0:
            rig.state.rows[i].flags, rig.state.rows[i].token = abi.ROW_VECTOR, 4096 * i + 64
            rig.place(CONTROL, BLOCK + 4096 * i + 64, x[i % len(x)])
    stride = padded(4 * x.shape[1]) + 64
    single = x.dtype == np.float32
    at = fields.get("y_offset", Y) if op in IN_Y else fields.get("x_offset", Y if single else X)
    rig.place_rows(CONTROL if single else ONCHIP, at, stride, x)
    if z is not None:
        rig.place_rows(ONCHIP, fields.get("z_offset", Z), stride, z)
    for bank, offset, values in places:
        rig.place(bank, offset, values)
    return rig, rig.run(
        "vector", **{
            "op": op, "columns": x.shape[1], "x_offset": at, "x_stride": stride, "z_offset": Z,
            "z_stride": stride, "y_bank": CONTROL, "y_offset": Y, "y_stride": stride,
            "a_bank": NO_BANK, "b_bank": NO_BANK, **fields,
            "flags": fields.get("flags", 0) | (0 if selected is None else abi.FLAG_SELECTED),
        },
    )  # fmt: skip


def same(units: Any, op: int, *arguments: Any, **fields: Any) -> bool:
    before = rtl.simulated_work(units).vectors
    (model, wanted), (unit, found) = (
        run(runner, op, *arguments, **fields) for runner in (numpy_runner, units_runner(units))
    )
    assert rtl.simulated_work(units).vectors == before + 1
    return wanted == found and all(
        np.array_equal(model.banks[b], unit.banks[b]) for b in model.banks
    )
