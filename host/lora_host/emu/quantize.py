"""The vector unit's INT8 operations: quantize with a static scale, a scale per head or one per row,
and permute a row's elements (docs/numbers.md, 6.1, 6.5, 6.7, 6.10)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall
from lora_host.numerics import F32, to_fp16

_INT8_MAX = np.float32(127)
INVERSE_127 = np.float32(float.fromhex("0x1.020408p-7"))
_ELEMENTS = {1: np.uint8, 2: np.uint16}


def quantize(call: UnitCall) -> None:
    """y = clamp(rint(x*inv), -127, 127). NaN gives 0 and is counted."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    _store(call, x.astype(np.float32) * call.fp32(c.scalar))


def quantize_heads(call: UnitCall) -> None:
    """Each head of `extra` columns with z = FP16(amax/127), which is stored. z = 0 gives 0."""
    c = call.command
    heads = c.columns // c.extra
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    values = x.astype(np.float32).reshape(call.row_count, heads, c.extra)
    scales = to_fp16(_max_magnitude(values) / _INT8_MAX)
    z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, heads, np.float16)
    z[...] = scales
    wide = scales.astype(np.float32)
    inverse = np.where(wide == 0, np.float32(0), np.float32(1) / wide)
    _store(call, (values * inverse[..., None]).reshape(x.shape))


def row_max(call: UnitCall) -> None:
    """z.maxima[first] = max of |x| over the columns, +0 without any."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    _row_scales(call)["maxima"][:, c.first] = _max_magnitude(x.astype(np.float32))


def quantize_row(call: UnitCall) -> None:
    """y by the largest of the row's `extra` maxima, one division; z.scale is what the matmul
    multiplies by."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    z = _row_scales(call)
    largest = z["maxima"][:, : c.extra].max(axis=1)
    z["scale"] = largest * INVERSE_127
    with np.errstate(divide="ignore"):
        inverse = np.where(largest == 0, np.float32(0), _INT8_MAX / largest)
    with np.errstate(invalid="ignore"):
        _store(call, x.astype(np.float32) * inverse[:, None])


def _row_scales(call: UnitCall) -> NDArray[np.void]:
    """struct lora_row_scale of each row."""
    c, kind = call.command, abi.dtype("row_scale")
    return call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, 1, kind)[:, 0]


def _max_magnitude(x: F32) -> F32:
    """Max |x| along the last axis, NaN left out."""
    sizes = np.where(np.isnan(x), np.float32(0), np.abs(x))
    found: F32 = sizes.max(axis=-1, initial=np.float32(0))
    return found


def permute(call: UnitCall) -> None:
    """y[i] = x[table[i]] for elements of `extra` bytes, 1 or 2. ValueError for other sizes."""
    c = call.command
    if c.extra not in _ELEMENTS:
        raise ValueError(f"elements of {c.extra} B, expected 1 or 2")
    kind = _ELEMENTS[c.extra]
    table = call.view(c.a_bank, c.a_line * LINE_BYTES, (c.columns,), np.uint32)
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, kind)
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, kind)
    y[...] = x[:, table]


def _store(call: UnitCall, scaled: F32) -> None:
    """Rounds half to even into INT8 rows y."""
    c = call.command
    bad = np.isnan(scaled)
    rounded: NDArray[np.float32] = np.clip(np.rint(scaled), -_INT8_MAX, _INT8_MAX)
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.int8)
    y[...] = np.where(bad, np.float32(0), rounded).astype(np.int8)
    if bad.any():
        call.count_nonfinite(bad)


OPERATIONS = {
    abi.VEC_QUANTIZE: quantize,
    abi.VEC_QUANTIZE_HEADS: quantize_heads,
    abi.VEC_PERMUTE: permute,
    abi.VEC_ROW_MAX: row_max,
    abi.VEC_QUANTIZE_ROW: quantize_row,
}
