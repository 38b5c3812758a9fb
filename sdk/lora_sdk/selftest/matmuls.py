"""Cases of the matrix unit: matmuls and attention."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_sdk.compile.isa import Attention, Matrix, float_bits
from lora_sdk.model.weight_formats import INT8

from . import answers
from .bench import (
    COMMITTED,
    HEAD_DIM,
    KV_HEADS,
    PAGES,
    ROWS,
    TABLES,
    WEIGHTS,
    Bytes,
    Case,
    Site,
    StepCase,
    Test,
    begin,
    page_of,
)
from .kv import Cache
from .moves import SLOT, STRIDE, move_in, move_out, operand, result_offset

F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
K, N = 300, 70  # last unit of K and last tile of N are partial
MERGE, FIRST = 2, 1


def weight_blocks(site: Site, w: NDArray[np.generic]) -> tuple[Bytes, ...]:
    """A matrix [K, N], FP16 or INT8, in blocks of 128 x 32, interleaved over the case's banks."""
    deep, wide = -(-w.shape[0] // 128), -(-w.shape[1] // 32)
    padded = np.zeros((deep * 128, wide * 32), w.dtype)
    padded[: w.shape[0], : w.shape[1]] = w
    out = []
    for j in range(deep * wide):
        tile, at = j // deep * 32, j % deep * 128
        request = FIRST + j // MERGE
        line = request // len(site.banks) * MERGE + j % MERGE
        block = padded[at : at + 128, tile : tile + 32]
        if w.dtype == np.int8:  # four values along K are adjacent
            block = block.reshape(32, 4, 32).transpose(0, 2, 1)
        data = block.tobytes()
        bank = site.banks[request % len(site.banks)]
        out.append(Bytes(bank, WEIGHTS + line * len(data), data))
    return tuple(out)


def _matmul(site: Site, bias: bool) -> Case:
    x, w = site.half((ROWS, K), 1.0, 1), site.half((K, N), 0.1, 2)
    b = site.half((N,), 1.0, 3)
    exact = answers.matmul(x, w)
    y = (exact + b.astype(np.float32)).astype(np.float16) if bias else exact
    command = Matrix(
        what="matmul", bank_first=site.banks.start, bank_count=len(site.banks), merge=MERGE,
        weight_line=WEIGHTS // abi.LINE_BYTES, first=FIRST, x_bank=site.control,
        y_bank=site.control, k=K, n=N, x_offset=result_offset(0), x_stride=STRIDE,
        y_offset=result_offset(1), y_stride=STRIDE, y_type=abi.FP16 if bias else abi.FP32,
        bias_bank=site.banks.start if bias else abi.NO_BANK, bias_line=TABLES // abi.LINE_BYTES,
    )  # fmt: skip
    placed = (*weight_blocks(site, w), operand(site, 0, x))
    placed += (Bytes(site.banks.start, TABLES, b.tobytes()),)
    step = StepCase((operand(site, 1, y, "matmul"),), kv_ops=begin())
    return Case((command,), placed, (step,))


def _int8_matmul(site: Site, by_row: bool = False) -> Case:
    """Exact sums, one scale per column, one per row if `by_row`, then the bias."""
    x = site.random(1).integers(-127, 128, (ROWS, K), np.int8)
    w = site.random(2).integers(-127, 128, (K, N), np.int8)
    scale = site.random(3).uniform(1e-6, 1e-4, N).astype(np.float32)
    b = site.half((N,), 1.0, 4)
    sums = (x.astype(np.int64) @ w.astype(np.int64)).astype(np.float32)
    own = np.ones((ROWS, 1), np.float32)
    if by_row:  # in the line behind the columns, after the boards' maxima
        own = site.random(5).uniform(0.25, 4, (ROWS, 1)).astype(np.float32)
        behind = np.zeros(ROWS, abi.dtype("row_scale"))
        behind["scale"] = own[:, 0]
        rows = np.zeros((ROWS, -(-K // abi.LINE_BYTES) * abi.LINE_BYTES), np.int8)
        rows[:, :K] = x
        x = np.hstack([rows, behind.view(np.int8).reshape(ROWS, -1)])
    y = ((sums * scale) * own + b.astype(np.float32)).astype(np.float16)
    command = Matrix(
        what="matmul", bank_first=site.banks.start, bank_count=len(site.banks), merge=MERGE,
        weight_line=WEIGHTS // abi.LINE_BYTES, first=FIRST, x_bank=site.control,
        y_bank=site.control, k=K, n=N, x_offset=result_offset(0), x_stride=STRIDE,
        y_offset=result_offset(1), y_stride=STRIDE, weight_type=INT8.weight_type(None),
        bias_bank=site.banks.start, bias_line=TABLES // abi.LINE_BYTES,
        flags=abi.FLAG_ROW_SCALES if by_row else 0,
    )  # fmt: skip
    lines = scale.tobytes().ljust(-(-4 * N // abi.LINE_BYTES) * abi.LINE_BYTES, b"\0")
    table = Bytes(site.banks.start, TABLES, lines + b.tobytes())
    placed = (*weight_blocks(site, w), operand(site, 0, x), table)
    step = StepCase((operand(site, 1, y, "matmul"),), kv_ops=begin())
    return Case((command,), placed, (step,))


def _attention(
    site: Site,
    slopes: int = abi.SLOPE_NONE,
    window: int = 0,
    cap: float = 0,
    committed: int = COMMITTED,
) -> Case:
    """Every row attends to `committed` positions in two pages, its ancestors and itself; to the
    last `window` of these, if it is not 0. `slopes`: the kind of ALiBi. `cap`: of the scores."""
    heads, group, count = 2 * KV_HEADS, 2, committed + ROWS
    q = site.half((ROWS, heads, HEAD_DIM), 2.0, 1)
    k = site.half((count, KV_HEADS, HEAD_DIM), 1.0, 2)
    v = site.half((count, KV_HEADS, HEAD_DIM), 1.0, 3)
    cache = Cache(site, np.zeros((PAGES, KV_HEADS, 2, 32 * HEAD_DIM), np.int64))
    for position in range(count):
        own = position - committed  # scratch slot of a row
        page = 0 if own >= 0 else page_of(position // 32)
        lane = own if own >= 0 else position % 32
        first = position % 64  # what two pages hold
        if own < 0 and position != first:
            k[position], v[position] = k[first], v[first]
            continue
        cache.put(page, lane, k[position].reshape(-1), v[position].reshape(-1))
    scale = 0.125
    y = np.empty_like(q)
    for row in range(ROWS):
        for head in range(heads):
            end = committed + row + 1
            seen = range(max(0, end - window) if window else 0, end)
            kv, added = head // group, _bias(slopes, head, seen)
            one = q[row, head], k[:, kv], v[:, kv]
            y[row, head] = answers.attention(*one, seen, scale, added, cap)
    command = Attention(
        what="attention", head_dim=HEAD_DIM, kv_layer=0, q_heads=heads, q_first=0,
        kv_heads=KV_HEADS, kv_first=0, group=group, q_offset=0, q_stride=STRIDE, y_offset=SLOT,
        y_stride=STRIDE, scale=float_bits(scale), slope_kind=slopes, window=window,
        slope_bank=site.banks.start, slope_line=TABLES // abi.LINE_BYTES, cap=float_bits(cap),
    )  # fmt: skip
    table = np.array([(_SLOPES[head], _FACTOR) for head in range(heads)], np.float32)
    placed = (operand(site, 0, q), Bytes(site.banks.start, TABLES, table.tobytes()))
    width = 2 * heads * HEAD_DIM
    expected = (operand(site, 1, y, "attention"),)
    step = StepCase(expected, kv_ops=begin(committed), committed=committed)
    commands = (move_in(site, 0, width), command, move_out(site, 1, 1, width))
    return Case(commands, (*cache.blocks(), *placed), (step,))


_SLOPES = tuple(0.75**head for head in range(2 * KV_HEADS))
_FACTOR = 0.3


def _bias(kind: int, head: int, seen: range) -> F32 | None:
    """What ALiBi adds to the scores of the row at the end of `seen`."""
    slope = np.float32(_SLOPES[head])
    if kind == abi.SLOPE_DISTANCE:
        distance: F32 = slope * np.arange(1 - len(seen), 1).astype(np.float32)
        return distance
    if kind == abi.SLOPE_BF16_POSITION:
        position = answers.bfloat16(np.array(seen, np.float32))
        rounded: F32 = answers.bfloat16(slope * position) * np.float32(_FACTOR)
        return rounded
    return None


TESTS = (
    Test("MPU", "matmul, FP16 with bias", lambda site: _matmul(site, True)),
    Test("MPU", "matmul, FP32", lambda site: _matmul(site, False)),
    Test("MPU", "matmul, INT8", _int8_matmul, weights=INT8.overlay_weights),
    Test(
        "MPU",
        "matmul, INT8 with scales of rows",
        lambda site: _int8_matmul(site, by_row=True),
        weights=INT8.overlay_weights,
    ),
    Test("MPU", "attention", _attention),
    Test("MPU", "attention, ALiBi", lambda site: _attention(site, abi.SLOPE_DISTANCE)),
    Test("MPU", "attention, ALiBi in BF16", lambda site: _attention(site, abi.SLOPE_BF16_POSITION)),
    Test("MPU", "attention, window", lambda site: _attention(site, window=7)),
    Test("MPU", "attention, soft cap", lambda site: _attention(site, cap=0.7)),
    Test("MPU", "attention, two chunks", lambda site: _attention(site, committed=4101)),
)
