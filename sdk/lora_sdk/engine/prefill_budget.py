"""How many rows of a step prompts get while streams run.

Each stream gets a token a step, and a step takes longer with more rows: about `a + c * rows`, as
the last steps show. Rows of prompts may stretch a step to `STRETCH` times what its other rows take,
and have a minimum share. No token depends on it.
"""

from __future__ import annotations

STRETCH = 2.0
MIN_SHARE = 16  # prompts have at least one row of so many
_KEPT = 0.97  # weight of a step beside the one after it


class PrefillBudget:
    """What steps took: a line through their rows and seconds, the last steps before others."""

    def __init__(self, row_limit: int) -> None:
        self.share = max(1, row_limit // MIN_SHARE)
        self._fixed = 0.0  # a/c: how many rows the fixed part of a step is worth
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def note(self, rows: int, seconds: float) -> None:
        """A step of so many rows has taken so long."""
        self._weight = _KEPT * self._weight + 1
        self._rows = _KEPT * self._rows + rows
        self._seconds = _KEPT * self._seconds + seconds
        self._squares = _KEPT * self._squares + rows * rows
        self._products = _KEPT * self._products + rows * seconds
        spread = self._weight * self._squares - self._rows**2
        slope = self._weight * self._products - self._rows * self._seconds
        if spread > 1e-3 * self._squares and slope > 0:  # else these steps do not tell
            fixed = self._seconds * self._squares - self._rows * self._products
            self._fixed = max(0.0, fixed / slope)

    def prompt_rows(self, other_rows: int) -> int:
        """Max rows of prompts in a step that has `other_rows` besides."""
        return max(self.share, round((STRETCH - 1) * (self._fixed + other_rows)))
