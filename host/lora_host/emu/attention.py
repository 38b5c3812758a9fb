"""Attention over KV blocks in two passes: the max, then the sums by tile and chunk
(docs/numbers.md, 3.8)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.attention_int8 import attend_int8
from lora_host.emu.kv_pages import TILE, Visible, read_kv, visible_sets
from lora_host.emu.matrix import longest_segment
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall
from lora_host.numerics import F32, bf16, exp32, soft_cap, to_fp16
from lora_host.segments import segment_bounds, tree_sum

CHUNK: int = abi.CHUNK_POSITIONS
WORK_ELEMENTS = 1 << 19  # max gathered values in memory
NO_CAP = np.float32(0)


def attention(call: UnitCall) -> None:
    """Runs all rows and local query heads of the command."""
    c = call.command
    if call.row_count == 0:
        return
    width = c.q_heads * c.head_dim
    integer = call.list.kv_type == abi.KV_INT8
    kind = np.int8 if integer else np.float16
    q = call.rows_view(BANK_ONCHIP, c.q_offset, c.q_stride, width, kind)
    q = q.astype(np.float32).reshape(call.row_count, c.q_heads, c.head_dim)
    result = np.empty_like(q)
    # the KV head of each query head, both as local indices
    heads = (np.arange(c.q_heads) + c.q_first) // c.group - c.kv_first
    cap = call.fp32(c.cap)
    sinks = head_sinks(call)
    for visible in visible_sets(call):
        keys, values = read_kv(call, visible)
        keys, values = keys[heads], values[heads]
        bias = score_bias(call, visible)
        per_row = visible.entries.shape[1] * width
        batch = max(1, WORK_ELEMENTS // per_row)
        for i in range(0, len(visible.rows), batch):
            rows, entries = visible.rows[i : i + batch], visible.entries[i : i + batch]
            added = None if bias is None else bias[i : i + batch]
            if integer:
                scales = call.fp32(c.scale), call.fp32(c.v_scale)
                result[rows] = attend_int8(
                    q[rows], keys, values, entries, *scales, added, cap, sinks
                )
            else:
                scale = call.fp32(c.scale)
                result[rows] = attend(q[rows], keys, values, entries, scale, added, cap, sinks)
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, width, np.float16)
    call.store_fp16(y, result.reshape(y.shape))


def score_bias(call: UnitCall, visible: Visible) -> F32 | None:
    """What is added to the scores [rows, heads, positions] of the sequence's rows; None without
    slopes (docs/numbers.md, 3.13)."""
    c = call.command
    if c.slope_kind in (abi.SLOPE_NONE, abi.SLOPE_SINK):
        return None
    table: F32 = call.view(c.slope_bank, c.slope_line * LINE_BYTES, (c.q_heads, 2), np.float32)
    slope, factor = table[:, 0, None], table[:, 1, None]
    position = np.arange(visible.entries.shape[1])
    if c.slope_kind == abi.SLOPE_BF16_POSITION:
        one = bf16(slope * bf16(position.astype(np.float32))) * factor
        return np.broadcast_to(one, (len(visible.rows), *one.shape))
    if c.slope_kind != abi.SLOPE_DISTANCE:
        raise ValueError(f"slope kind {c.slope_kind}; expected 0 to 3")
    distance = position - (visible.seen[:, None] - 1)
    found: F32 = slope * distance[:, None, :].astype(np.float32)
    return found


def head_sinks(call: UnitCall) -> F32 | None:
    """One more logit of each local query head, FP32 [heads]; None without."""
    c = call.command
    if c.slope_kind != abi.SLOPE_SINK:
        return None
    table: F32 = call.view(c.slope_bank, c.slope_line * LINE_BYTES, (c.q_heads, 2), np.float32)
    found: F32 = table[:, 0].copy()
    return found


def attend(
    q: F32,
    keys: F32,
    values: F32,
    entries: NDArray[np.int64],
    scale: np.float32,
    bias: F32 | None = None,
    cap: np.float32 = NO_CAP,
    sinks: F32 | None = None,
) -> F32:
    """[rows, heads, head_dim] of one sequence's rows before rounding to FP16.

    `entries` [rows, positions]: index of K and V at each logical position. -1 is masked: it reads
    the last entry, which is zero, and its e is +0. The scores are capped where `cap` is not 0; then
    `bias` [rows, heads, positions] is added to them. `sinks` [heads] are logits without a position.
    """
    scores = score(q, keys) * scale
    if cap != NO_CAP:
        scores = soft_cap(scores, cap)
    hidden = (entries < 0)[:, None, :]
    entries = np.where(entries < 0, keys.shape[2] - 1, entries)
    index = np.broadcast_to(entries[:, None, :], (*scores.shape[:2], entries.shape[1]))
    ordered = np.take_along_axis(scores, index, axis=2)
    if bias is not None:
        ordered = ordered + bias
    np.copyto(ordered, np.float32(-np.inf), where=hidden)
    maxima = ordered.max(axis=2, keepdims=True)
    e = to_fp16(exp32(ordered - maxima)).astype(np.float32)
    return weigh(e, values, entries, None if sinks is None else sink_weights(sinks, maxima))


def sink_weights(sinks: F32, maxima: F32) -> F32:
    """What joins the sum of a row's e: [rows, heads], from the maxima [rows, heads, 1]."""
    found: F32 = exp32(sinks[None] - maxima[..., 0])
    return found


def score(q: F32, keys: F32) -> F32:
    """q.k of every row, head and entry by the segment rule: [rows, heads, entries]."""
    head_dim = q.shape[2]
    bounds = [(start, end) for start, end in segment_bounds(head_dim) if start < end]
    steps = longest_segment(head_dim)
    # [steps, segments, ...]; shorter segments are padded with +0
    packed_q = np.zeros((steps, len(bounds), *q.shape[:2]), np.float32)
    packed_k = np.zeros((steps, len(bounds), keys.shape[0], keys.shape[2]), np.float32)
    for s, (start, end) in enumerate(bounds):
        packed_q[: end - start, s] = q[:, :, start:end].transpose(2, 0, 1)
        packed_k[: end - start, s] = keys[:, start:end].transpose(1, 0, 2)
    total = np.zeros((len(bounds), *q.shape[:2], keys.shape[2]), np.float32)
    product = np.empty_like(total)
    for step_q, step_k in zip(packed_q, packed_k, strict=True):
        np.multiply(step_q[..., None], step_k[:, None], out=product)
        np.add(total, product, out=total)
    found = iter(total)
    parts = [next(found) if a < b else None for a, b in segment_bounds(head_dim)]
    return tree_sum(parts)


def weigh(e: F32, values: F32, entries: NDArray[np.int64], more: F32 | None = None) -> F32:
    """sum(e*v)/sum(e), chunk after chunk: e [rows, heads, positions] begins with position 0. `more`
    [rows, heads] joins the sum of e last."""
    parts = (
        chunk_sums(e[:, :, start : start + CHUNK], values, entries[:, start : start + CHUNK])
        for start in range(0, e.shape[2], CHUNK)
    )
    return add_chunks(parts, more)


def add_chunks(parts: Iterable[tuple[F32, F32]], more: F32 | None = None) -> F32:
    """sum(e*v)/(sum(e) + more) of the chunk_sums of all chunks in ascending order."""
    sum_e, sum_ev = np.float32(0), np.float32(0)
    for part_e, part_ev in parts:
        sum_e, sum_ev = sum_e + part_e, sum_ev + part_ev
    if more is not None:
        sum_e = sum_e + more.T
    result: F32 = (sum_ev / sum_e[..., None]).transpose(1, 0, 2)
    return result


def chunk_sums(e: F32, values: F32, entries: NDArray[np.int64]) -> tuple[F32, F32]:
    """(sum(e) [heads, rows], sum(e*v) [heads, rows, head_dim]) of whole tiles: sequential in a tile
    of 32 positions, then sequential over tiles."""
    rows, heads, positions = e.shape
    head_dim = values.shape[2]
    tiles = positions // TILE
    e = e.reshape(rows, heads, tiles, TILE)
    ordered = values[:, entries].reshape(heads, rows, tiles, TILE, head_dim)
    np.multiply(ordered, e.transpose(1, 0, 2, 3)[..., None], out=ordered)
    tile_e = np.zeros((rows, heads, tiles), np.float32)
    tile_ev = np.zeros((heads, rows, tiles, head_dim), np.float32)
    for lane in range(TILE):
        np.add(tile_e, e[..., lane], out=tile_e)
        np.add(tile_ev, ordered[:, :, :, lane], out=tile_ev)
    sum_e = np.zeros((heads, rows), np.float32)
    sum_ev = np.zeros((heads, rows, head_dim), np.float32)
    for tile in range(tiles):
        np.add(sum_e, tile_e[:, :, tile].T, out=sum_e)
        np.add(sum_ev, tile_ev[:, :, tile], out=sum_ev)
    return sum_e, sum_ev
