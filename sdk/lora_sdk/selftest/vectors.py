"""Cases of the vector unit, one per operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_sdk.compile.isa import Vector, float_bits
from lora_sdk.model.quantization import FP16
from lora_sdk.model.weight_formats import INT8

from . import answers
from .bench import (
    COMMITTED,
    HEAD_DIM,
    POSITIONS,
    ROWS,
    TABLES,
    VOCABULARY,
    Bytes,
    Case,
    Site,
    StepCase,
    Test,
    begin,
    token,
)
from .moves import SLOT, STRIDE, move_in, move_out, operand, result_offset

Array = NDArray[Any]
Results = tuple[tuple[int, int, Array, str], ...]
"""(operand on-chip, operand of the results, rows, what) of each."""
COLUMNS = 300
EPS = 1e-5
SECOND_TABLE = TABLES + 0x10000
_LINE = abi.LINE_BYTES


def _table(site: Site, offset: int, rows: Array) -> Bytes:
    """Rows, each padded to whole lines."""
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    data = np.zeros((len(rows), -(-raw.shape[1] // _LINE) * _LINE), np.uint8)
    data[:, : raw.shape[1]] = raw
    return Bytes(site.banks.start, offset, data.tobytes())


def _case(
    site: Site, op: int, inputs: tuple[Array, ...], result: Array, *tables: Bytes, **fields: int
) -> Case:
    """x and z are read from the results, y is written back. `inputs` are x, or x and z."""
    offsets = {f"{name}_offset": index * SLOT for index, name in enumerate(("x", "z", "y"))}
    strides = {f"{name}_stride": STRIDE for name in "xzy"}
    values = {"columns": COLUMNS, **offsets, **strides, **fields}
    command = Vector(what="operation", op=op, **values)
    widths = [rows.nbytes // ROWS for rows in inputs]
    moves = tuple(move_in(site, index, width) for index, width in enumerate(widths))
    source = values["y_offset"] // SLOT
    out = move_out(site, source, 3, result.nbytes // ROWS)
    placed = tuple(operand(site, index, rows) for index, rows in enumerate(inputs))
    step = StepCase((operand(site, 3, result),), kv_ops=begin())
    return Case((*moves, command, out), placed + tables, (step,))


def _bank(site: Site, name: str, offset: int) -> dict[str, int]:
    return {f"{name}_bank": site.banks.start, f"{name}_line": offset // _LINE}


def _embed(site: Site) -> Case:
    tokens, positions = (
        site.half((VOCABULARY, COLUMNS), 1.0, 1),
        site.half((POSITIONS + 2, COLUMNS), 1.0, 2),
    )
    rows = [token(row) for row in range(ROWS)]
    at = [COMMITTED + row + 2 for row in range(ROWS)]
    y = (tokens[rows].astype(np.float32) + positions[at].astype(np.float32)).astype(np.float16)
    tables = _table(site, TABLES, tokens), _table(site, SECOND_TABLE, positions)
    fields = {**_bank(site, "a", TABLES), **_bank(site, "b", SECOND_TABLE)}
    return _case(site, abi.VEC_EMBED, (), y, *tables, extra=2, **fields)


def _add_position(site: Site) -> Case:
    x, positions = site.half((ROWS, COLUMNS)), site.half((POSITIONS + 2, COLUMNS), 1.0, 2)
    at = [COMMITTED + row + 2 for row in range(ROWS)]
    y = (x.astype(np.float32) + positions[at].astype(np.float32)).astype(np.float16)
    table = _table(site, SECOND_TABLE, positions)
    fields = _bank(site, "b", SECOND_TABLE)
    return _case(site, abi.VEC_ADD_POSITION, (x,), y, table, extra=2, **fields)


def _sums(op: int, sums: Callable[[Array, int], Array]) -> Callable[[Site], Case]:
    def make(site: Site) -> Case:
        x = site.half((ROWS, COLUMNS), 3.0)
        z = sums(x, COLUMNS).reshape(ROWS, -1)
        fields = {"extra": COLUMNS, "z_offset": SLOT, "y_offset": SLOT}  # z is the output
        return _case(site, op, (x,), z, **fields)

    return make


def _layer_norm(site: Site) -> Case:
    x, gamma, beta = (site.half((n, COLUMNS), 2.0, n) for n in (ROWS, 1, 2))
    beta = beta[:1]
    z = answers.moments(x, COLUMNS)
    y = answers.layer_norm(x, z, COLUMNS, gamma[0], beta[0], EPS)
    tables = _table(site, TABLES, gamma), _table(site, SECOND_TABLE, beta)
    fields = {**_bank(site, "a", TABLES), **_bank(site, "b", SECOND_TABLE)}
    return _case(
        site, abi.VEC_LN_APPLY, (x, z.reshape(ROWS, -1)), y, *tables, extra=COLUMNS,
        scalar=float_bits(EPS), **fields,
    )  # fmt: skip


def _rms_norm(site: Site) -> Case:
    x, gamma = site.half((ROWS, COLUMNS), 2.0, 1), site.half((1, COLUMNS), 1.0, 2)
    z = answers.squares(x, COLUMNS)
    y = answers.rms_norm(x, z, COLUMNS, gamma[0], EPS)
    table = _table(site, TABLES, gamma)
    return _case(
        site, abi.VEC_RMS_APPLY, (x, z), y, table, extra=COLUMNS, scalar=float_bits(EPS),
        **_bank(site, "a", TABLES),
    )  # fmt: skip


def _rms_one_plus(site: Site) -> Case:
    """By 1 + gamma, r with another numerator."""
    x, gamma = site.half((ROWS, COLUMNS), 2.0, 1), site.half((1, COLUMNS), 0.3, 2)
    z = answers.squares(x, COLUMNS)
    y = answers.rms_norm(x, z, COLUMNS, gamma[0], EPS, 2.0**-6)
    fields = {**_bank(site, "a", TABLES), "b_line": float_bits(2.0**-6)}
    return _case(
        site, abi.VEC_RMS_APPLY, (x, z), y, _table(site, TABLES, gamma), extra=COLUMNS,
        scalar=float_bits(EPS), flags=abi.FLAG_ONE_PLUS, **fields,
    )  # fmt: skip


def _rms_heads(site: Site) -> Case:
    x, gamma = site.half((ROWS, 3 * HEAD_DIM), 2.0, 1), site.half((1, HEAD_DIM), 1.0, 2)
    sums = answers.head_squares(x, HEAD_DIM)
    y = answers.norm_heads(x, sums, HEAD_DIM, np.tile(gamma[0], 3), EPS)
    return _case(
        site, abi.VEC_RMS_HEADS, (x,), y, _table(site, TABLES, gamma), columns=3 * HEAD_DIM,
        extra=HEAD_DIM, scalar=float_bits(EPS), **_bank(site, "a", TABLES),
    )  # fmt: skip


def _head_sums(site: Site) -> Case:
    x = site.half((ROWS, 3 * HEAD_DIM), 2.0)
    columns = 3 * HEAD_DIM
    return _case(
        site, abi.VEC_HEAD_SUMS, (x,), answers.head_squares(x, HEAD_DIM), columns=columns,
        extra=columns, z_offset=SLOT, y_offset=SLOT,
    )  # fmt: skip


def _rms_row(site: Site) -> Case:
    """Two of three heads. The third one's sum is another board's."""
    x, gamma = site.half((ROWS, 2 * HEAD_DIM), 2.0, 1), site.half((1, 2 * HEAD_DIM), 1.0, 2)
    other = site.half((ROWS, HEAD_DIM), 3.0, 3)
    z = answers.head_squares(np.concatenate([x, other], axis=1), HEAD_DIM)
    total = ((z[:, 0] + z[:, 1]) + z[:, 2])[:, None]
    y = answers.norm_heads(x, total, 3 * HEAD_DIM, gamma[0], EPS)
    return _case(
        site, abi.VEC_RMS_ROW, (x, z), y, _table(site, TABLES, gamma), columns=2 * HEAD_DIM,
        extra=3 * HEAD_DIM, scalar=float_bits(EPS), **_bank(site, "a", TABLES),
    )  # fmt: skip


def _embed_scaled(site: Site) -> Case:
    tokens, factor = site.half((VOCABULARY, COLUMNS), 1.0, 1), np.float32(7.3)
    rows = [token(row) for row in range(ROWS)]
    y = (tokens[rows].astype(np.float32) * factor).astype(np.float16)
    return _case(
        site, abi.VEC_EMBED_SCALED, (), y, _table(site, TABLES, tokens),
        scalar=float_bits(float(factor)), **_bank(site, "a", TABLES),
    )  # fmt: skip


def _residual_scaled(site: Site) -> Case:
    x, z = site.half((ROWS, COLUMNS), 5.0, 1), site.half((ROWS, COLUMNS), 5.0, 2)
    factor = np.float32(0.22)
    y = (x.astype(np.float32) + z.astype(np.float32) * factor).astype(np.float16)
    scalar = float_bits(float(factor))
    return _case(site, abi.VEC_RESIDUAL_SCALED, (x, z), y, scalar=scalar)


def _floats(site: Site, op: int, y: Array, x: Array, **fields: int) -> Case:
    """An operation on FP32 rows of the results, in place."""
    command = Vector(
        what="operation", op=op, columns=x.shape[1], y_bank=site.control,
        y_offset=result_offset(0), y_stride=STRIDE, **fields,
    )  # fmt: skip
    placed, expected = operand(site, 0, x), operand(site, 0, y)
    return Case((command,), (placed,), (StepCase((expected,), kv_ops=begin()),))


def _scale(site: Site) -> Case:
    x = site.random().standard_normal((ROWS, 50)).astype(np.float32)
    factor = np.float32(0.17)
    scalar = float_bits(float(factor))
    return _floats(site, abi.VEC_SCALE, x * factor, x, scalar=scalar)


def _softcap(site: Site) -> Case:
    x = site.random().standard_normal((ROWS, 50)).astype(np.float32)
    y = answers.soft_cap(x, 0.9)
    return _floats(site, abi.VEC_SOFTCAP, y, x, scalar=float_bits(0.9))


def _rope(site: Site) -> Case:
    x = site.half((ROWS, 3 * HEAD_DIM), 2.0)
    turns = site.random(1).uniform(-3, 3, (POSITIONS, HEAD_DIM // 2))
    angles = np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)
    y = answers.rope(x, angles[COMMITTED : COMMITTED + ROWS], HEAD_DIM)
    return _case(
        site, abi.VEC_ROPE, (x,), y, _table(site, TABLES, angles.reshape(POSITIONS, -1)),
        columns=3 * HEAD_DIM, extra=HEAD_DIM, y_offset=0, **_bank(site, "a", TABLES),
    )  # fmt: skip


def _residual(site: Site) -> Case:
    x, z = site.half((ROWS, COLUMNS), 5.0, 1), site.half((ROWS, COLUMNS), 5.0, 2)
    y = (x.astype(np.float32) + z.astype(np.float32)).astype(np.float16)
    return _case(site, abi.VEC_RESIDUAL, (x, z), y)


def _swiglu(site: Site) -> Case:
    x, z = site.half((ROWS, COLUMNS), 8.0, 1), site.half((ROWS, COLUMNS), 2.0, 2)
    return _case(site, abi.VEC_SWIGLU, (x, z), answers.swiglu(x, z))


def _geglu(site: Site) -> Case:
    x, z = site.half((ROWS, COLUMNS), 4.0, 1), site.half((ROWS, COLUMNS), 2.0, 2)
    return _case(site, abi.VEC_GEGLU, (x, z), answers.geglu(x, z))


def _activation(op: int, function: Callable[[Array], Array]) -> Callable[[Site], Case]:
    def make(site: Site) -> Case:
        x = site.half((ROWS, COLUMNS), 4.0)
        return _case(site, op, (x,), function(x))

    return make


def _quantize(site: Site) -> Case:
    """Round half to even, saturate at 127."""
    x = site.half((ROWS, COLUMNS), 40.0)
    x[:, 3:9] = np.array([0.25, 0.75, 1.25, -1.25, 200, -200], np.float16)
    inverse = np.float32(2)
    y = np.clip(np.rint(x.astype(np.float32) * inverse), -127, 127).astype(np.int8)
    return _case(site, abi.VEC_QUANTIZE, (x,), y, scalar=float_bits(float(inverse)))


def _argmax(site: Site) -> Case:
    """Ties: the lowest id. Ids count from `first`."""
    columns, first = 50, 20
    x = site.random().standard_normal((ROWS, columns)).astype(np.float32)
    x[:, 11] = x[:, 40] = 9.0
    y = np.zeros(ROWS, abi.dtype("argmax"))
    y["value"], y["token"] = 9.0, first + 11
    command = Vector(
        what="argmax", op=abi.VEC_ARGMAX, columns=columns, first=first, y_bank=site.control,
        x_offset=result_offset(0), x_stride=STRIDE, y_offset=result_offset(3), y_stride=STRIDE,
    )  # fmt: skip
    expected = operand(site, 3, y.view(np.uint8).reshape(ROWS, -1), "argmax")
    return Case((command,), (operand(site, 0, x),), (StepCase((expected,), kv_ops=begin()),))


def _quantize_heads(site: Site) -> Case:
    """Values and one scale per head. A head of zeros has scale 0."""
    heads = 3
    x = site.half((ROWS, heads * HEAD_DIM), 40.0)
    x[1, HEAD_DIM : 2 * HEAD_DIM] = 0
    y, scales = answers.quantize_heads(x, HEAD_DIM)
    command = Vector(
        what="operation", op=abi.VEC_QUANTIZE_HEADS, columns=heads * HEAD_DIM, extra=HEAD_DIM,
        x_offset=0, x_stride=STRIDE, z_offset=SLOT, z_stride=STRIDE, y_offset=2 * SLOT,
        y_stride=STRIDE,
    )  # fmt: skip
    results = ((1, 3, scales, "scales"), (2, 4, y, "values"))
    moves = tuple(move_out(site, at, to, rows.nbytes // ROWS) for at, to, rows, _ in results)
    expected = tuple(operand(site, to, rows, what) for _, to, rows, what in results)
    commands = (move_in(site, 0, x.nbytes // ROWS), command, *moves)
    return Case(commands, (operand(site, 0, x),), (StepCase(expected, kv_ops=begin()),))


def _row_max(site: Site) -> Case:
    """The largest magnitude, NaN left out; the other boards' stay."""
    x = site.half((ROWS, COLUMNS), 40.0)
    x[0, 5], x[1, 7] = np.nan, -500
    scales = site.random(1).uniform(0, 9, (ROWS, 16)).astype(np.float32)
    y = scales.copy()
    y[:, 2] = answers.largest(x)
    return _row_scaled(site, abi.VEC_ROW_MAX, x, scales, first=2, results=((1, 3, y, "maxima"),))


def _quantize_row(site: Site) -> Case:
    """By the largest of the boards' maxima. A row of zeros has scale 0."""
    x = site.half((ROWS, COLUMNS), 40.0)
    x[1] = 0
    scales = np.zeros((ROWS, 16), np.float32)
    scales[:, 1] = answers.largest(x)  # boards' shares; this one's first
    scales[0, 2] = 2 * scales[0, 1]
    y = scales.copy()
    values, y[:, abi.ROW_MAXIMA] = answers.quantize_rows(x, scales[:, :4].max(axis=1))
    results = ((1, 3, y, "scales"), (2, 4, values, "values"))
    return _row_scaled(site, abi.VEC_QUANTIZE_ROW, x, scales, first=0, results=results)


def _row_scaled(site: Site, op: int, x: Array, scales: Array, first: int, results: Results) -> Case:
    """An operation of four boards' rows with scales of their own (struct lora_row_scale)."""
    command = Vector(
        what="operation", op=op, columns=COLUMNS, extra=4, first=first, x_offset=0, x_stride=STRIDE,
        z_offset=SLOT, z_stride=STRIDE, y_offset=2 * SLOT, y_stride=STRIDE,
    )  # fmt: skip
    moves = tuple(move_out(site, at, to, rows.nbytes // ROWS) for at, to, rows, _ in results)
    expected = tuple(operand(site, to, rows, what) for _, to, rows, what in results)
    loads = tuple(move_in(site, i, rows.nbytes // ROWS) for i, rows in enumerate((x, scales)))
    placed = operand(site, 0, x), operand(site, 1, scales)
    return Case((*loads, command, *moves), placed, (StepCase(expected, kv_ops=begin()),))


def _permute(site: Site) -> Case:
    x = site.half((ROWS, COLUMNS))
    order = site.random(1).permutation(COLUMNS).astype(np.uint32)
    table = _table(site, TABLES, order[None])
    fields = {"extra": 2, **_bank(site, "a", TABLES)}
    return _case(site, abi.VEC_PERMUTE, (x,), x[:, order], table, **fields)


HALF = FP16.weights.overlay_weights
WEIGHTS_OF = dict.fromkeys(
    (abi.VEC_QUANTIZE, abi.VEC_ROW_MAX, abi.VEC_QUANTIZE_ROW), INT8.overlay_weights
)
"""Matmuls that require the operation: an overlay without them need not have it."""
OPERATIONS: dict[int, Test] = {
    op: Test("VFU", what, make, weights=WEIGHTS_OF.get(op, HALF))
    for op, what, make in (
        (abi.VEC_EMBED, "embedding", _embed),
        (abi.VEC_ADD_POSITION, "position", _add_position),
        (abi.VEC_LN_SUMS, "LayerNorm sums", _sums(abi.VEC_LN_SUMS, answers.moments)),
        (abi.VEC_RMS_SUMS, "RMSNorm sums", _sums(abi.VEC_RMS_SUMS, answers.squares)),
        (abi.VEC_LN_APPLY, "LayerNorm", _layer_norm),
        (abi.VEC_RMS_APPLY, "RMSNorm", _rms_norm),
        (abi.VEC_ROPE, "RoPE", _rope),
        (abi.VEC_RESIDUAL, "residual", _residual),
        (abi.VEC_RELU, "ReLU", _activation(abi.VEC_RELU, answers.relu)),
        (
            abi.VEC_GELU_TANH,
            "GELU, tanh",
            _activation(abi.VEC_GELU_TANH, lambda x: answers.gelu(x, "tanh")),
        ),
        (
            abi.VEC_GELU_ERF,
            "GELU, erf",
            _activation(abi.VEC_GELU_ERF, lambda x: answers.gelu(x, "erf")),
        ),
        (abi.VEC_SWIGLU, "SwiGLU", _swiglu),
        (abi.VEC_ARGMAX, "argmax", _argmax),
        (abi.VEC_QUANTIZE, "quantizing", _quantize),
        (abi.VEC_QUANTIZE_HEADS, "quantizing by head", _quantize_heads),
        (abi.VEC_PERMUTE, "permutation", _permute),
        (abi.VEC_RMS_HEADS, "RMSNorm of heads", _rms_heads),
        (abi.VEC_HEAD_SUMS, "sums of heads", _head_sums),
        (abi.VEC_RMS_ROW, "RMSNorm of all heads", _rms_row),
        (abi.VEC_EMBED_SCALED, "scaled embedding", _embed_scaled),
        (abi.VEC_RESIDUAL_SCALED, "scaled residual", _residual_scaled),
        (abi.VEC_SCALE, "scaled logits", _scale),
        (abi.VEC_SOFTCAP, "capped logits", _softcap),
        (abi.VEC_GEGLU, "GeGLU", _geglu),
        (abi.VEC_ROW_MAX, "max of a row", _row_max),
        (abi.VEC_QUANTIZE_ROW, "quantizing by row", _quantize_row),
    )
}
"""The test of each operation."""
UNTESTED = frozenset(
    {
        *(abi.VEC_ROUTE, abi.VEC_ROUTE_CHOSEN, abi.VEC_ROUTE_SIGMOID, abi.VEC_ADD_GATED),
        *(abi.VEC_GATE, abi.VEC_SWIGLU_CLAMPED, abi.VEC_JOIN_HEADS),
    }
)
"""Operations of mixtures of experts and of latent attention, which emulated boards alone have: no
card is asked."""
TESTS = (*OPERATIONS.values(), Test("VFU", "RMSNorm by 1 + gamma", _rms_one_plus, weights=HALF))
