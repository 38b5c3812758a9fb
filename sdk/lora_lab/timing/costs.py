"""Cycles of one operator: the single definition for designs, overlays, plans and exploration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lora_host import abi
from lora_lab.timing.machine import (
    CAP_PASSES,
    FUSED_PASSES,
    LAYERNORM_PASSES,
    RMSNORM_PASSES,
    SOFTMAX_PASSES,
    Machine,
)

if TYPE_CHECKING:
    from lora_sdk.model.kv_formats import KvFormat

TILE_COLUMNS = 32  # the column tile of VI.C's 400 and 9208 cycles


def matrix_cycles(machine: Machine, rows: int, k: int, n: int) -> float:
    """MPU cycles of [rows, k] x [k, n]: as GEMVs (Figure 8) or as a GEMM (Figure 3b).

    In a GEMV, a tile of T_m cycles fills and drains the array once. In a GEMM, rows are padded to
    the array, its fill is half hidden by the double buffer (a tile of 2 T_m), and each column tile
    adds an overhead. The control unit uses the GEMM from half an array of rows on (prefill), below
    that the faster one. With rows in flight the array fills below that once for all rows."""
    if not rows or not k or not n:
        return 0.0
    ideal = k * n / machine.macs
    few = machine.rows_in_flight and 2 * rows < machine.rows
    filled = machine.tile * (rows if few else 1)
    as_vectors = rows * ideal * (1 + machine.fill_cycles / filled)
    if machine.row_by_row:
        return as_vectors
    passes = matrix_passes(machine, rows)
    padded = passes * machine.rows if machine.pad_rows else rows
    overhead = machine.tile_cycles * passes * math.ceil(n / TILE_COLUMNS)
    as_matrix = padded * ideal * (1 + machine.fill_cycles / (2 * machine.tile)) + overhead
    if machine.pad_rows and 2 * rows >= machine.rows:
        return as_matrix
    return min(as_vectors, as_matrix)


def matrix_passes(machine: Machine, rows: int) -> int:
    """Number of times that a matmul reads its weights: once per array of rows."""
    return rows if machine.row_by_row else math.ceil(rows / machine.rows)


def attention_macs(head_dim: int, heads: int, visible: int) -> float:
    """Multiply-accumulates of q.k and s.v. `visible`: positions, summed over rows."""
    return 2.0 * head_dim * heads * visible


def attention_cycles(machine: Machine, head_dim: int, heads: int, visible: int) -> float:
    """MPU cycles of q.k and s.v."""
    work = attention_macs(head_dim, heads, visible) / machine.macs
    return work * (1 + machine.fill_cycles / machine.tile)


def softmax_cycles(
    machine: Machine, rows: int, heads: int, visible: int, slopes: bool = False, cap: bool = False
) -> float:
    """Cycles of SoftMax: passes over every score, one more where ALiBi adds a bias, two more
    where the scores are capped by tanh, and one latency per row. Without the outputs' quotients."""
    if not heads:
        return 0.0
    passes = (FUSED_PASSES if machine.fused_softmax else SOFTMAX_PASSES) + slopes + CAP_PASSES * cap
    return passes * heads * visible / machine.score_lanes + rows * machine.norm_cycles


def attention_parts(
    machine: Machine, head_dim: int, heads: int, rows: int, products: float, softmax: float
) -> tuple[float, float]:
    """(cycles of attention, its part in the VFU) of `products` and `softmax` cycles: one after the
    other, or with fused SoftMax head after head, the shorter one hidden but for the first head.
    That form divides the outputs, not the scores: one more pass over them."""
    if not machine.fused_softmax or not heads:
        return products + softmax, softmax
    softmax += rows * heads * head_dim / machine.lanes
    whole = max(products, softmax) + min(products, softmax) / heads
    return whole, min(whole, softmax)


def position_lines(kind: KvFormat, head_dim: int) -> int:
    """Lines of 64 bytes that one position of one head touches. K is stored as [head_dim][32], so
    every line of its block holds a part. V is contiguous. Scales per head add one line each. The
    DMA moves one line per cycle."""
    values = math.ceil(head_dim * kind.element_bytes / abi.LINE_BYTES)
    return kind.block_lines(head_dim) + values + (1 if kind.by_head else 0)


def norm_passes(layer_norm: bool) -> int:
    """Number of passes of a norm over a row."""
    return LAYERNORM_PASSES if layer_norm else RMSNORM_PASSES


def norm_cycles(machine: Machine, rows: int, columns: int, layer_norm: bool) -> float:
    """VFU cycles of a norm over `columns` local columns. Rows are sequential (IV.B)."""
    passes = norm_passes(layer_norm) * columns / machine.lanes
    return rows * (passes + machine.norm_cycles)


def vector_cycles(machine: Machine, rows: int, columns: int, passes: int = 1) -> float:
    """VFU cycles of an element-wise operation."""
    return rows * passes * columns / machine.lanes


def gather_cycles(
    machine: Machine, boards: int, columns: int, rows: int, element: int, path: bool = False
) -> tuple[float, float]:
    """(cycles, bytes on the busiest port) of an all-gather as in Figure 9: n/2 hops, and the bytes
    that a board receives over its two full-duplex links (one link for two boards). A stalled gather
    (DFX) passes each row around the ring, n - 1 hops in one direction. On a `path` a block takes up
    to n - 1 hops, and the port next to an end sends all that this end receives."""
    if boards == 1:
        return 0.0, 0.0
    if machine.stalled:
        row = (boards - 1) / boards * columns * element
        hops = (boards - 1) * machine.hop_cycles * (rows if machine.row_by_row else 1)
        return hops + rows * row / machine.port_rate, rows * row
    links = 2 if boards > 2 and not path else 1
    hops = boards - 1 if path else boards / 2
    received = (boards - 1) / boards * columns * rows * element / links
    return hops * machine.hop_cycles + received / machine.port_rate, received


def passing_cycles(machine: Machine, boards: int, columns: int, rows: int) -> tuple[float, float]:
    """(cycles, bytes on the busiest port) of FP16 rows from the `boards` boards of a stage to those
    of the next, all on one path: all rows leave by one port."""
    sent = columns * rows * 2.0
    return (2 * boards - 1) * machine.hop_cycles + sent / machine.port_rate, sent


def cross_passing_cycles(
    machine: Machine, boards: int, columns: int, rows: int
) -> tuple[float, float]:
    """The same where a cable joins each board to one of the next stage, whose boards then gather
    the rows in a ring of their own; the busiest port is one of the ring or the cable's."""
    share = math.ceil(columns / boards) * rows * 2.0
    cycles, sent = gather_cycles(machine, boards, columns, rows, 2)
    return machine.hop_cycles + share / machine.port_rate + cycles, max(share, sent)


def exchange_cycles(machine: Machine, boards: int, rows: int, norm: float) -> float:
    """Exposed cycles of a norm's all-reduce: n - 1 hops, packed and pipelined over groups of rows
    (equation 3). `norm` cycles of local work hide all groups except the last."""
    if boards == 1:
        return 0.0
    transfer = (boards - 1) * machine.hop_cycles
    groups = math.ceil(rows / machine.row_group)
    return transfer + (groups - 1) * max(0.0, transfer - norm / groups)
