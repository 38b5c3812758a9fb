"""K and V between arrays and the blocks of a board's pages (abi.h: struct lora_list, kv_*)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.plan.kv import KvLayout, tiles

Bytes = npt.NDArray[np.uint8]


def pack(layout: KvLayout, kv: KvArrays, layers: range) -> Bytes:
    """Blocks of these layers of the board's KV heads: uint8 [pages, layers*heads*2, block bytes].
    `kv` has the board's heads and these layers. Positions past the last one are 0."""
    count = tiles(kv.positions)
    blocks = np.zeros((count, len(layers) * layout.heads * 2, layout.block_bytes), np.uint8)
    parts = _views(layout, blocks, len(layers))
    for values, whole in ((0, kv.k), (1, kv.v)):
        tiled = _tiled(whole, count)  # [layers, heads, pages, 32, head_dim]
        moved = tiled.transpose(2, 0, 1, 3, 4) if values else tiled.transpose(2, 0, 1, 4, 3)
        parts[values][...] = moved
    if layout.format.by_head:
        scales = _scale_view(layout, blocks, len(layers))
        for values, array in ((0, kv.k_scales), (1, kv.v_scales)):
            assert array is not None
            scales[:, :, :, values] = _tiled(array, count).transpose(2, 0, 1, 3)
    return blocks


def unpack(layout: KvLayout, blocks: Bytes, layers: int, positions: int) -> KvArrays:
    """The inverse of `pack`: copies of the first `positions` positions."""
    parts = _views(layout, blocks, layers)
    arrays = []
    for values in (0, 1):
        # K blocks [pages, layers, heads, head_dim, 32], V blocks [..., 32, head_dim]
        moved = parts[values].transpose((1, 2, 0, 3, 4) if values else (1, 2, 0, 4, 3))
        whole = moved.reshape(layers, layout.heads, -1, layout.head_dim)
        arrays.append(np.ascontiguousarray(whole[:, :, :positions]))
    if not layout.format.by_head:
        return KvArrays(layout.kind, arrays[0], arrays[1])
    scales = _scale_view(layout, blocks, layers).transpose(3, 1, 2, 0, 4)
    by_head = scales.reshape(2, layers, layout.heads, -1)[..., :positions].copy()
    return KvArrays(layout.kind, arrays[0], arrays[1], by_head[0], by_head[1])


def _views(layout: KvLayout, blocks: Bytes, layers: int) -> tuple[npt.NDArray[Any], ...]:
    """Views of the K blocks [pages, layers, heads, head_dim, 32] and the V blocks [pages, layers,
    heads, 32, head_dim]."""
    kind = np.int8 if layout.format.quantized else np.float16
    size, tile = layout.head_dim, abi.TILE_POSITIONS
    value_bytes = tile * size * layout.format.element_bytes
    parts = blocks.reshape(len(blocks), layers, layout.heads, 2, layout.block_bytes)
    values = parts[..., :value_bytes].view(kind)
    shape = values.shape[:3]
    return (
        values[:, :, :, 0].reshape(*shape, size, tile),
        values[:, :, :, 1].reshape(*shape, tile, size),
    )


def _scale_view(layout: KvLayout, blocks: Bytes, layers: int) -> npt.NDArray[np.float16]:
    """View of the scales behind the values: [pages, layers, heads, 2, 32]."""
    parts = blocks.reshape(len(blocks), layers, layout.heads, 2, layout.block_bytes)
    return parts[..., -abi.LINE_BYTES :].view(np.float16)


def _tiled(array: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """[layers, heads, positions, ...] as [layers, heads, count, 32, ...], padded with 0."""
    tile = abi.TILE_POSITIONS
    shape = (*array.shape[:2], count * tile, *array.shape[3:])
    if array.shape[2] != count * tile:
        padded = np.zeros(shape, array.dtype)
        padded[:, :, : array.shape[2]] = array
        array = padded
    return array.reshape(*shape[:2], count, tile, *shape[3:])
