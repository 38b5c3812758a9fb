"""Scalar functions of the arithmetic contract (docs/numbers.md, 1 and 4), elementwise over NumPy
arrays.

The operations have the same order as in C, with one rounding each, so the results are bit-exact.
FP32 stays FP32: NumPy never fuses multiply and add, and no float64 value is involved. No libm
function is called; the coefficients are the committed ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lora_host.coefficients import coefficients

F16 = NDArray[np.float16]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

FP16_NAN = np.uint16(0x7E00)  # the only stored NaN
FP32_NAN = np.uint32(0x7FC00000)
SINCOS_LIMIT = float(2**20)  # |x|*2/pi up to which n*P1 and n*P2 are exact

_ZERO, _ONE = np.float32(0), np.float32(1)
_QUIET = {"over": "ignore", "invalid": "ignore", "divide": "ignore", "under": "ignore"}


def quiet() -> np.errstate:
    """Suppresses NumPy's warnings: infinity and NaN are counted when they are stored."""
    return np.errstate(**_QUIET)  # type: ignore[arg-type]


@cache
def _scalar(name: str) -> Any:
    return coefficients(name)[0]


def to_fp16(x: F32, out: F16 | None = None) -> F16:
    """FP32 to FP16, nearest even; overflow gives infinity, every NaN becomes 0x7e00
    (docs/numbers.md, 1.2)."""
    result = np.empty(x.shape, np.float16) if out is None else out
    with quiet():
        np.copyto(result, x, casting="same_kind")
    nan = np.isnan(result)
    if nan.any():
        result.view(np.uint16)[nan] = FP16_NAN
    return result


def bf16(x: F32) -> F32:
    """Finite FP32 values rounded to BF16, nearest even, as FP32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) & np.uint32(0xFFFF0000)
    found: F32 = rounded.view(np.float32)
    return found


def canonical_fp32(x: F32) -> F32:
    """In place: every NaN becomes 0x7fc00000."""
    nan = np.isnan(x)
    if nan.any():
        x.view(np.uint32)[nan] = FP32_NAN
    return x


def _two_to_the(n: NDArray[np.int32]) -> F32:
    y: F32 = ((n + np.int32(127)) << np.int32(23)).view(np.float32)
    return y


def exp32(x: F32) -> F32:
    """exp in FP32: below -87 +0, above FP32(88.7) +infinity, NaN stays NaN
    (docs/numbers.md, 4.1)."""
    low, high = _scalar("exp_min"), _scalar("exp_max")
    x = np.asarray(x, np.float32)
    inside = (x >= low) & (x <= high)
    safe = np.where(inside, x, _ZERO)
    n = np.rint(safe * _scalar("log2e"))
    r = (safe - n * _scalar("ln2_hi")) - n * _scalar("ln2_lo")
    table = coefficients("exp_c")
    p = np.full_like(r, table[0])
    for c in table[1:]:
        np.multiply(p, r, out=p)
        np.add(p, c, out=p)
    whole = n.astype(np.int32)
    half = whole >> np.int32(1)
    y: F32 = p * _two_to_the(half) * _two_to_the(whole - half)
    if not inside.all():
        outside = np.where(x < low, _ZERO, np.where(x > high, np.float32(np.inf), x))
        y = np.where(inside, y, outside)
    return y


def silu(g: F32) -> F32:
    """g / (1 + exp(-g)) in FP32 (docs/numbers.md, 3.10)."""
    with quiet():
        y: F32 = g / (_ONE + exp32(-g))
    return y


def tanh32(x: F32) -> F32:
    """tanh in FP32: a polynomial below 5/8, else by exp (docs/numbers.md, 4.7)."""
    with quiet():
        size = np.abs(x)
        far = np.copysign(_ONE - np.float32(2) / (exp32(size + size) + _ONE), x)
        table, z = coefficients("tanh_c"), x * x
        p = np.full_like(z, table[0])
        for c in table[1:]:
            p = p * z + c
        near = x + (x * z) * p
    y: F32 = np.where(size < np.float32(0.625), near, far)
    return y


def soft_cap(x: F32, cap: np.float32) -> F32:
    """tanh(x*(1/cap))*cap in FP32 (docs/numbers.md, 3.14)."""
    with quiet():
        capped: F32 = tanh32(x * (_ONE / cap)) * cap
    return capped


def relu(x: F32) -> F32:
    """x above 0, NaN for NaN, else +0 (docs/numbers.md, 3.10)."""
    return np.where((x > _ZERO) | np.isnan(x), x, _ZERO)


def gelu(x: F32, kind: str) -> F32:
    """GELU by 1024 chords on [-8, 8), `kind` "tanh" or "erf"; +0 below -8, x from 8 on, NaN for NaN
    (docs/numbers.md, 4.2)."""
    slopes, shifts = coefficients(f"gelu_{kind}_a"), coefficients(f"gelu_{kind}_b")
    inside = (x >= np.float32(-8)) & (x < np.float32(8))
    safe = np.where(inside, x, _ZERO)
    index = np.floor(safe * np.float32(64)).astype(np.int32) + np.int32(512)
    y = slopes[index] * safe
    y = y + shifts[index]
    return np.where(inside, y, np.where(x < np.float32(-8), _ZERO, x))


def _horner(table: NDArray[Any], x: F64) -> F64:
    p: F64 = np.full_like(x, table[0])
    for c in table[1:]:
        p = p * x + c
    return p


def log2_64(x: ArrayLike) -> F64:
    """log2 in float64. ValueError if x is not positive, normal and finite
    (docs/numbers.md, 4.3)."""
    x = np.asarray(x, np.float64)
    if not np.all((x >= np.finfo(np.float64).tiny) & (x < np.inf)):
        raise ValueError("log2_64: every value must be positive, normal and finite")
    m, exponent = np.frexp(x)  # exact: m in [1/2, 1)
    small = m < _scalar("sqrt_half")
    m = np.where(small, m + m, m)
    exponent = exponent - small
    s = (m - 1.0) / (m + 1.0)
    y: F64 = exponent.astype(np.float64) + s * _horner(coefficients("log2_c"), s * s)
    return y


def ln_64(x: ArrayLike) -> F64:
    """The natural logarithm in float64, as log2_64 (docs/numbers.md, 4.3)."""
    y: F64 = log2_64(x) * _scalar("ln2")
    return y


def exp2_64(x: ArrayLike) -> F64:
    """2^x in float64; below -1022 +0, from 1024 on +infinity, NaN stays NaN
    (docs/numbers.md, 4.4)."""
    x = np.asarray(x, np.float64)
    inside = (x >= -1022.0) & (x < 1024.0)
    safe = np.where(inside, x, 0.0)
    n = np.rint(safe)
    p = _horner(coefficients("exp2_c"), safe - n)
    whole = n.astype(np.int64)
    half = whole >> 1
    y = p * _two_to_the_64(half) * _two_to_the_64(whole - half)
    outside = np.where(x < -1022.0, 0.0, np.where(x >= 1024.0, np.inf, x))
    return np.where(inside, y, outside)


def _two_to_the_64(n: NDArray[np.int64]) -> F64:
    y: F64 = ((n + 1023) << 52).view(np.float64)
    return y


def power_64(base: ArrayLike, exponent: ArrayLike) -> F64:
    """base^exponent in float64 as exp2_64(exponent * log2_64(base)); base: positive, finite."""
    return exp2_64(np.asarray(exponent, np.float64) * log2_64(base))


def sincos_64(x: ArrayLike) -> tuple[F64, F64]:
    """(sin x, cos x) in float64. ValueError unless |x| is below about 1.6 million
    (docs/numbers.md, 4.5)."""
    x = np.asarray(x, np.float64)
    n = np.rint(x * _scalar("two_over_pi"))
    if not np.all(np.abs(n) <= SINCOS_LIMIT):
        raise ValueError("sincos_64: |x| must stay below 2^20 * pi/2")
    p1, p2, p3 = coefficients("half_pi")
    r = ((x - n * p1) - n * p2) - n * p3
    square = r * r
    s = r * _horner(coefficients("sin_c"), square)
    c = _horner(coefficients("cos_c"), square)
    quadrant = n.astype(np.int64) & 3
    swapped = (quadrant & 1).astype(bool)
    sine: F64 = np.where(swapped, c, s)
    cosine: F64 = np.where(swapped, s, c)
    sine = np.where(quadrant & 2, -sine, sine)
    cosine = np.where((quadrant + 1) & 2, -cosine, cosine)
    return sine, cosine
