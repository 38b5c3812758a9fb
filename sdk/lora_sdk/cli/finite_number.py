"""Numbers on the command line: finite, in a range."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteNumber(click.FloatRange):
    """A float in a range, limits included. "nan" is in no range, which click does not see."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__(low, high)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(
                f"{value} is no finite number; {self.min:g} to {self.max:g} expected", param, ctx
            )
        return float(super().convert(value, param, ctx))
