"""One matrix of integers as compressed-tensors stores it: int-quantized (`weight` INT8 [out, in],
8-bit or 4-bit values) or pack-quantized (`weight_packed` INT32 [out, in/8], low bits first,
value + 8)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import Columns, Int4Columns, Int8Columns
from lora_sdk.model.compressed_tensors import ConfigGroup
from lora_sdk.model.quantization import MatrixFormat
from lora_sdk.model.quantized import FLOATS, TensorFiles
from lora_sdk.model.source import Source
from lora_sdk.model.weight_formats import NIBBLES_IN_BYTES

SHIFT = 8  # added to 4-bit values and zero points before they are packed
PACK = 8  # 4-bit values of an INT32

Element = TypeVar("Element", bound=np.generic)


class CompressedMatrix:
    """A quantized module of compressed-tensors; a QuantizedMatrix. `module` is the file's name of
    it without ".weight"; rows `source.first` .. + `source.count` of it are this matrix."""

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
        self._weights = group.weights
        self._bytes = group.stored == NIBBLES_IN_BYTES  # 4-bit values, a byte each
        rows = source.module_outputs
        used = self._check_int4(rows) if form.four_bit else self._check_int8(rows)
        if form.static:
            files.check(self._name("input_scale"), FLOATS, (1,), ())
            used.append("input_scale")
            used += self._check_zero("input_zero_point", (1,))
        self.tensors = frozenset(map(self._name, used))

    def columns(self, start: int, stop: int) -> Columns:
        """Output columns start..stop-1: INT8 as stored with one FP32 scale per column, or 4 bits
        in the order of groups. ModelError names scales that are not numbers or, of 4-bit weights,
        out of FP16's range."""
        return (self._int4 if self.format.four_bit else self._int8)(start, stop)

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer: the file's own integers or words."""
        first, count = self._source.first + start, stop - start
        if not self.format.four_bit:
            name = self._name("weight")
            return PackPart(name, self._files.array(name), "I8", "oi", first, count)
        if self._bytes:
            return self._int4(start, stop).part(self._name("weight"))
        name = self._name("weight_packed")
        return PackPart(
            name, self._files.array(name), "words", "oi", first, count,
            *self._groups(start, stop), self.permutation(),
        )  # fmt: skip

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """FP32 scales of INT8 columns."""
        if self.format.four_bit:
            return None
        name = self._name("weight_scale")
        if self._files.array(name).size == 1:
            return np.full(stop - start, self._files.floats(name).reshape(-1)[0], np.float32)
        return np.ascontiguousarray(self._files.floats(name, self._rows(start, stop))[:, 0])

    def _int8(self, start: int, stop: int) -> Int8Columns:
        rows = self._rows(start, stop)
        values: NDArray[np.int8] = np.array(self._files.array(self._name("weight"))[rows])
        scales = self.column_scales(start, stop)
        assert scales is not None
        return Int8Columns(values, scales)

    def _int4(self, start: int, stop: int) -> Int4Columns:
        rows = self._rows(start, stop)
        if self._bytes:
            values = self._shifted("weight", rows)
        else:
            packed = self._files.array(self._name("weight_packed"))[rows]
            values = unpack_nibbles(packed, self.shape[0])
        order = self.permutation()
        if order is not None:
            values = np.ascontiguousarray(values[:, order])
        return Int4Columns(values, *self._groups(start, stop))

    def _shifted(self, part: str, rows: slice) -> NDArray[np.uint8]:
        """Rows of 4-bit integers that have a byte each, as 0..15; ModelError: one is none."""
        name = self._name(part)
        found = self._files.array(name)[rows]
        low, high = int(found.min(initial=0)), int(found.max(initial=0))
        if low < -SHIFT or high >= SHIFT:
            raise ModelError(
                f"{name}: has {low if low < -SHIFT else high}, expected 4-bit integers, "
                f"{-SHIFT}..{SHIFT - 1}"
            )
        shifted: NDArray[np.uint8] = (found + np.int8(SHIFT)).astype(np.uint8)
        return shifted

    def _groups(self, start: int, stop: int) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
        """Scales and zero points [stop-start, groups]; those of a larger group or of the whole row
        are repeated."""
        k = self.shape[0]
        groups = k // (self.format.group or k)
        scales = _repeated(self._scales(self._rows(start, stop)), groups)
        if self._weights.symmetric:
            return scales, np.full(scales.shape, SHIFT, np.uint8)
        return scales, _repeated(self._zeros(start, stop), groups)

    def permutation(self) -> NDArray[np.uint32] | None:
        """Inputs in the order of their groups (by `weight_g_idx`, then by index); None without
        act-order. ModelError: a group with another number of inputs than its size."""
        if not self._weights.ordered:
            return None
        name = self._name("weight_g_idx")
        index = self._files.array(name)
        size = self._weights.group
        count = self.shape[0] // size
        order = np.argsort(index, kind="stable").astype(np.uint32)
        if not np.array_equal(index[order], np.repeat(np.arange(count), size)):
            raise ModelError(
                f"{name}: expected each of the groups 0..{count - 1} for {size} inputs"
            )
        return order

    def input_scale(self) -> np.float32:
        """FP32 static scale of the INT8 inputs; ModelError: there is none."""
        if not self.format.static:
            raise ModelError(f"{self._module}: has no static scale of its inputs")
        return self._files.scalar(self._name("input_scale"))

    def _name(self, part: str) -> str:
        return f"{self._module}.{part}"

    def _rows(self, start: int, stop: int) -> slice:
        return slice(self._source.first + start, self._source.first + stop)

    def _check_int8(self, rows: int) -> list[str]:
        self._files.check(self._name("weight"), ("I8",), (rows, self.shape[0]))
        shapes: tuple[tuple[int, ...], ...] = ((1,), (), (1, 1))
        if self._weights.strategy == "channel":
            shapes = ((rows, 1),)
        shape = self._files.check(self._name("weight_scale"), FLOATS, *shapes)
        return ["weight", "weight_scale", *self._check_zero("weight_zero_point", shape)]

    def _check_int4(self, rows: int) -> list[str]:
        k = self.shape[0]
        if self._bytes:
            self._files.check(self._name("weight"), ("I8",), (rows, k))
        else:
            self._files.check(self._name("weight_packed"), ("I32",), (rows, -(-k // PACK)))
        groups = k // self._weights.group if self._weights.group else 1
        shapes: tuple[tuple[int, ...], ...] = ((rows, groups),)
        if self._weights.strategy == "tensor":
            shapes = ((1,), (), (1, 1))
        self._files.check(self._name("weight_scale"), FLOATS, *shapes)
        used = ["weight", "weight_scale"]
        if not self._bytes:
            self._check_shape(rows, k)
            used = ["weight_packed", "weight_scale", "weight_shape"]
        if self._weights.symmetric:
            used += self._check_zero("weight_zero_point", *shapes)
        elif self._weights.strategy == "tensor":
            raise ModelError(
                f"{self._name(used[0])}: zero points with one scale per tensor, expected"
                " groups or channels"
            )
        else:
            zeros = self._name("weight_zero_point")
            if self._bytes:
                self._files.check(zeros, ("I8",), (rows, groups))
            else:
                self._files.check(zeros, ("I32",), (-(-rows // PACK), groups))
            used.append("weight_zero_point")
        if self._weights.ordered:
            self._files.check(self._name("weight_g_idx"), ("I32", "I64"), (k,))
            used.append("weight_g_idx")
        return used

    def _check_shape(self, rows: int, k: int) -> None:
        name = self._name("weight_shape")
        self._files.check(name, ("I64", "I32"), (2,))
        found = self._files.array(name).tolist()
        if found != [rows, k]:
            raise ModelError(f"{name}: is {found}, expected {[rows, k]} by config.json")

    def _check_zero(self, part: str, *shapes: tuple[int, ...]) -> list[str]:
        """Zero points of symmetric values may be stored, but must be zero."""
        name = self._name(part)
        if not self._files.has(name):
            return []
        self._files.check(name, ("I8", "I32", "I64", *FLOATS), *shapes, (1,), ())
        if self._files.array(name).any():
            raise ModelError(f"{name}: is not zero, expected none with symmetric values")
        return [part]

    def _scales(self, rows: slice) -> NDArray[np.float16]:
        name = self._name("weight_scale")
        if self._weights.strategy == "tensor":
            wide = np.broadcast_to(
                self._files.floats(name).reshape(1, 1), (rows.stop - rows.start, 1)
            )
        else:
            half = self._files.half(name, rows)
            if half is not None:
                return half
            wide = self._files.floats(name, rows)
        with np.errstate(over="ignore"):
            half = wide.astype(np.float16)
        if np.isinf(half).any():
            raise ModelError(f"{name}: scale {wide.max()} is out of FP16's range, below 65520")
        return half

    def _zeros(self, start: int, stop: int) -> NDArray[np.uint8]:
        """A byte each, or packed along the rows, eight rows per INT32."""
        if self._bytes:
            return self._shifted("weight_zero_point", self._rows(start, stop))
        first, last = self._source.first + start, self._source.first + stop
        packed = self._files.array(self._name("weight_zero_point"))
        words = packed[first // PACK : -(-last // PACK)].T
        offset = first // PACK * PACK
        zeros = unpack_nibbles(np.ascontiguousarray(words), PACK * words.shape[1])
        return np.ascontiguousarray(zeros[:, first - offset : last - offset].T)


def unpack_nibbles(words: NDArray[np.int32], count: int) -> NDArray[np.uint8]:
    """INT32 [rows, n] -> the first `count` 4-bit values of each row, uint8, low bits first."""
    raw: NDArray[np.uint8] = np.ascontiguousarray(words).view(np.uint8)
    pairs = np.stack([raw & np.uint8(15), raw >> np.uint8(4)], axis=-1)
    return np.ascontiguousarray(pairs.reshape(len(raw), -1)[:, :count])


def pack_nibbles(values: NDArray[np.uint8]) -> NDArray[np.int32]:
    """4-bit values [rows, n], 0..15, low bits first: INT32 [rows, ceil(n/8)]."""
    rows, count = values.shape
    padded = np.zeros((rows, -(-count // PACK) * PACK), np.uint8)
    padded[:, :count] = values
    raw = np.ascontiguousarray(padded[:, 0::2] | (padded[:, 1::2] << 4))
    words: NDArray[np.int32] = raw.view(np.int32)
    return words


def _repeated(values: NDArray[Element], groups: int) -> NDArray[Element]:
    """[rows, n] with each column repeated, `groups` of them altogether."""
    if values.shape[1] == groups:
        return values
    return np.repeat(values, groups // values.shape[1], axis=1)
