"""4-bit values in 32-bit words, eight per word, as GPTQ and AWQ store them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WORD_VALUES = 8
IN_ORDER = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Index of the value in each four bits of a word, lowest bits first."""

U8 = NDArray[np.uint8]


def values_along_rows(words: NDArray[Any]) -> U8:
    """GPTQ's weights: int32 [K/8, n], eight inputs per word, lowest bits first -> uint8 [n, K]."""
    columns = np.ascontiguousarray(words.T).view(np.uint32)
    return _unpacked(columns, IN_ORDER)


def values_along_columns(
    words: NDArray[Any], start: int, stop: int, order: tuple[int, ...] = IN_ORDER, plus: int = 0
) -> U8:
    """Outputs start..stop-1 of int32 [rows, N/8], eight outputs per word in `order` -> uint8
    [stop-start, rows]. `plus` is added to each word as a whole first, which carries from value to
    value: GPTQ v1's zero points were made by such a subtraction."""
    first, last = start // WORD_VALUES, -(-stop // WORD_VALUES)
    part = np.ascontiguousarray(words[:, first:last]).view(np.uint32) + np.uint32(plus)
    rows = _unpacked(part, order)
    low = start - first * WORD_VALUES
    return np.ascontiguousarray(rows[:, low : low + stop - start].T)


def _unpacked(words: NDArray[np.uint32], order: tuple[int, ...]) -> U8:
    """[rows, W] words -> [rows, 8*W] values."""
    values = np.empty((*words.shape, WORD_VALUES), np.uint8)
    for nibble, index in enumerate(order):
        values[..., index] = words >> np.uint32(4 * nibble) & np.uint32(15)
    return values.reshape(len(words), -1)
