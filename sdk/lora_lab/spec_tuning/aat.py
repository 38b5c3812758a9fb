"""Mean emitted tokens per verification (AAT) as a curve over the verification length.

AAT(x) = A + B ln(x - C) for x rows (equation 3 of the tree-speculation paper), fitted to a few
measured lengths. If the fit is poor on other lengths, the interpolated measurement is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError

MAX_FITTED = 5
"""Max number of lengths that a fit uses."""

ENOUGH_R2 = 0.98
"""The fit is not used if its R2 on the other lengths is below this."""

Floats = NDArray[np.float64]


class AatCurve(Protocol):
    """Mean emitted tokens of a verification of `rows` rows; 1 for one row."""

    def __call__(self, rows: int) -> float: ...


@dataclass(frozen=True)
class LogFit:
    """A + B ln(x - C) for two or more rows. One row emits one token."""

    a: float
    b: float
    c: float

    def __call__(self, rows: int) -> float:
        """At least 1, the target's own token, and at most a token a row."""
        if rows <= 1:
            return 1.0
        return min(float(rows), max(1.0, self.a + self.b * math.log(rows - self.c)))


@dataclass(frozen=True)
class Interpolated:
    """A measurement made monotone: linear in ln(x) between lengths, flat beyond the last."""

    rows: tuple[int, ...]
    values: tuple[float, ...]

    def __call__(self, rows: int) -> float:
        """At least 1."""
        return max(1.0, float(np.interp(math.log(rows), np.log(self.rows), self.values)))


@dataclass(frozen=True)
class ChosenCurve:
    """The curve of the tuner. `used`: "fit" or "measurement". `r2`: of the fit on the `tested`
    lengths, which are not among the `fitted` ones."""

    curve: AatCurve
    used: str
    fit: LogFit
    r2: float
    fitted: tuple[int, ...]
    tested: tuple[int, ...]


def fit_sizes(largest: int) -> tuple[int, ...]:
    """At most five lengths from 2 to `largest`, evenly spaced in their logarithm.

    RequestError: fewer than three lengths, which A, B and C need."""
    spread = np.geomspace(2, max(largest, 2), MAX_FITTED)
    found = tuple(sorted({round(float(size)) for size in spread}))
    if len(found) < 3:
        raise RequestError(f"AAT up to {largest} rows cannot be fitted; expected at least 4 rows")
    return found


def fit_aat(measured: Mapping[int, float]) -> LogFit:
    """Least-squares fit of equation 3 to {rows: AAT}, 3 to 5 lengths of two or more rows.

    For a given C, A and B are linear. C is searched below the smallest length. RequestError:
    another number of lengths, a length below 2, a value that is not a number."""
    if not 3 <= len(measured) <= MAX_FITTED:
        raise RequestError(f"{len(measured)} lengths to fit AAT to; expected 3 to {MAX_FITTED}")
    rows, values = _arrays(measured)
    low, high = math.log(1e-3), math.log(1e3)
    for _ in range(4):  # a grid over ln(smallest length - C), then finer ones around its best
        grid = np.linspace(low, high, 201)
        errors = [_line(rows, values, rows[0] - math.exp(place))[2] for place in grid]
        best = int(np.argmin(errors))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    c = float(rows[0] - math.exp(grid[best]))
    a, b, _ = _line(rows, values, c)
    return LogFit(a, b, c)


def _line(rows: Floats, values: Floats, c: float) -> tuple[float, float, float]:
    """A and B (B >= 0) for this C, and the squared error."""
    logs = np.log(rows - c)
    spread = logs - logs.mean()
    b = max(0.0, float(spread @ (values - values.mean()) / (spread @ spread)))
    a = float(values.mean() - b * logs.mean())
    error = values - a - b * logs
    return a, b, float(error @ error)


def r_squared(curve: AatCurve, measured: Mapping[int, float]) -> float:
    """Share of the variance of {rows: AAT} that the curve explains. May be negative.

    For a measurement without variance: 1 if the curve is within 1e-9, else 0."""
    rows, values = _arrays(measured)
    error = values - np.array([curve(int(x)) for x in rows])
    spread = values - values.mean()
    whole = float(spread @ spread)
    if whole < 1e-12:
        return 1.0 if float(np.abs(error).max()) < 1e-9 else 0.0
    return 1.0 - float(error @ error) / whole


def monotone(measured: Mapping[int, float]) -> Interpolated:
    """The non-decreasing least-squares approximation (pool adjacent violators), as a curve.

    One row emits one token."""
    rows, values = _arrays({**measured, 1: 1.0}, min_rows=1)
    blocks: list[list[float]] = []  # mean, count
    for value in values:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            before = blocks[-1]
            total = before[1] + count
            before[0] = (before[0] * before[1] + mean * count) / total
            before[1] = total
    pooled = [mean for mean, count in blocks for _ in range(int(count))]
    return Interpolated(tuple(int(x) for x in rows), tuple(pooled))


def choose_curve(
    fitted: Mapping[int, float], held_out: Mapping[int, float], least_r2: float = ENOUGH_R2
) -> ChosenCurve:
    """The fit of `fitted` {rows: AAT} if it explains `held_out` well enough on the lengths that it
    was not fitted to. Else `held_out`, monotone and interpolated.

    RequestError: `held_out` has no other length."""
    fit = fit_aat(fitted)
    others = {rows: value for rows, value in held_out.items() if rows not in fitted and rows > 1}
    if not others:
        raise RequestError("AAT was measured only on the fitted lengths; expected others too")
    r2 = r_squared(fit, others)
    use_fit = r2 >= least_r2
    curve: AatCurve = fit if use_fit else monotone(held_out)
    used = "fit" if use_fit else "measurement"
    return ChosenCurve(curve, used, fit, r2, tuple(sorted(fitted)), tuple(sorted(others)))


def _arrays(measured: Mapping[int, float], min_rows: int = 2) -> tuple[Floats, Floats]:
    rows: Sequence[int] = sorted(measured)
    for size in rows:
        if size < min_rows or not math.isfinite(measured[size]):
            raise RequestError(
                f"AAT {measured[size]} of {size} rows; expected numbers for {min_rows} rows or more"
            )
    return np.array(rows, dtype=np.float64), np.array([measured[size] for size in rows])
