"""Types of a GGUF file's tensors. Numbers in blocks become FP32 by the reference formulas of ggml:
products and sums as they are written here, each rounded to FP32 (docs/quantization.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError

Bytes = NDArray[np.uint8]
F32 = NDArray[np.float32]
Dequantize = Callable[[Bytes], F32]
SUPER = 256  # weights of a block of the K types


@dataclass(frozen=True)
class TensorType:
    """`elements` of a block and its `bytes`. `dequantize`: blocks [n, bytes] -> FP32
    [n, elements]; None where elements are plain numbers."""

    name: str
    elements: int
    bytes: int
    dequantize: Dequantize | None = None


@dataclass(frozen=True, eq=False)
class BlockArray:
    """A matrix stored in blocks along its rows: indexing by rows (a slice, or an array of numbers),
    and by columns after that, gives FP32 values. `raw` uint8 [rows, bytes of a row]."""

    raw: Bytes
    type: TensorType
    shape: tuple[int, int]

    dtype = np.dtype(np.float32)
    itemsize = 4
    ndim = 2

    @property
    def size(self) -> int:
        """Elements."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, index: Any) -> F32:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        chosen = np.ascontiguousarray(self.raw[rows])
        assert self.type.dequantize is not None
        with np.errstate(over="ignore", invalid="ignore"):  # found when they become FP16
            wide = self.type.dequantize(chosen.reshape(-1, self.type.bytes))
        return wide.reshape(-1, self.shape[1])[:, columns]


def tensor_type(number: int, where: str) -> TensorType:
    """The type of this number, which `check_readable` may refuse. ModelError: an unknown number."""
    found = _TYPES.get(number) or _OTHERS.get(number)
    if found is None:
        raise _unsupported(f"number {number}", where)
    return found


def named_type(name: str) -> TensorType:
    """The type of this name, whose numbers are read."""
    return next(kind for kind in _TYPES.values() if kind.name == name)


def check_readable(kind: TensorType, where: str) -> None:
    """ModelError: a type whose numbers are not read, by its name."""
    if kind not in _TYPES.values():
        raise _unsupported(kind.name, where)


def _unsupported(name: str, where: str) -> ModelError:
    return ModelError(
        f"{where} has the type {name}, which is not supported; expected one of "
        f"{', '.join(kind.name for kind in _TYPES.values())}: convert the model to one of these"
    )


def _half(raw: Bytes) -> F32:
    """An FP16 number of each block [n, 2] as FP32 [n, 1]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _nibbles(raw: Bytes, run: int) -> Bytes:
    """4-bit values: of each `run` bytes all low halves, then all high ones."""
    parts = raw.reshape(len(raw), -1, 1, run)
    return np.concatenate([parts & np.uint8(15), parts >> np.uint8(4)], axis=2).reshape(
        len(raw), -1
    )


def _pairs(raw: Bytes, run: int) -> Bytes:
    """2-bit values: of each `run` bytes the lowest two bits of all, then the next."""
    parts = raw.reshape(len(raw), -1, 1, run)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    found: Bytes = (parts >> shifts) & np.uint8(3)
    return found.reshape(len(raw), -1)


def _bits(raw: Bytes, run: int) -> Bytes:
    """Bits: of each `run` bytes the lowest bit of all, then the next."""
    parts = raw.reshape(len(raw), -1, 1, run)
    shifts = np.arange(8, dtype=np.uint8).reshape(1, 1, 8, 1)
    found: Bytes = (parts >> shifts) & np.uint8(1)
    return found.reshape(len(raw), -1)


def _q4_0(raw: Bytes) -> F32:
    found: F32 = _half(raw[:, :2]) * (_nibbles(raw[:, 2:], 16).astype(np.float32) - np.float32(8))
    return found


def _q4_1(raw: Bytes) -> F32:
    return _half(raw[:, :2]) * _nibbles(raw[:, 4:], 16).astype(np.float32) + _half(raw[:, 2:4])


def _five(raw: Bytes) -> F32:
    """4 bytes with the fifth bits, the first value's in the lowest place; then 16 of nibbles."""
    high = np.unpackbits(raw[:, :4], axis=1, bitorder="little")
    values: Bytes = _nibbles(raw[:, 4:], 16) | high << np.uint8(4)
    return values.astype(np.float32)


def _q5_0(raw: Bytes) -> F32:
    found: F32 = _half(raw[:, :2]) * (_five(raw[:, 2:]) - np.float32(16))
    return found


def _q5_1(raw: Bytes) -> F32:
    return _half(raw[:, :2]) * _five(raw[:, 4:]) + _half(raw[:, 2:4])


def _q8_0(raw: Bytes) -> F32:
    values = np.ascontiguousarray(raw[:, 2:]).view(np.int8).astype(np.float32)
    found: F32 = _half(raw[:, :2]) * values
    return found


def _spread(values: F32, run: int, count: int) -> F32:
    """Values [n, count*run] in rows [n*count, run] of which each has one scale."""
    return values.reshape(-1, count, run)


def _q2_k(raw: Bytes) -> F32:
    scales, quants = raw[:, :16], _pairs(raw[:, 16:80], 32)
    scale = (_half(raw[:, 80:82]) * (scales & np.uint8(15)).astype(np.float32))[:, :, None]
    least = (_half(raw[:, 82:84]) * (scales >> np.uint8(4)).astype(np.float32))[:, :, None]
    found: F32 = scale * _spread(quants.astype(np.float32), 16, 16) - least
    return found.reshape(len(raw), SUPER)


def _q3_k(raw: Bytes) -> F32:
    """The third bit is inverted: without it 4 is subtracted."""
    low, high = _pairs(raw[:, 32:96], 32), _bits(raw[:, :32], 32)
    packed = raw[:, 96:108]
    four = np.concatenate([packed[:, :8] & np.uint8(15), packed[:, :8] >> np.uint8(4)], axis=1)
    scales = (four | _pairs(packed[:, 8:], 4) << np.uint8(4)).astype(np.float32) - np.float32(32)
    scale = (_half(raw[:, 108:110]) * scales)[:, :, None]
    quants = low.astype(np.float32) - (np.uint8(1) - high).astype(np.float32) * np.float32(4)
    found: F32 = scale * _spread(quants, 16, 16)
    return found.reshape(len(raw), SUPER)


def _six(packed: Bytes) -> tuple[F32, F32]:
    """Eight scales and eight minima of 6 bits each, from 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    top = np.uint8(0x30)
    scales = [first & np.uint8(63), (third & np.uint8(15)) | (first >> np.uint8(2) & top)]
    least = [second & np.uint8(63), (third >> np.uint8(4)) | (second >> np.uint8(2) & top)]
    joined = (np.concatenate(part, axis=1).astype(np.float32) for part in (scales, least))
    return next(joined), next(joined)


def _with_minima(raw: Bytes, quants: Bytes) -> F32:
    """What Q4_K and Q5_K share: two FP16 numbers and 12 bytes of scales and minima."""
    scales, minima = _six(raw[:, 4:16])
    scale = (_half(raw[:, :2]) * scales)[:, :, None]
    least = (_half(raw[:, 2:4]) * minima)[:, :, None]
    found: F32 = scale * _spread(quants.astype(np.float32), 32, 8) - least
    return found.reshape(len(raw), SUPER)


def _q4_k(raw: Bytes) -> F32:
    return _with_minima(raw, _nibbles(raw[:, 16:], 32))


def _q5_k(raw: Bytes) -> F32:
    return _with_minima(raw, _nibbles(raw[:, 48:], 32) | _bits(raw[:, 16:48], 32) << np.uint8(4))


def _q6_k(raw: Bytes) -> F32:
    quants = _nibbles(raw[:, :128], 64) | _pairs(raw[:, 128:192], 32) << np.uint8(4)
    scales = np.ascontiguousarray(raw[:, 192:208]).view(np.int8).astype(np.float32)
    scale = (_half(raw[:, 208:210]) * scales)[:, :, None]
    found: F32 = scale * _spread(quants.astype(np.float32) - np.float32(32), 16, 16)
    return found.reshape(len(raw), SUPER)


_IQ4 = np.array(
    (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.float32
)  # what the 4-bit values of IQ4_NL and IQ4_XS mean
_E2M1 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.float32)  # halves


def _iq4_nl(raw: Bytes) -> F32:
    found: F32 = _half(raw[:, :2]) * _IQ4[_nibbles(raw[:, 2:], 16)]
    return found


def _iq4_xs(raw: Bytes) -> F32:
    """Scales of 6 bits for 32 values each: four bytes with the low halves, two with the rest."""
    high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    low = np.stack((raw[:, 4:8] & np.uint8(15), raw[:, 4:8] >> np.uint8(4)), axis=2)
    six = low.reshape(len(raw), 8) | (high.astype(np.uint8) & np.uint8(3)) << np.uint8(4)
    scale = (_half(raw[:, :2]) * (six.astype(np.float32) - np.float32(32)))[:, :, None]
    found: F32 = scale * _spread(_IQ4[_nibbles(raw[:, 8:], 16)], 32, 8)
    return found.reshape(len(raw), SUPER)


def _mxfp4(raw: Bytes) -> F32:
    """A power of two, 2^(e - 127), half of which is multiplied by a whole number."""
    exponent = raw[:, :1].astype(np.uint32)
    small = np.uint32(0x00200000) << np.minimum(exponent, 1)  # denormal halves
    bits = np.where(exponent < 2, small, (np.maximum(exponent, 1) - 1) << np.uint32(23))
    found: F32 = bits.astype(np.uint32).view(np.float32) * _E2M1[_nibbles(raw[:, 1:], 16)]
    return found


_TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    30: TensorType("BF16", 1, 2),
    2: TensorType("Q4_0", 32, 18, _q4_0),
    3: TensorType("Q4_1", 32, 20, _q4_1),
    6: TensorType("Q5_0", 32, 22, _q5_0),
    7: TensorType("Q5_1", 32, 24, _q5_1),
    8: TensorType("Q8_0", 32, 34, _q8_0),
    10: TensorType("Q2_K", SUPER, 84, _q2_k),
    11: TensorType("Q3_K", SUPER, 110, _q3_k),
    12: TensorType("Q4_K", SUPER, 144, _q4_k),
    13: TensorType("Q5_K", SUPER, 176, _q5_k),
    14: TensorType("Q6_K", SUPER, 210, _q6_k),
    20: TensorType("IQ4_NL", 32, 18, _iq4_nl),
    23: TensorType("IQ4_XS", SUPER, 136, _iq4_xs),
    39: TensorType("MXFP4", 32, 17, _mxfp4),
}
# Known by their sizes, so that a file that has them can be listed.
_OTHERS = {
    number: TensorType(name, elements, size)
    for number, name, elements, size in (
        (9, "Q8_1", 32, 40), (15, "Q8_K", SUPER, 292), (16, "IQ2_XXS", SUPER, 66),
        (17, "IQ2_XS", SUPER, 74), (18, "IQ3_XXS", SUPER, 98), (19, "IQ1_S", SUPER, 50),
        (21, "IQ3_S", SUPER, 110), (22, "IQ2_S", SUPER, 82), (24, "I8", 1, 1), (25, "I16", 1, 2),
        (26, "I32", 1, 4), (27, "I64", 1, 8), (28, "F64", 1, 8), (29, "IQ1_M", SUPER, 56),
        (34, "TQ1_0", SUPER, 54), (35, "TQ2_0", SUPER, 66), (40, "NVFP4", 64, 36),
        (41, "Q1_0", 128, 18),
    )
}  # fmt: skip
