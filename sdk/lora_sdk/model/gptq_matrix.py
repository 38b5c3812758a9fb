"""One matrix of a GPTQ or AWQ checkpoint, read from its files."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import Int4Columns
from lora_sdk.model.gptq import PackedMatrix, Packing
from lora_sdk.model.packed_words import WORD_VALUES
from lora_sdk.model.quantization import MatrixFormat
from lora_sdk.model.quantized import FLOATS, TensorFiles
from lora_sdk.model.source import Source

WORDS = ("I32",)


class GptqMatrix:
    """A module of GPTQ or AWQ; a QuantizedMatrix. `module` is the file's name of it; outputs
    `source.first` .. + `source.count` of it are this matrix. Headers are checked here, `g_idx`
    when it is read."""

    def __init__(
        self, files: TensorFiles, module: str, source: Source, packing: Packing, form: MatrixFormat
    ) -> None:
        self.format = form
        self.shape = (source.shape[0], source.shape[1])
        self._files = files
        self._module = module
        self._first = source.first
        self._packing = packing
        self._n = source.file_shape[0 if source.layout == "oi" else 1]
        self.tensors = frozenset(map(self._name, self._check()))

    def columns(self, start: int, stop: int) -> Int4Columns:
        """Output columns start..stop-1, K in the order of groups."""
        return self._matrix.columns(self._first + start, self._first + stop)

    def part(self, start: int, stop: int) -> PackPart:
        """The file's own words."""
        return self._matrix.part(self._first + start, self._first + stop)

    def column_scales(self, start: int, stop: int) -> None:
        """None: scales are per group."""

    def permutation(self) -> NDArray[np.uint32] | None:
        """Inputs in the order of their groups, uint32 [K]; None without act-order."""
        return self._matrix.permutation()

    def input_scale(self) -> np.float32:
        """ModelError: inputs are FP16."""
        raise ModelError(f"{self._module}: has FP16 inputs, which have no scale")

    def _name(self, part: str) -> str:
        return f"{self._module}.{part}"

    def _check(self) -> list[str]:
        k, n, packed = self.shape[0], self._n, self._packing
        groups = k // (packed.group or k)
        rows = (k, n // WORD_VALUES) if packed.awq else (k // WORD_VALUES, n)
        self._files.check(self._name("qweight"), WORDS, rows)
        self._files.check(self._name("qzeros"), WORDS, (groups, n // WORD_VALUES))
        self._files.check(self._name("scales"), FLOATS, (groups, n))
        used = ["qweight", "qzeros", "scales"]
        if self._files.has(self._name("g_idx")):
            self._files.check(self._name("g_idx"), WORDS, (k,))
            used.append("g_idx")
        elif packed.order:
            raise ModelError(
                f"{self._name('g_idx')}: missing from {self._files.folder}, expected the group of "
                f"each of {k} inputs, since desc_act is true"
            )
        return used

    @cached_property
    def _matrix(self) -> PackedMatrix:
        index, files = self._name("g_idx"), self._files
        return PackedMatrix(
            self._module,
            self._packing,
            self.shape[0],
            self._n,
            qweight=files.array(self._name("qweight")),
            qzeros=files.array(self._name("qzeros")),
            scales=files.array(self._name("scales")),
            scales_kind=files.kind(self._name("scales")),
            g_idx=files.array(index) if files.has(index) else None,
        )
