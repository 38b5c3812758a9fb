"""One matrix as compressed-tensors stores FP8: `weight` float8_e4m3fn [out, in] and its scales, one
per tensor, per output or per block. It becomes FP16 when it is read (docs/numbers.md, 6.9)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import HalfColumns
from lora_sdk.model.compressed_tensors import ConfigGroup
from lora_sdk.model.container import FLOAT8
from lora_sdk.model.half import to_half
from lora_sdk.model.quantization import MatrixFormat
from lora_sdk.model.quantized import FLOATS, TensorFiles
from lora_sdk.model.source import Source

MANTISSA, BIAS = 3, 7


def e4m3_values() -> NDArray[np.float32]:
    """The FP32 values of the 256 codes of float8_e4m3fn; NaN of 0x7f and 0xff."""
    code = np.arange(128)
    exponent, fraction = code >> MANTISSA, code & ((1 << MANTISSA) - 1)
    significand = np.where(exponent > 0, fraction + (1 << MANTISSA), fraction).astype(np.float32)
    values = np.ldexp(significand, np.maximum(exponent, 1) - BIAS - MANTISSA)
    values[127] = np.nan
    both: NDArray[np.float32] = np.concatenate([values, -values])
    return both


class Float8Matrix:
    """A module of FP8 weights; a QuantizedMatrix. `module` is the file's name of it without
    ".weight"; rows `source.first` .. + `source.count` of it are this matrix."""

    def __init__(
        self,
        files: TensorFiles,
        module: str,
        source: Source,
        group: ConfigGroup,
        form: MatrixFormat,
    ) -> None:
        self.format = form
        self.shape = (source.shape[0], source.shape[1])
        self._files = files
        self._module = module
        self._source = source
        self._block = group.weights.block
        rows, k = source.file_shape[0 if source.layout == "oi" else 1], self.shape[0]
        files.check(self._name("weight"), (FLOAT8,), (rows, k))
        shapes: tuple[tuple[int, ...], ...] = ((1,), (), (1, 1))
        if group.weights.strategy == "channel":
            shapes = ((rows, 1),)
        if self._block is not None:
            shapes = ((-(-rows // self._block[0]), -(-k // self._block[1])),)
        files.check(self._name("weight_scale"), FLOATS, *shapes)
        used = ["weight", "weight_scale"]
        # Scales of FP8 inputs, which are not rounded here.
        for part in ("input_scale", "input_zero_point", "weight_zero_point"):
            used += [part] if files.has(self._name(part)) else []
        self.tensors = frozenset(map(self._name, used))

    def columns(self, start: int, stop: int) -> HalfColumns:
        """Output columns start..stop-1. ModelError names scales that are negative or not finite,
        and weights that are NaN or that FP16 cannot hold."""
        rows = slice(self._source.first + start, self._source.first + stop)
        codes = self._files.array(self._name("weight"))[rows]
        with np.errstate(over="ignore"):
            wide = e4m3_values()[codes] * self._scales(rows)
        return HalfColumns(to_half(wide, "F32", self._name("weight")))

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer."""
        return self.columns(start, stop).part(self._name("weight"))

    def column_scales(self, start: int, stop: int) -> None:
        """None: they are in the weights."""

    def permutation(self) -> None:
        """None: inputs are in the file's order."""

    def input_scale(self) -> np.float32:
        """ModelError: inputs are FP16."""
        raise ModelError(f"{self._module}: has FP16 inputs, which have no scale")

    def _scales(self, rows: slice) -> NDArray[np.float32]:
        """FP32 [1 or rows, 1 or K]."""
        name = self._name("weight_scale")
        if self._files.array(name).size == 1:
            return self._files.floats(name).reshape(1, 1)
        if self._block is None:
            return self._files.floats(name, rows)
        height, width = self._block
        first = rows.start // height
        found = self._files.floats(name, slice(first, -(-rows.stop // height)))
        chosen = np.arange(rows.start, rows.stop) // height - first
        across = np.arange(self.shape[0]) // width
        scales: NDArray[np.float32] = found[chosen][:, across]
        return scales

    def _name(self, part: str) -> str:
        return f"{self._module}.{part}"
