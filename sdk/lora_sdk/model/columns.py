"""Output columns of a quantized matrix, independent of how the file stores them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.placing import PackPart
from lora_sdk.gguf.blocks import BlockArray
from lora_sdk.model.half import to_half


class Columns(Protocol):
    """Some output columns of a matrix, all of its K inputs."""

    def dense(self) -> NDArray[np.float32]:
        """The weights in FP32 [columns, K]."""

    def take(self, chosen: NDArray[np.intp]) -> Columns:
        """Some of the columns, in this order."""

    def part(self, name: str) -> PackPart:
        """The packer's input; `name` is for messages."""

    @property
    def column_scales(self) -> NDArray[np.float32] | None:
        """FP32 [columns]; None if scales are per group."""


@dataclass(frozen=True)
class HalfColumns:
    """Output columns of a matrix that boards hold in FP16: `values` FP16 [columns, K]."""

    values: NDArray[np.float16]

    def dense(self) -> NDArray[np.float32]:
        """The weights in FP32 [columns, K]."""
        return self.values.astype(np.float32)

    def take(self, chosen: NDArray[np.intp]) -> HalfColumns:
        """Some of the columns, in this order."""
        return HalfColumns(self.values[chosen])

    def part(self, name: str) -> PackPart:
        """The packer's input."""
        return PackPart(name, self.values, "F16", "oi", 0, len(self.values))

    @property
    def column_scales(self) -> None:
        """None: the weights have none any more."""


@dataclass(frozen=True)
class Int8Columns:
    """Output columns of a matrix in 8 bits: w = values*scales, `values` int8 [columns, K] in
    -127..127 or -128..127, `scales` FP32 [columns] (one number repeated if it is per tensor)."""

    values: NDArray[np.int8]
    scales: NDArray[np.float32]

    def dense(self) -> NDArray[np.float32]:
        """The weights in FP32 [columns, K]."""
        return self.values.astype(np.float32) * self.scales[:, None]

    def take(self, chosen: NDArray[np.intp]) -> Int8Columns:
        """Some of the columns, in this order."""
        return Int8Columns(self.values[chosen], self.scales[chosen])

    def part(self, name: str) -> PackPart:
        """The packer's input."""
        return PackPart(name, self.values, "I8", "oi", 0, len(self.values))

    @property
    def column_scales(self) -> NDArray[np.float32]:
        """FP32 [columns]."""
        return self.scales


@dataclass(frozen=True)
class Int4Columns:
    """Output columns of a 4-bit matrix: w = (values - zeros)*scales, `values` uint8 [columns, K] in
    0..15, K in group order (after `Checkpoint.permutation` if there is one), `scales` FP16
    [columns, K/group], `zeros` uint8 [columns, K/group] in 0..15."""

    values: NDArray[np.uint8]
    scales: NDArray[np.float16]
    zeros: NDArray[np.uint8]

    def dense(self) -> NDArray[np.float32]:
        """The weights in FP32 [columns, K], K in group order."""
        group = self.values.shape[1] // self.scales.shape[1]
        zeros = np.repeat(self.zeros, group, axis=1).astype(np.float32)
        scales = np.repeat(self.scales, group, axis=1).astype(np.float32)
        return (self.values.astype(np.float32) - zeros) * scales

    def part(self, name: str) -> PackPart:
        """The packer's input."""
        count = len(self.values)
        return PackPart(name, self.values, "nibbles", "oi", 0, count, self.scales, self.zeros)

    @property
    def column_scales(self) -> None:
        """None: scales are per group."""

    def take(self, chosen: NDArray[np.intp]) -> Int4Columns:
        """Some of the columns, in this order."""
        return Int4Columns(self.values[chosen], self.scales[chosen], self.zeros[chosen])


@dataclass(frozen=True)
class BlockColumns:
    """Output columns of a matrix in blocks of a GGUF file: `blocks` [columns, K], the file's
    `name` of the whole."""

    blocks: BlockArray
    name: str

    def dense(self) -> NDArray[np.float32]:
        """The weights in FP32 [columns, K], rounded to FP16. ModelError: FP16 does not hold one."""
        return to_half(self.blocks[:], "F32", self.name).astype(np.float32)

    def take(self, chosen: NDArray[np.intp]) -> BlockColumns:
        """Some of the columns, in this order."""
        raw = self.blocks.raw[chosen]
        return BlockColumns(
            replace(self.blocks, raw=raw, shape=_shape(raw, self.blocks)), self.name
        )

    def part(self, name: str) -> PackPart:
        """The packer's input."""
        raw = np.ascontiguousarray(self.blocks.raw)
        return PackPart(name, raw, self.blocks.type.name, "oi", 0, len(raw))

    @property
    def column_scales(self) -> None:
        """None: scales are in the blocks."""


def _shape(raw: NDArray[np.uint8], whole: BlockArray) -> tuple[int, int]:
    return len(raw), whole.shape[1]
