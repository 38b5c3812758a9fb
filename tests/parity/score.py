"""The parity criterion: what is kept of transformers' logits, and how ours are held against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.variant_tensors import normal
from tests.variants import Scale, Variant, variant

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "parity"
PROMPTS = (333, 118, 75)  # positions of each prompt: 526 together
KEPT = 18  # positions whose logits are kept whole
SCALES: tuple[Scale, ...] = ("init", "x3")
BOUND = {"init": 0.006, "x3": 0.013}  # of the logits' standard deviation
EXCUSED = {"init": 0.06, "x3": 0.12}  # of the positions: top two closer than twice the bound

NOISE = 2  # times the worst error of transformers' own float16, where that is beyond the bound
ROUTE = 0.004  # of the deviation of a router's logits: a row nearer to another expert is excused
REROUTED = 0.04  # of the positions, at most

Arrays = Mapping[str, NDArray[Any]]


def load_fixture(name: str) -> Arrays:
    """The committed results of a variant, made by tests/fixtures/make_parity.py."""
    with np.load(FOLDER / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


def prompts(which: Variant) -> list[NDArray[np.int64]]:
    """Random token ids, the same on every machine."""
    size = which.config["vocab_size"]
    draws = [normal(f"{which.name}/prompt{i}", count) for i, count in enumerate(PROMPTS)]
    return [(np.abs(draw) * 1e6).astype(np.int64) % size for draw in draws]


def first_tokens(name: str, length: int) -> list[int]:
    """The first tokens of a variant's first prompt."""
    return prompts(variant(name))[0][:length].tolist()


def kept_positions(total: int) -> NDArray[np.int64]:
    """Which of all positions, in prompt order, are kept whole: spread evenly, the last included."""
    return np.linspace(0, total - 1, KEPT).astype(np.int64)


def summarize(
    logits: Sequence[NDArray[np.float32]],
    margins: Sequence[NDArray[np.float32]] = (),
    half: Sequence[NDArray[np.float32]] = (),
) -> dict[str, NDArray[Any]]:
    """Of transformers' logits a prompt: argmax, gap of the top two, deviation, some rows whole. Of
    its routers' `margins`, the layers' of each prompt, the least of each position. Of `half`, its
    logits in float16, the worst and the median error of the rows that are kept."""
    every = np.concatenate(logits)
    top = np.sort(every, axis=1)
    each = len(margins) // len(logits)
    near = [np.min(margins[at : at + each], axis=0) for at in range(0, len(margins), each or 1)]
    routes = {"route": np.concatenate(near).astype(np.float32)} if near else {}
    kept, std = every[kept_positions(len(every))], np.float64(every.std(dtype=np.float64))
    if half:
        errors = np.abs(np.concatenate(half)[kept_positions(len(every))] - kept).max(axis=1) / std
        routes["half"], routes["half_middle"] = errors.max(), np.median(errors)
    return routes | {
        "argmax": every.argmax(axis=1).astype(np.uint16),
        "gap": (top[:, -1] - top[:, -2]).astype(np.float32),
        "std": std,
        "logits": kept,
    }


@dataclass(frozen=True)
class Score:
    """How near our logits are. `worst` is the largest error over the kept rows, `middle` the median
    of the rows' largest errors, `limit` and `middle_limit` what they may be, `excused` the share of
    positions whose top two are too close to be held to, `wrong` positions that differ and are not
    excused; errors are in parts of the logits' standard deviation. `near` is the share of positions
    of which some router's choice is too close to be held to: neither their errors nor their argmax
    count."""

    worst: float
    middle: float
    limit: float
    middle_limit: float
    excused: float
    wrong: tuple[int, ...]
    positions: int
    near: float = 0.0

    def passes(self, scale: Scale) -> bool:
        """True where all limits of the scale hold."""
        close = self.worst <= self.limit and self.middle <= self.middle_limit
        return close and self.excused <= EXCUSED[scale] and not self.wrong and self.near <= REROUTED


def error_limit(fixture: Arrays, scale: Scale, which: str = "half") -> float:
    """The largest error of a row, in parts of the deviation; "half_middle": that of the median row.
    Some rows of a model with a delta rule magnify every rounding: where a state has hardly anything
    along a query, its norm enlarges what is left. There float16 of transformers is as far off as
    ours, and gives the limit: two draws of such noise differ by up to 1.7 times."""
    return max(BOUND[scale], NOISE * float(fixture.get(f"{scale}_{which}", 0.0)))


def score(
    ours: Sequence[NDArray[np.float32]], fixture: Arrays, scale: Scale, first: int = 0
) -> Score:
    """Hold logits of the prompts from number `first` on, [len, vocabulary] each, against the
    fixture. The excused share is over the positions that are compared."""
    start = sum(PROMPTS[:first])
    every = np.concatenate(ours)
    stop = start + len(every)
    assert stop - start == sum(PROMPTS[first : first + len(ours)]), "whole prompts only"
    std = float(fixture[f"{scale}_std"])
    gap = fixture[f"{scale}_gap"][start:stop]
    differs = every.argmax(axis=1) != fixture[f"{scale}_argmax"][start:stop]
    close = gap < 2 * BOUND[scale] * std
    routed = np.zeros(len(every), bool)
    if f"{scale}_route" in fixture:
        routed = fixture[f"{scale}_route"][start:stop] < ROUTE
    kept = kept_positions(sum(PROMPTS))
    inside = (kept >= start) & (kept < stop)
    errors = np.abs(every[kept[inside] - start] - fixture[f"{scale}_logits"][inside])
    rows = np.nan_to_num(errors[~routed[kept[inside] - start]].max(axis=1), nan=np.inf) / std
    return Score(
        worst=float(rows.max()),
        middle=float(np.median(rows)),
        limit=error_limit(fixture, scale),
        middle_limit=error_limit(fixture, scale, "half_middle"),
        excused=float(close.mean()),
        wrong=tuple(int(i) + start for i in np.flatnonzero(differs & ~close & ~routed)),
        positions=len(every),
        near=float(routed.mean()),
    )
