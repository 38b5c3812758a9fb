"""RMSNorm of q and k: of each head by itself, or of all boards' heads by one sum a head
(docs/numbers.md, 3.12)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lora_host import abi
from lora_host.emu.norm import gamma_of, numerator
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall
from lora_host.numerics import F32
from lora_host.segments import segment_bounds, tree_sum


def _heads(call: UnitCall, head_dim: int) -> F32:
    """x as FP32 [rows, heads, head_dim]."""
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    return x.astype(np.float32).reshape(call.row_count, c.columns // head_dim, head_dim)


def _width(call: UnitCall) -> int:
    """Columns of a head of HEAD_SUMS and RMS_ROW."""
    c = call.command
    own = 0 if c.flags & abi.FLAG_ONE_PLUS else int(c.b_line)
    return own or int(call.list.head_dim)


def _squares(x: F32) -> F32:
    """The sum of squares of each head by the segment rule: [rows, heads]."""
    parts: list[F32 | None] = []
    for start, end in segment_bounds(x.shape[2]):
        total = np.zeros(x.shape[:2], np.float32)
        for column in range(start, end):
            total = total + x[..., column] * x[..., column]
        parts.append(total if start < end else None)
    return tree_sum(parts)


def _normed(call: UnitCall, x: F32, squares: F32, width: int, gamma: F32) -> None:
    """Stores FP16((x*r)*gamma), r = 1/sqrt(S/d + eps), in y."""
    c = call.command
    root = np.sqrt(squares / np.float32(width) + call.fp32(c.scalar))
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.float16)
    scaled = (x * (numerator(call) / root)[..., None]) * gamma_of(call, gamma)
    call.store_fp16(y, scaled.reshape(y.shape))


def _gamma(call: UnitCall, columns: int) -> F32:
    c = call.command
    stored = call.view(c.a_bank, c.a_line * LINE_BYTES, (columns,), np.float16)
    return stored.astype(np.float32)


def _rms_heads(call: UnitCall) -> None:
    """Each head of `extra` columns by its own sum and one gamma."""
    head_dim = call.command.extra
    x = _heads(call, head_dim)
    _normed(call, x, _squares(x), head_dim, _gamma(call, head_dim))


def _head_sums(call: UnitCall) -> None:
    """S of each local head, at its global number."""
    c, head_dim = call.command, _width(call)
    first, count = c.first // head_dim, c.columns // head_dim
    z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, c.extra // head_dim, np.float32)
    call.store_fp32(z[:, first : first + count], _squares(_heads(call, head_dim)))


def _rms_row(call: UnitCall) -> None:
    """The local heads by the sum of all boards' heads, which are added in order."""
    c, head_dim = call.command, _width(call)
    z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, c.extra // head_dim, np.float32)
    total = np.zeros(call.row_count, np.float32)
    for head in z.T:
        total = total + head
    gamma = _gamma(call, c.columns).reshape(-1, head_dim)
    _normed(call, _heads(call, head_dim), total[:, None], c.extra, gamma)


OPERATIONS: dict[int, Callable[[UnitCall], None]] = {
    abi.VEC_RMS_HEADS: _rms_heads,
    abi.VEC_HEAD_SUMS: _head_sums,
    abi.VEC_RMS_ROW: _rms_row,
}
