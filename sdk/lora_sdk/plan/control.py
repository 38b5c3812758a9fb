"""The control bank: step block, page tables, command list, link test, results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lora_host import abi
from lora_sdk.plan.banks import Shelf
from lora_sdk.plan.partition import Share
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES, padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

PAGE = abi.CONTROL_PAGE
ARGMAX_BYTES = 8


@dataclass(frozen=True)
class ControlLayout:
    """Byte offsets in the control bank. Results of selected row i: argmax record at
    `argmax_offset` + 8*i, FP32 logits at `logits_offset` + i*`logits_stride`; tap t of row i of the
    step at `hidden_offset` + t*`hidden_tap_bytes` + i*`hidden_stride`."""

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


def block_bytes(rows: int, embed_columns: int) -> int:
    """Size of the largest step block: header, KV operations, path, rows and their input vectors."""
    size = padded(abi.dtype("step").itemsize)
    size += padded(abi.MAX_KV_OPS * abi.dtype("kv_op").itemsize)
    size += padded(abi.MAX_ROWS * abi.MAX_SEQUENCES * np.dtype(np.uint16).itemsize)
    size += rows * abi.dtype("row").itemsize
    return size + rows * padded(embed_columns * FP16_BYTES)


def list_bytes(layers: int, taps: int, adapters: bool = False, quantized: bool = False) -> int:
    """Room for a command list: at most 24 commands a layer and 24 outside the layers; adapters add
    a matmul and, sharded by rank, a gather to each of the four matrices; quantized models two
    vector operations to each matmul and three for q, k and v."""
    each = 24 + (12 if quantized else 0)
    commands = each * (layers + 1) + taps + (8 * layers if adapters else 0)
    return abi.dtype("list").itemsize + commands * abi.dtype("command").itemsize


def layout(
    config: ModelConfig,
    share: Share,
    shelf: Shelf,
    rows: int,
    max_tiles: int,
    max_sequences: int,
    taps: int,
    adapters: bool = False,
) -> ControlLayout:
    """Places all of it behind the firmware's own page; PlacementError where the bank is full."""
    link_test = shelf.take("link test", abi.dtype("link_test").itemsize, PAGE)
    block_size = block_bytes(rows, config.embed_dim)
    block = shelf.take("step block", block_size, PAGE)
    table_stride = padded(max_tiles * 2)
    table = shelf.take("page tables", max_sequences * table_stride, PAGE)
    list_size = list_bytes(config.layers, taps, adapters, config.quantization is not None)
    commands = shelf.take("command list", list_size, PAGE)
    logits_stride = _tiles32(len(share.vocabulary)) * FP32_BYTES
    hidden_stride = padded(len(share.hidden) * FP16_BYTES)
    argmax_size = padded(rows * ARGMAX_BYTES)
    logits_size = rows * logits_stride
    hidden_size = taps * rows * hidden_stride
    results_size = argmax_size + logits_size + hidden_size
    results = shelf.take("results", results_size, PAGE)
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
        argmax_offset=results,
        logits_offset=results + argmax_size,
        logits_stride=logits_stride,
        hidden_offset=results + argmax_size + logits_size,
        hidden_stride=hidden_stride,
        hidden_tap_bytes=rows * hidden_stride,
    )


def _tiles32(columns: int) -> int:
    """Columns in whole column tiles: the last block's padding is written too, never read back."""
    return -(-columns // abi.BLOCK_N) * abi.BLOCK_N
