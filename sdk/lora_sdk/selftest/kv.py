"""The KV cache of a case as bytes of its banks (abi.h: blocks of 32 positions of one head)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host import abi

from .bench import HEAD_DIM, KV, KV_HEADS, PAGES, Bytes, Site

F16 = NDArray[np.float16]


class Cache:
    """FP16 [PAGES, KV_HEADS, 2 (K, V), 32*head_dim]. Integers give the bit patterns of the finite
    initial values."""

    def __init__(self, site: Site, patterns: NDArray[np.int64]) -> None:
        self._site = site
        self._data = (patterns % 0x7C00).astype(np.uint16).view(np.float16)

    def put(self, page: int, lane: int, k: F16, v: F16) -> None:
        """Set K and V [KV_HEADS*head_dim] of one position."""
        for head in range(KV_HEADS):
            part = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            self._data[page, head, 0].reshape(HEAD_DIM, 32)[:, lane] = k[part]
            self._data[page, head, 1].reshape(32, HEAD_DIM)[lane] = v[part]

    def blocks(self, what: str = "") -> tuple[Bytes, ...]:
        """Every block at its address."""
        banks, stride = self._site.banks, (KV_HEADS * 2) | 1
        out = []
        for page in range(PAGES):
            for head in range(KV_HEADS):
                for v in range(2):
                    block = page * stride + head * 2 + v
                    bank = banks[block % len(banks)]
                    offset = KV + block // len(banks) * HEAD_DIM * abi.LINE_BYTES
                    name = f"{what}, page {page} head {head} {'KV'[v]}"
                    out.append(Bytes(bank, offset, self._data[page, head, v].tobytes(), name))
        return tuple(out)
