"""Tensors of random checkpoints: their types, and their values in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.container import INTEGER_TYPES, RAW_TYPES

DEVIATION = 0.02  # as these models are initialized


@dataclass(frozen=True)
class Tensor:
    """A tensor of the checkpoint of type `kind`. `constant`: the value of all elements, None if
    random. `values`: the elements, if given. `index` counts over the model, so that the values do
    not depend on the number of shards."""

    name: str
    shape: tuple[int, ...]
    kind: str
    constant: float | None
    index: int
    values: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int({**RAW_TYPES, **INTEGER_TYPES}[self.kind].itemsize)


def chunk(tensor: Tensor, seed: int, start: int, count: int) -> NDArray[Any]:
    """Elements start .. start+count-1. Equal arguments give equal values."""
    if tensor.values:
        return np.array(tensor.values[start : start + count], INTEGER_TYPES[tensor.kind])
    if tensor.constant is not None:
        return _converted(np.full(count, tensor.constant, np.float32), tensor.kind)
    random = np.random.Generator(
        np.random.SFC64(np.random.SeedSequence([seed, tensor.index, start]))
    )
    if tensor.kind == "I8":  # symmetric: -128 is not used
        return random.integers(-127, 128, count, np.int8)
    if tensor.kind == "I32":  # eight 4-bit weights
        return random.integers(0, 1 << 32, count, np.uint32)
    # Uniform over 65536 levels: ten times as fast as a normal distribution, and as good for speed.
    levels = random.integers(-32768, 32768, count, np.int16)
    scale = np.float32(DEVIATION * 3**0.5 / 32768)
    return _converted(np.multiply(levels, scale, dtype=np.float32), tensor.kind)


def _converted(values: NDArray[np.float32], kind: str) -> NDArray[Any]:
    if kind == "F16":
        return values.astype(np.float16)
    if kind == "BF16":  # nearest, ties away from zero: good enough for random values
        bits = values.view(np.uint32)
        upper: NDArray[np.uint16] = ((bits + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)
        return upper
    return values
