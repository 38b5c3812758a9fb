"""An adapter's part of a matmul (docs/numbers.md, 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lora_prefill.exact.functions import half
from lora_prefill.exact.matrices import Products
from lora_sdk.adapters.weights import AdapterWeights, Target


@dataclass(frozen=True)
class Factors:
    """A [K, ranks] and B [ranks, N] in FP16, blocks that are absent as zeros: these change no sum,
    which never is -0."""

    a: Tensor
    b: Tensor
    scale: float

    def h(self, x: Tensor, sums: Products) -> Tensor:
        """FP16 [rows, ranks] of the FP16 row x."""
        return half(sums.floats(x, self.a))

    def added(self, h: Tensor, sums: Products) -> Tensor:
        """scale*u: FP32 [rows, N]."""
        return sums.floats(h, self.b) * self.scale


def factors_of(
    weights: AdapterWeights, to_device: Callable[[NDArray[Any]], Tensor]
) -> dict[str, Factors]:
    """By canonical tensor."""
    return {name: _factors(target, to_device) for name, target in weights.targets.items()}


def _factors(target: Target, to_device: Callable[[NDArray[Any]], Tensor]) -> Factors:
    module = target.module
    a = _block_diagonal(module.a, module.a_blocks)
    b = _block_diagonal(module.b, module.b_blocks)[target.outputs(range(target.count))]
    return Factors(to_device(a.T), to_device(b.T), float(module.scale))


def _block_diagonal(packed: NDArray[np.float16], blocks: int) -> NDArray[np.float16]:
    """[rows, columns] of which block i is the i-th run of rows, in its own columns."""
    if blocks == 1:
        return packed
    height, width = len(packed) // blocks, packed.shape[1]
    whole = np.zeros((len(packed), blocks * width), np.float16)
    for block in range(blocks):
        rows = slice(block * height, (block + 1) * height)
        whole[rows, block * width : (block + 1) * width] = packed[rows]
    return whole
