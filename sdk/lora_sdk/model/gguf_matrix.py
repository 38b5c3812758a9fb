"""Q4_0 matrices of a GGUF file as W4A16 in groups of 32: the same weights to the bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.gguf.blocks import BlockArray
from lora_sdk.model.block import describe
from lora_sdk.model.columns import Int4Columns
from lora_sdk.model.quantization import MatrixFormat, Quantization
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.weight_formats import W4A16

GROUP = 32
TYPE = "Q4_0"
ZERO = 8  # subtracted from the 4-bit values of a block
SCALE_LIMIT = np.float16(8184)  # 8 times more would not be FP16


def quantization_of(
    config: ModelConfig, sources: Mapping[str, Source], types: Mapping[str, str]
) -> Quantization | None:
    """The formats of a file whose tensors have `types` by name. A matmul is W4A16 if all of its
    matrices are Q4_0; all others are FP16. None if all are."""
    form = MatrixFormat(W4A16.name, GROUP)
    formats = {
        name: form
        for matmul in describe(config).matmuls
        if matmul.layer is not None
        and all(types.get(sources[name].tensor) == TYPE for name in matmul.tensors)
        for name in matmul.tensors
    }
    return Quantization(W4A16.title, formats) if formats else None


class BlockMatrix:
    """A whole Q4_0 tensor; a QuantizedMatrix. A block is an FP16 scale d and 32 values q, of which
    the low halves of its bytes are the first 16; a weight is d*(q - 8). Where d is negative, |d|,
    15 - q and the zero point 7 say the same."""

    def __init__(self, name: str, blocks: BlockArray, form: MatrixFormat) -> None:
        self.format = form
        self.shape = (blocks.shape[1], blocks.shape[0])
        self.tensors = frozenset((name,))
        self._name, self._blocks = name, blocks

    def columns(self, start: int, stop: int) -> Int4Columns:
        """Output columns start..stop-1. ModelError names scales that are not finite, or whose
        weights FP16 does not hold."""
        count = stop - start
        raw = np.ascontiguousarray(self._blocks.raw[start:stop]).reshape(count, -1, 18)
        scales = np.ascontiguousarray(raw[:, :, :2]).view("<f2")[:, :, 0]
        if not (np.abs(scales) <= SCALE_LIMIT).all():
            worst = scales[~(np.abs(scales) <= SCALE_LIMIT)][0]
            raise ModelError(
                f"{self._name}: a block's scale is {worst}, expected magnitudes up to {SCALE_LIMIT}"
            )
        packed = raw[:, :, 2:]
        values = np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=2)
        negative = np.signbit(scales)
        values = np.where(negative[:, :, None], np.uint8(15) - values, values)
        zeros = np.where(negative, np.uint8(15 - ZERO), np.uint8(ZERO))
        return Int4Columns(values.reshape(count, -1), np.abs(scales).astype(np.float16), zeros)

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer."""
        return self.columns(start, stop).part(self._name)

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """None: scales are per group."""
        return None

    def permutation(self) -> NDArray[np.uint32] | None:
        """None: inputs are in the file's order."""
        return None

    def input_scale(self) -> np.float32:
        """ModelError: inputs are FP16."""
        raise ModelError(f"{self._name}: has no scale of its inputs, which are FP16")
