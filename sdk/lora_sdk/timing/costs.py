"""Cycles of one operator: the single definition behind designs, overlays, plans and exploration."""

from __future__ import annotations

import math

from lora_sdk.timing.machine import (
    LAYERNORM_PASSES,
    RMSNORM_PASSES,
    SOFTMAX_PASSES,
    Machine,
)

TILE_COLUMNS = 32  # the column tile of VI.C's 400 and 9208 cycles


def matrix_cycles(machine: Machine, rows: int, k: int, n: int) -> float:
    """MPU cycles of [rows, k] x [k, n]: as vectors (Figure 8), or as a matrix (Figure 3b).

    A vector tile of T_m cycles fills and drains the array once. As a matrix, rows are padded to the
    array and its fill is half hidden by the double buffer (a tile of 2 T_m), plus an overhead a
    column tile. The control unit takes the matrix scheme from half an array of rows on (prefill),
    below that the faster one."""
    if not rows or not k or not n:
        return 0.0
    ideal = k * n / machine.macs
    as_vectors = rows * ideal * (1 + machine.fill_cycles / machine.tile)
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
    """How often a product reads its weights: once for as many rows as the array has."""
    return rows if machine.row_by_row else math.ceil(rows / machine.rows)


def attention_macs(head_dim: int, heads: int, visible: int) -> float:
    """Multiply-accumulates of q.k and s.v over `visible` positions summed over rows."""
    return 2.0 * head_dim * heads * visible


def attention_cycles(machine: Machine, head_dim: int, heads: int, visible: int) -> float:
    """MPU cycles of q.k and s.v."""
    work = attention_macs(head_dim, heads, visible) / machine.macs
    return work * (1 + machine.fill_cycles / machine.tile)


def softmax_cycles(machine: Machine, rows: int, heads: int, visible: int) -> float:
    """VFU cycles of SoftMax: passes over every score, one latency a row."""
    if not heads:
        return 0.0
    return SOFTMAX_PASSES * heads * visible / machine.lanes + rows * machine.norm_cycles


def norm_passes(layer_norm: bool) -> int:
    """Passes over a row that a norm takes."""
    return LAYERNORM_PASSES if layer_norm else RMSNORM_PASSES


def norm_cycles(machine: Machine, rows: int, columns: int, layer_norm: bool) -> float:
    """VFU cycles of a norm over `columns` local columns; rows go one after another (IV.B)."""
    passes = norm_passes(layer_norm) * columns / machine.lanes
    return rows * (passes + machine.norm_cycles)


def vector_cycles(machine: Machine, rows: int, columns: int, passes: int = 1) -> float:
    """VFU cycles of an element-wise operation."""
    return rows * passes * columns / machine.lanes


def gather_cycles(
    machine: Machine, boards: int, columns: int, rows: int, element: int
) -> tuple[float, float]:
    """(cycles, bytes on the busiest port) of an all-gather as in Figure 9: n/2 hops, and what a
    board receives over its two full-duplex links (one where there are two boards). A stalled gather
    (DFX) passes each row round the ring, n - 1 hops one way."""
    if boards == 1:
        return 0.0, 0.0
    if machine.stalled:
        row = (boards - 1) / boards * columns * element
        hops = (boards - 1) * machine.hop_cycles * (rows if machine.row_by_row else 1)
        return hops + rows * row / machine.port_rate, rows * row
    links = 2 if boards > 2 else 1
    received = (boards - 1) / boards * columns * rows * element / links
    return boards / 2 * machine.hop_cycles + received / machine.port_rate, received


def exchange_cycles(machine: Machine, boards: int, rows: int, norm: float) -> float:
    """Exposed cycles of a norm's all-reduce: n - 1 hops, packed and pipelined over groups of rows
    (equation 3): `norm` cycles of local work hide all but the last group's."""
    if boards == 1:
        return 0.0
    transfer = (boards - 1) * machine.hop_cycles
    groups = math.ceil(rows / machine.row_group)
    return transfer + (groups - 1) * max(0.0, transfer - norm / groups)
