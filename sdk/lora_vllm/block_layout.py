"""Where K and V lie in a block of vLLM's cache."""

from __future__ import annotations

from typing import Any

import torch

DIGIT = 128  # values that every float type holds exactly, with 0 for what is not written
KINDS = (torch.float16, torch.bfloat16, torch.float32)


class BlockLayout:
    """The places of K and V within a block, which differ between vLLM's attention backends: found
    by letting the backend itself write numbers."""

    def __init__(self, layer: Any, cache: torch.Tensor) -> None:
        """`layer`: vLLM's attention layer of the blocks `cache`, [blocks, heads, positions, ...],
        whose block 0 holds nothing. ValueError: the places are not those of single values."""
        self.heads, self.head_dim = int(layer.num_kv_heads), int(layer.head_size)
        self.positions = int(cache.shape[2])
        if cache.dtype not in KINDS:
            raise ValueError(f"vLLM's KV cache is of {cache.dtype}; expected one of {KINDS}")
        count = 2 * self.positions * self.heads * self.head_dim
        numbers = torch.arange(count).reshape(2, self.positions, self.heads, self.head_dim)
        found = torch.zeros(cache[0].numel(), dtype=torch.int64)
        scale = 1
        while scale < count:
            digit = numbers // scale % DIGIT + 1
            read = _written(layer, cache, digit) - 1
            if (read < 0).any() or read.numel() != count:
                raise ValueError(
                    f"{type(layer.impl).__name__} does not keep one value of K and V a place; "
                    "choose another attention backend"
                )
            found += read * scale
            scale *= DIGIT
        places = torch.empty(count, dtype=torch.int64)
        places[found] = torch.arange(count)
        if not torch.equal(found.sort().values, torch.arange(count)):
            raise ValueError(f"{type(layer.impl).__name__} writes K and V in an unknown order")
        self._places = places.to(cache.device)

    def take(self, cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
        """[2, blocks * positions, heads, head_dim] of these blocks, where `cache` is."""
        flat = cache[blocks].reshape(len(blocks), -1).index_select(1, self._places)
        each = flat.reshape(len(blocks), 2, self.positions, self.heads, self.head_dim)
        return each.transpose(0, 1).reshape(2, -1, self.heads, self.head_dim)


def _written(layer: Any, cache: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Block 0 after `numbers`, [2, positions, heads, head_dim], were written as K and V."""
    k, v = numbers.to(cache.device, cache.dtype)
    slots = torch.arange(len(k), dtype=torch.int64, device=cache.device)
    cache[0].zero_()
    layer.impl.do_kv_cache_update(layer, k, v, cache, slots)
    read = cache[0].reshape(-1).to("cpu", torch.int64)
    cache[0].zero_()
    return read
