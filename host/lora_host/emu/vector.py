"""The vector unit's operations on rows of activations (docs/numbers.md, 3.2, 3.7, 3.9, 3.10, 3.11
and 3.14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lora_host import abi, numerics
from lora_host.emu import head_norm, mixture, norm, quantize
from lora_host.emu.gguf_blocks import token_column
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, NO_BANK, UnitCall, padded
from lora_host.numerics import F32

ROW_VECTOR = abi.ROW_VECTOR
NO_TOKEN = 0xFFFFFFFF


def vector(call: UnitCall) -> None:
    """Dispatches by operation. ValueError if it is unknown."""
    operation = OPERATIONS.get(call.command.op)
    if operation is None:
        raise ValueError(f"vector operation {call.command.op} is unknown")
    if call.row_count:
        operation(call)


def _x(call: UnitCall) -> F32:
    c = call.command
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    return x.astype(np.float32)


def _z(call: UnitCall) -> F32:
    c = call.command
    z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, c.columns, np.float16)
    return z.astype(np.float32)


def _store(call: UnitCall, values: F32) -> None:
    c = call.command
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.float16)
    call.store_fp16(y, values)


def _table_row(call: UnitCall, bank: int, line: int, row: int) -> Any:
    """A row of an FP16 table. Rows have the local columns, padded to whole lines."""
    columns = call.command.columns
    offset = line * LINE_BYTES + row * padded(2 * columns)
    return call.view(bank, offset, (columns,), np.float16)


def _positions(call: UnitCall) -> F32:
    """position[p + extra] of each row, FP32 [rows, columns]."""
    c = call.command
    rows = [_table_row(call, c.b_bank, c.b_line, r.position + c.extra) for r in call.rows()]
    return np.array(rows).astype(np.float32)


def _gate(call: UnitCall) -> None:
    """x*(1/(1 + exp(-z)))."""
    one = np.float32(1)
    _store(call, _x(call) * (one / (one + numerics.exp32(-_z(call)))))


def _embed(call: UnitCall) -> None:
    """FP16(token + position), or FP16(token) if the model has no position embedding."""
    c = call.command
    values = np.array([_token_row(call, row) for row in call.rows()]).astype(np.float32)
    if c.op == abi.VEC_EMBED_SCALED:
        values = values * call.fp32(c.scalar)
    _store(call, values if c.b_bank == NO_BANK else values + _positions(call))


def _token_row(call: UnitCall, row: Any) -> Any:
    c = call.command
    if not row.flags & ROW_VECTOR and c.flags & abi.FLAG_TOKEN_BLOCKS:
        return token_column(call, row.token)
    if not row.flags & ROW_VECTOR:
        return _table_row(call, c.a_bank, c.a_line, row.token)
    offset = call.state.block_offset + row.token + 2 * c.first
    return call.view(call.list.control_bank, offset, (c.columns,), np.float16)


def _add_position(call: UnitCall) -> None:
    _store(call, _x(call) + _positions(call))


def _rope(call: UnitCall) -> None:
    """In place, every head of the q and k columns: pairs are columns i and i + head_dim/2."""
    c = call.command
    head_dim, half = c.extra, c.extra // 2
    stored = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, c.columns, np.float16)
    x = stored.astype(np.float32).reshape(call.row_count, c.columns // head_dim, head_dim)
    stride = padded(4 * head_dim)
    table = np.array(
        [
            call.view(c.a_bank, c.a_line * LINE_BYTES + r.position * stride, (2, half), np.float32)
            for r in call.rows()
        ]
    )
    cos, sin = table[:, None, 0], table[:, None, 1]
    a, b = x[..., :half], x[..., half:]
    rotated = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    call.store_fp16(stored, rotated.reshape(stored.shape))


def _residual(call: UnitCall) -> None:
    _store(call, _x(call) + _z(call))


def _residual_scaled(call: UnitCall) -> None:
    _store(call, _x(call) + _z(call) * call.fp32(call.command.scalar))


def _scale(call: UnitCall) -> None:
    """In place, of an FP32 row."""
    c = call.command
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.float32)
    with numerics.quiet():
        call.store_fp32(y, y * call.fp32(c.scalar))


def _softcap(call: UnitCall) -> None:
    """In place, of an FP32 row."""
    c = call.command
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, c.columns, np.float32)
    call.store_fp32(y, numerics.soft_cap(y, call.fp32(c.scalar)))


def _relu(call: UnitCall) -> None:
    found = numerics.relu(_x(call))
    with numerics.quiet():
        _store(call, found * found if call.command.extra == 2 else found)


def _gelu_tanh(call: UnitCall) -> None:
    _store(call, numerics.gelu(_x(call), "tanh"))


def _gelu_erf(call: UnitCall) -> None:
    _store(call, numerics.gelu(_x(call), "erf"))


def _swiglu(call: UnitCall) -> None:
    factor = call.fp32(call.command.scalar)
    gate = _x(call) * factor if factor else _x(call)
    _store(call, numerics.silu(gate) * _z(call))


def _swiglu_clamped(call: UnitCall) -> None:
    c = call.command
    limit, alpha = call.fp32(c.scalar), call.fp32(c.extra)
    g, u = np.minimum(_x(call), limit), np.clip(_z(call), -limit, limit)
    with numerics.quiet():
        y = (g / (np.float32(1) + numerics.exp32(-(g * alpha)))) * (u + np.float32(1))
    _store(call, y)


def _geglu(call: UnitCall) -> None:
    _store(call, numerics.gelu(_x(call), "tanh") * _z(call))


def _join_heads(call: UnitCall) -> None:
    """Of each head: columns of z, which heads share in turn, its own of x, +0 (3.21)."""
    c = call.command
    heads, shared, own = c.columns // c.extra, c.a_line, c.scalar
    x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, heads * c.first, np.float16)
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.columns, np.float16)
    found = np.zeros((call.row_count, heads, c.extra), np.float16)
    if shared:
        z = call.rows_view(BANK_ONCHIP, c.z_offset, c.z_stride, shared * c.b_line, np.float16)
        turns = z.reshape(call.row_count, c.b_line, shared)
        found[..., :shared] = turns[:, np.arange(heads) % c.b_line]
    found[..., shared : shared + own] = x.reshape(call.row_count, heads, c.first)[..., :own]
    y[...] = found.reshape(y.shape)


def _argmax(call: UnitCall) -> None:
    """Max logit and its token, the lowest among equal logits; NaN if any logit is NaN."""
    c = call.command
    y = call.rows_view(c.y_bank, c.y_offset, c.y_stride, 2, np.uint32)
    if c.columns == 0:  # no vocabulary on this board: below every logit
        y[:, 0] = np.float32(-np.inf).view(np.uint32)
        y[:, 1] = NO_TOKEN
        return
    x = call.rows_view(c.y_bank, c.x_offset, c.x_stride, c.columns, np.float32)
    best = np.argmax(x, axis=1)  # the first max, or the first NaN
    call.store_fp32(y[:, 0].view(np.float32), np.take_along_axis(x, best[:, None], 1)[:, 0])
    y[:, 1] = best + c.first


OPERATIONS: dict[int, Callable[[UnitCall], None]] = {
    abi.VEC_EMBED: _embed,
    abi.VEC_ADD_POSITION: _add_position,
    abi.VEC_LN_SUMS: norm.ln_sums,
    abi.VEC_RMS_SUMS: norm.rms_sums,
    abi.VEC_LN_APPLY: norm.ln_apply,
    abi.VEC_RMS_APPLY: norm.rms_apply,
    abi.VEC_ROPE: _rope,
    abi.VEC_RESIDUAL: _residual,
    abi.VEC_RELU: _relu,
    abi.VEC_GELU_TANH: _gelu_tanh,
    abi.VEC_GELU_ERF: _gelu_erf,
    abi.VEC_SWIGLU: _swiglu,
    abi.VEC_ARGMAX: _argmax,
    **quantize.OPERATIONS,
    **head_norm.OPERATIONS,
    abi.VEC_EMBED_SCALED: _embed,
    abi.VEC_RESIDUAL_SCALED: _residual_scaled,
    abi.VEC_SCALE: _scale,
    abi.VEC_SOFTCAP: _softcap,
    abi.VEC_GEGLU: _geglu,
    abi.VEC_ROUTE: mixture.route,
    abi.VEC_ROUTE_CHOSEN: mixture.route,
    abi.VEC_ADD_GATED: mixture.add_gated,
    abi.VEC_ROUTE_SIGMOID: mixture.route_sigmoid,
    abi.VEC_GATE: _gate,
    abi.VEC_SWIGLU_CLAMPED: _swiglu_clamped,
    abi.VEC_JOIN_HEADS: _join_heads,
}
