"""The control bank: step block, page tables, command list, link test, results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_sdk.model import operations as ops
from lora_sdk.model.block_checks import MAX_NORM_GROUPS
from lora_sdk.plan.banks import Shelf
from lora_sdk.plan.partition import Share, shares_segments
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES, padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

PAGE = abi.CONTROL_PAGE
ARGMAX_BYTES = 8
LEAST_VOTES = 8  # room for so many boards' votes at least
REGIONS_BYTES = padded(  # the table of weight regions
    abi.dtype("scrub").itemsize + abi.MAX_REGIONS * abi.dtype("region").itemsize
)
RING_BYTES = abi.MAX_GENERATE * abi.dtype("token").itemsize


@dataclass(frozen=True)
class ControlLayout:
    """Byte offsets in the control bank. Results of selected row i: argmax record at
    `argmax_offset` + 8*i, after the firmware's records, so that one
    read brings both; FP32 logits at `logits_offset` + i*`logits_stride`; tap t of row i of the
    step at `hidden_offset` + t*`hidden_tap_bytes` + i*`hidden_stride`; lm_head's input of selected
    row i at `final_offset` + i*`final_stride`. `votes_offset`: what each
    board says of the next token; `ring_offset`: the tokens that the boards chose;
    `regions_offset`: the table of weight regions that the boards sum."""

    link_test_offset: int
    block_offset: int
    block_bytes: int
    table_offset: int
    table_stride: int
    list_offset: int
    list_bytes: int
    results_offset: int
    results_bytes: int
    argmax_offset: int
    logits_offset: int
    logits_stride: int
    hidden_offset: int
    hidden_stride: int
    hidden_tap_bytes: int
    final_offset: int
    final_stride: int
    votes_offset: int
    ring_offset: int
    regions_offset: int


def block_bytes(rows: int, embed_columns: int) -> int:
    """Max size of a step block: header, KV operations, path, rows and their input vectors."""
    size = padded(abi.dtype("step").itemsize)
    size += padded(abi.MAX_KV_OPS * abi.dtype("kv_op").itemsize)
    size += padded(abi.MAX_ROWS * abi.MAX_SEQUENCES * np.dtype(np.uint16).itemsize)
    size += rows * abi.dtype("row").itemsize
    return size + rows * padded(embed_columns * FP16_BYTES)


LAYER_COMMANDS = 24  # reserved per layer, and for the commands outside the layers
QUANTIZED_COMMANDS = 12  # reserved in addition in quantized models


def list_bytes(config: ModelConfig, share: Share, taps: int, adapters: bool = False) -> int:
    """Bytes reserved for a command list: the constants above, or what the model's operations need
    if that is more; with one more for each norm where boards share segments of rows."""
    quantized = config.quantization is not None
    each = LAYER_COMMANDS + quantized * QUANTIZED_COMMANDS
    described = share.block(config)
    parts = [described.before + described.after, *described.layers]
    needed = sum(max(each, _commands(part, quantized)) for part in parts)
    if adapters:
        needed += 2 * len(described.adapted)  # ADAPTER and, sharded by rank, a gather
    if share.stage.count > 1:
        needed += PASSING_COMMANDS
    if shares_segments(share.boards):
        needed += sum(isinstance(operation, ops.Norm) for operation in described.operations)
    return abi.dtype("list").itemsize + (needed + taps) * abi.dtype("command").itemsize


def _commands(operations: tuple[ops.Operation, ...], quantized: bool) -> int:
    counts = [ops.row(MAX_COMMANDS, operation) for operation in operations]
    return sum(plain + quantized * more for plain, more in counts) + OUTSIDE_COMMANDS


PASSING_COMMANDS = 4  # of a stage: rows from the one before and to the next, a move for each
OUTSIDE_COMMANDS = 6  # of a step: KV commit, ballot, three of its gather, end
MAX_COMMANDS: dict[type[ops.Operation], tuple[int, int]] = {
    ops.Embed: (1, 0),
    ops.AddPosition: (1, 0),
    ops.Norm: (3, 0),  # sums, their gather, apply
    ops.Route: (1, 0),
    ops.ExpertMatmul: (2, 3),  # its input gathered; its max, their gather, quantized
    ops.Matmul: (2, 4),  # its input gathered or packed; its max, their gather, quantized, permuted
    ops.NormHeads: (3, 0),  # as Norm
    ops.NormGroups: (2 + MAX_NORM_GROUPS, 0),  # sums, their gather, each group
    ops.Rope: (1, 0),
    ops.JoinHeads: (1, 0),
    ops.StoreKv: (1, 3),  # q, k and v quantized
    ops.Attend: (2, 0),  # q packed
    ops.Activate: (1, 0),
    ops.Elementwise: (1, 0),
    ops.AddGated: (1, 0),
    ops.Recur: (1, 0),
    ops.GateHeads: (2, 0),  # gates packed
    ops.PackSelected: (1, 0),
    ops.Argmax: (1, 0),
}
"""Max commands per operation, and the max further ones in a quantized model."""


def layout(
    config: ModelConfig,
    share: Share,
    shelf: Shelf,
    rows: int,
    max_tiles: int,
    max_sequences: int,
    taps: int,
    final: bool = False,
    adapters: bool = False,
) -> ControlLayout:
    """Places all of it after the firmware's own page; PlacementError if the bank is full."""
    link_test = shelf.take("link test", abi.dtype("link_test").itemsize, PAGE)
    block_size = block_bytes(rows, config.embed_dim)
    block = shelf.take("step block", block_size, PAGE)
    table_stride = padded(max_tiles * 2)
    table = shelf.take("page tables", max_sequences * table_stride, PAGE)
    list_size = list_bytes(config, share, taps + final, adapters)
    commands = shelf.take("command list", list_size, PAGE)
    logits_stride = _tiles32(len(share.vocabulary)) * FP32_BYTES
    hidden_stride = padded(len(share.hidden) * FP16_BYTES)
    logits_size = rows * logits_stride
    hidden_size = taps * rows * hidden_stride
    final_stride = padded(max(len(share.hidden), len(share.embed)) * FP16_BYTES)
    votes = logits_size + hidden_size + final * rows * final_stride
    votes_size = max(LEAST_VOTES, share.boards * share.stage.count) * abi.dtype("vote").itemsize
    results_size = votes + votes_size + RING_BYTES
    results = shelf.take("results", results_size, PAGE)
    regions = shelf.take("weight regions", REGIONS_BYTES, PAGE)
    return ControlLayout(
        link_test_offset=link_test,
        block_offset=block,
        block_bytes=block_size,
        table_offset=table,
        table_stride=table_stride,
        list_offset=commands,
        list_bytes=list_size,
        results_offset=results,
        results_bytes=results_size,
        argmax_offset=abi.ARGMAX_OFFSET,
        logits_offset=results,
        logits_stride=logits_stride,
        hidden_offset=results + logits_size,
        hidden_stride=hidden_stride,
        hidden_tap_bytes=rows * hidden_stride,
        final_offset=results + logits_size + hidden_size,
        final_stride=final_stride,
        votes_offset=results + votes,
        ring_offset=results + votes + votes_size,
        regions_offset=regions,
    )


def _tiles32(columns: int) -> int:
    """Columns in whole column tiles: the last block's padding is written too, never read back."""
    return -(-columns // abi.BLOCK_N) * abi.BLOCK_N
