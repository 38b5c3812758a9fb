"""Matrices of a GGUF file in the blocks that boards multiply, those of abi.h. Boards that do not
know them have Q4_0 as W4A16 in groups of 32, the same weights to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.gguf.blocks import BlockArray
from lora_sdk.model.block import describe
from lora_sdk.model.columns import BlockColumns, Int4Columns
from lora_sdk.model.quantization import FP16, MatrixFormat, Quantization
from lora_sdk.model.quantized import QuantizedMatrix
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.weight_formats import gguf_format

ZERO = 8  # subtracted from the 4-bit values of a block
SCALE_LIMIT = np.float16(8184)  # 8 times more would not be FP16


def quantization_of(
    config: ModelConfig, sources: Mapping[str, Source], types: Mapping[str, str]
) -> Quantization | None:
    """The formats of a file whose tensors have `types` by name. A matmul of several types has the
    smallest block that holds their numbers, FP16 without one. None if all are FP16."""
    formats: dict[str, MatrixFormat] = {}
    for matmul in describe(config).matmuls:
        if matmul.routes:
            continue
        found = {types.get(head_source(sources, name).tensor, "") for name in matmul.tensors}
        form = _format(found)
        if form is not None:
            formats.update(dict.fromkeys(matmul.tensors, form))
    tokens = _format({types.get(sources["embed.token"].tensor, "")}) or FP16
    if not formats and tokens == FP16:
        return None
    titles = sorted({form.weights.title for form in (*formats.values(), tokens) if form != FP16})
    return Quantization("+".join(titles), formats, tokens=tokens)


def head_source(sources: Mapping[str, Source], name: str) -> Source:
    """Where a matrix lies: a tied lm_head is the token table."""
    if name in sources:
        return sources[name]
    table = sources["embed.token"]
    rows, columns = table.file_shape
    return replace(table, layout="oi", file_shape=(rows, columns), count=rows)


def _format(types: set[str]) -> MatrixFormat | None:
    found = gguf_format(types)
    return None if found is None else MatrixFormat(found.name)


def matrix_of(name: str, blocks: BlockArray, form: MatrixFormat) -> QuantizedMatrix:
    """A whole tensor as a matrix of this format."""
    return (
        BlockMatrix(name, blocks, form)
        if form.weights.gguf is None
        else GgufMatrix(name, blocks, form)
    )


class _Fp16Inputs:
    """What all matrices in blocks have in common: FP16 inputs in the file's order."""

    _name: str

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """None: scales are in the blocks."""
        return None

    def permutation(self) -> NDArray[np.uint32] | None:
        """None: inputs are in the file's order."""
        return None

    def input_scale(self) -> np.float32:
        """ModelError: inputs are FP16."""
        raise ModelError(f"{self._name}: has no scale of its inputs, which are FP16")


class GgufMatrix(_Fp16Inputs):
    """A whole tensor in blocks; a QuantizedMatrix."""

    def __init__(self, name: str, blocks: BlockArray, form: MatrixFormat) -> None:
        self.format = form
        self.shape = (blocks.shape[1], blocks.shape[0])
        self.tensors = frozenset((name,))
        self._name, self._blocks = name, blocks

    def columns(self, start: int, stop: int) -> BlockColumns:
        """Output columns start..stop-1, views of the mapped file."""
        raw = self._blocks.raw[start:stop]
        return BlockColumns(
            replace(self._blocks, raw=raw, shape=(len(raw), self.shape[0])), self._name
        )

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer, which reads the mapped file."""
        return PackPart(
            self._name, self._blocks.raw, self._blocks.type.name, "oi", start, stop - start
        )


class BlockMatrix(_Fp16Inputs):
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
