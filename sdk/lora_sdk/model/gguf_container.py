"""The tensors of a GGUF file as those of any other: plain numbers, or blocks that become FP32 where
they are read."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.gguf.blocks import BlockArray
from lora_sdk.gguf.file import GgufFile, Tensor
from lora_sdk.model.container import RAW_TYPES, Elements, Entry

NORM = "norm.weight"
EXPERTS = "_exps."


class GgufContainer:
    """A TensorFile. Entries of tensors in blocks have the kind "F32", as what they are read.
    `one_plus`: norms are stored as 1 + w and read as w, FP32 less 1."""

    def __init__(self, file: GgufFile, one_plus: bool = False) -> None:
        self.path = file.path
        self._file = file
        self._shifted = {name for name in file.tensors if one_plus and name.endswith(NORM)}
        for name in self._shifted:
            kind = file.tensors[name].type.name
            if kind != "F32":
                raise ModelError(f"{file.path}: {name} is {kind}, expected F32: it holds 1 + w")
        self.entries = {tensor.name: _entry(file, tensor) for tensor in file.tensors.values()}
        self.forget = file.forget

    def array(self, entry: Entry) -> Elements:
        """The elements in rows, a view of the mapped file, of shifted norms a copy."""
        tensor = self._file.tensors[entry.name]
        raw: NDArray[np.uint8] = self._file.raw(tensor)
        if entry.name in self._shifted:
            shifted: NDArray[np.float32] = raw.view(RAW_TYPES["F32"]) - np.float32(1)
            return shifted.reshape(tensor.shape)
        if tensor.type.dequantize is None:
            return raw.view(RAW_TYPES[tensor.type.name]).reshape(tensor.shape)
        return self.blocks(entry.name)

    def blocks(self, name: str) -> BlockArray:
        """A matrix that is stored in blocks; of experts all of them, one behind the other."""
        tensor = self._file.tensors[name]
        rows, columns = prod(tensor.shape[:-1]), tensor.shape[-1]
        return BlockArray(self._file.raw(tensor).reshape(rows, -1), tensor.type, (rows, columns))


def _entry(file: GgufFile, tensor: Tensor) -> Entry:
    in_blocks = tensor.type.dequantize is not None
    axes = 3 if EXPERTS in tensor.name else 2
    if in_blocks and len(tensor.shape) != axes:
        raise ModelError(
            f"{file.path}: {tensor.name} is {tensor.type.name} {list(tensor.shape)}, expected "
            "blocks in matrices only, or in those of experts"
        )
    kind = "F32" if in_blocks else tensor.type.name
    return Entry(tensor.name, kind, tensor.shape, tensor.start, tensor.bytes)
