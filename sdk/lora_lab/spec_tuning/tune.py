"""Offline choice of the best tree by context, from measured acceptance and times of a round.

Algorithm 1 of the tree-speculation paper: rooflines, tree search, the AAT curve at each context,
and the length with the highest effective performance. One row (plain decoding) if no length pays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lora_host.errors import RequestError
from lora_lab.spec_tuning.aat import AatCurve, ChosenCurve, choose_curve, fit_sizes
from lora_lab.spec_tuning.acceptance import Acceptance, rounds_of
from lora_lab.spec_tuning.comparison import deviation
from lora_lab.spec_tuning.roofline import Roofline, Round, StepTimes, roofline
from lora_lab.timing.facts import Draft
from lora_sdk.spec.table import Choice
from lora_sdk.step.tree_shape import TreeShape

ENOUGH_ROUNDS = 300
"""Min rounds of plain decoding for a range of contexts to have its own curve."""

ENOUGH_ERRORS = 2.0
"""Standard errors by which its AAT must differ from that of all contexts to have its own curve."""

MIDDLING = 8
"""Rows of the tree whose AAT is compared."""

FIRST_CONTEXT = 32
"""The grid of contexts begins here and grows by GROWTH."""

GROWTH = 2**0.5


@dataclass(frozen=True)
class FixedDraft:
    """The published AAT curve of a draft model at a context, as an AatCurve."""

    draft: Draft
    context: int

    def __call__(self, rows: int) -> float:
        """See AatCurve."""
        return self.draft.aat(rows, self.context)


@dataclass(frozen=True)
class CurveAt:
    """The AAT curve for contexts from `context` on. `span`: the contexts it was measured on, None
    for all (too few rounds, or no significant difference). `rounds`: held-out rounds of plain
    decoding."""

    context: int
    chosen: ChosenCurve
    rounds: int
    span: range | None


def context_grid(limit: int) -> list[int]:
    """Contexts at which ranges begin: 1, then spaced by GROWTH up to `limit`. RequestError: a limit
    below 1."""
    if limit < 1:
        raise RequestError(f"contexts up to {limit}; expected at least 1")
    found, at = [1], float(FIRST_CONTEXT)
    while at < limit:
        found.append(round(at))
        at *= GROWTH
    return found


def choose_lengths(
    times: StepTimes,
    curve_at: Callable[[int], AatCurve],
    contexts: Sequence[int],
    limit: int,
    sizes: Iterable[int],
    margin: float = 1.0,
    slack: float = 1.0,
) -> list[Choice]:
    """The best length for each range, from one of `contexts` to the next (the last one to `limit`),
    evaluated in the middle of the range. `margin` and `slack`: see Roofline.best."""
    lengths = list(sizes)
    found = []
    for start, stop in zip(contexts, [*contexts[1:], limit + 1], strict=True):
        middle = (start + stop - 1) // 2
        line = roofline(times, curve_at(middle), middle, lengths)
        found.append(_choice(start, line, line.best(margin, slack)))
    return found


def _choice(start: int, line: Roofline, best: Round) -> Choice:
    return Choice(
        context=start,
        rows=best.rows,
        aat=best.aat,
        plain_s=1 / line.plain,
        verify_s=best.verify_s,
        draft_s=best.draft_s,
        speedup=line.speedup(best.rows),
    )


def measure_curves(
    trees: Mapping[int, TreeShape],
    search: Acceptance,
    held_out: Acceptance,
    starts: Sequence[int],
    limit: int,
) -> list[CurveAt]:
    """The AAT curve over the trees' sizes for each range of contexts. Ranges begin at `starts` (the
    first is 1, the last ends at `limit`). Adjacent ranges that need no curve of their own are
    merged. Curves are fitted to at most five sizes on the search texts and tested with the other
    sizes on the held-out texts."""
    found: list[CurveAt] = []
    pooled = _curve(trees, search, held_out, None)
    for start, stop in zip(starts, [*starts[1:], limit + 1], strict=True):
        span = _own_span(trees, search, held_out, range(start, stop))
        if span is None and found and found[-1].span is None:
            continue  # merged with the previous range
        count = len(rounds_of(trees[1], held_out, span).roots)
        chosen = pooled if span is None else _curve(trees, search, held_out, span)
        found.append(CurveAt(start, chosen, count, span))
    return found


def _own_span(
    trees: Mapping[int, TreeShape], search: Acceptance, held_out: Acceptance, span: range
) -> range | None:
    """`span` if both halves have enough rounds in it, and in both the AAT (of trees of medium size)
    differs significantly from that of all contexts. Else None."""
    tree = trees[min(MIDDLING, max(trees))]
    for texts in (search, held_out):
        if len(rounds_of(trees[1], texts, span).roots) < ENOUGH_ROUNDS:
            return None
        whole = rounds_of(tree, texts).aat
        if deviation(rounds_of(tree, texts, span), whole, len(texts.texts)) < ENOUGH_ERRORS:
            return None
    return span


def _curve(
    trees: Mapping[int, TreeShape], search: Acceptance, held_out: Acceptance, span: range | None
) -> ChosenCurve:
    sizes = [size for size in trees if size > 1]
    fitted = {size: rounds_of(trees[size], search, span).aat for size in fit_sizes(max(sizes))}
    measured = {size: rounds_of(trees[size], held_out, span).aat for size in sizes}
    return choose_curve(fitted, measured)


def range_of(curves: Sequence[CurveAt], context: int) -> int:
    """Index of the range that contains a context."""
    return max(0, bisect_right([curve.context for curve in curves], context) - 1)
