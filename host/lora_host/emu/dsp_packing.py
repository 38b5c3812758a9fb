"""Two INT8 products from one DSP48E2 multiplier, P = (A + B) * C (LORA, section V.A).

The paper's text puts one activation into B, the other into C and the weight into A. That product
contains a0*a1, and w only once. A packed pair needs both activations at the adder and their shared
weight at the other operand:

    A = a0, B = a1 * 2^18, C = w;  low = signed P[17:0] = a0*w, high = (P - low) >> 18 = a1*w.

The subtraction undoes the borrow of a negative low product. A + B needs 27 bits, the pre-adder's
width. The MPU's INT8 kernels give the same sums, so packing never changes a result
(docs/numbers.md, 11).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOW_BITS = 18
PREADDER_BITS = 27
PRODUCTS_PER_PASS = 8  # 8 * 127^2 < 2^17: max before the low field overflows

I64 = NDArray[np.int64]


def pack(a0: Any, a1: Any) -> I64:
    """A + B for INT8 activations, int64 of the same shape. Fits the 27-bit pre-adder."""
    return np.asarray(a0, np.int64) + (np.asarray(a1, np.int64) << LOW_BITS)


def unpack(p: I64) -> tuple[I64, I64]:
    """(low, high) of a product or a sum of at most PRODUCTS_PER_PASS products, int64."""
    half = 1 << LOW_BITS - 1
    low = ((p + half) & ((1 << LOW_BITS) - 1)) - half
    return low, (p - low) >> LOW_BITS


def packed_product(a0: Any, a1: Any, w: Any) -> tuple[I64, I64]:
    """(a0*w, a1*w) by one multiplication; all INT8, -128..127, broadcast against each other."""
    return unpack(pack(a0, a1) * np.asarray(w, np.int64))


def packed_dot(a0: Any, a1: Any, w: Any) -> tuple[int, int]:
    """(a0.w, a1.w) of three INT8 vectors [K] in -127..127, as in a multiplier's accumulator:
    PRODUCTS_PER_PASS products summed while packed, then both sums taken out."""
    low = high = 0
    for start in range(0, len(w), PRODUCTS_PER_PASS):
        part = slice(start, start + PRODUCTS_PER_PASS)
        p = np.sum(pack(a0[part], a1[part]) * np.asarray(w[part], np.int64))
        first, second = unpack(np.asarray(p))
        low, high = low + int(first), high + int(second)
    return low, high
