"""K and V of one page of all boards as plain bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.pages import PAGE_POSITIONS
from lora_sdk.model.kv_formats import KvKind, kv_format


@dataclass(frozen=True)
class PageForm:
    """A model's KV cache: its type, planes, KV heads and their size. The same on any boards."""

    kind: KvKind
    layers: int
    heads: int
    head_dim: int

    @property
    def page_bytes(self) -> int:
        """Bytes of a full page."""
        return sum(size for size, _, _ in self._arrays(PAGE_POSITIONS))

    def to_bytes(self, kv: KvArrays) -> bytes:
        """K, V and their scales, one after another."""
        every = (kv.k, kv.v, kv.k_scales, kv.v_scales)
        return b"".join(array.tobytes() for array in every if array is not None)

    def from_bytes(self, data: bytes, positions: int) -> KvArrays:
        """The inverse of `to_bytes`."""
        found, start = [], 0
        for size, kind, shape in self._arrays(positions):
            found.append(np.frombuffer(data[start : start + size], kind).reshape(shape))
            start += size
        return KvArrays(self.kind, *found)

    def _arrays(self, positions: int) -> list[tuple[int, type[np.generic], tuple[int, ...]]]:
        """Bytes, type and shape of each array."""
        form = kv_format(self.kind)
        shape = (self.layers, self.heads, positions)
        values: type[np.generic] = np.int8 if form.quantized else np.float16
        parts: list[tuple[type[np.generic], tuple[int, ...]]] = [
            (values, (*shape, self.head_dim))
        ] * 2
        if form.by_head:
            parts += [(np.float16, shape)] * 2
        return [(int(np.prod(size)) * np.dtype(kind).itemsize, kind, size) for kind, size in parts]
