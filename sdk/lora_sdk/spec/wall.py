"""T_v(x) and T_d(x) by the clock of this computer: decoding with each length, one after another.

Lengths take turns on every prompt, so that whatever else the computer does disturbs all of them
alike; a length's time is the median over its prompts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.sampling import SamplingParams
from lora_sdk.spec.collect import Progress
from lora_sdk.spec.tree import Tree
from lora_sdk.spec.tune import CurveAt, range_of

if TYPE_CHECKING:
    from lora_sdk.engine import Engine
    from lora_sdk.results import Result

NEW_TOKENS = 64
PROMPTS_A_RANGE = 4
LENGTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
"""Verification lengths that are tried, where there are trees of that size."""


@dataclass(frozen=True)
class Placed:
    """Where a model ran: the board's kind, how many, the overlay, the kernels, its context."""

    board: str
    boards: int
    overlay: str
    kernels: str
    context: int


@dataclass(frozen=True)
class WallTimes:
    """StepTimes, measured. Seconds by size, one entry a range of contexts; `plain_s` a token."""

    curves: Sequence[CurveAt]
    plain_s: Sequence[float]
    verify_s: Sequence[Mapping[int, float]]
    draft_s: Sequence[Mapping[int, float]]

    @property
    def sizes(self) -> list[int]:
        """Lengths that were measured in every range."""
        return sorted(set.intersection(*(set(entry) for entry in self.verify_s)))

    def plain(self, context: int) -> float:
        """See StepTimes."""
        return self.plain_s[range_of(self.curves, context)]

    def verify(self, rows: int, context: int) -> float:
        """A round's time less its draft's: what the host does between them is in it."""
        return self.verify_s[range_of(self.curves, context)][rows]

    def draft(self, rows: int, context: int) -> float:
        """See StepTimes."""
        return self.draft_s[range_of(self.curves, context)][rows] if rows > 1 else 0.0


class Switch:
    """The tree that an engine drafts, changed between requests."""

    def __init__(self) -> None:
        self.tree = Tree()

    def __call__(self, context: int) -> Tree:
        """See `Choose`."""
        return self.tree


def measure_walls(
    engine: Engine,
    plain: Engine,
    switch: Switch,
    trees: Mapping[int, Tree],
    prompts: Sequence[Sequence[int]],
    curves: Sequence[CurveAt],
    temperature: float,
    progress: Progress,
) -> WallTimes:
    """Decode NEW_TOKENS after prompts of each range, with `engine`, whose trees `switch` chooses,
    and with `plain`, which may be the same engine. `progress(done, total)` counts requests.

    RequestError: a range of contexts in which no prompt lies."""
    sizes = [size for size in LENGTHS if size in trees]
    chosen = _by_range(prompts, curves)
    total = (len(sizes) + 1) * sum(map(len, chosen))
    done = 0
    plain_s: list[float] = []
    verify_s: list[dict[int, float]] = []
    draft_s: list[dict[int, float]] = []
    for group in chosen:
        tokens_s: list[float] = []
        rounds_s: dict[int, list[float]] = defaultdict(list)
        drafts_s: dict[int, list[float]] = defaultdict(list)
        for number, prompt in enumerate(group):
            params = SamplingParams(
                max_tokens=NEW_TOKENS, ignore_eos=True, temperature=temperature, seed=number
            )
            for size in (1, *sizes):
                switch.tree = trees[size]
                result = _decode(plain if size == 1 else engine, prompt, params)
                seconds = result.timing.total - result.timing.first_token
                done += 1
                progress(done, total)
                if size == 1:
                    tokens_s.append(seconds / (NEW_TOKENS - 1))
                elif result.speculation is not None and result.speculation.verifications:
                    count = result.speculation.verifications
                    drafts_s[size].append(result.speculation.draft_seconds / count)
                    rounds_s[size].append(seconds / count - drafts_s[size][-1])
        plain_s.append(median(tokens_s))
        verify_s.append({size: median(found) for size, found in rounds_s.items()})
        draft_s.append({size: median(found) for size, found in drafts_s.items()})
    return WallTimes(curves, plain_s, verify_s, draft_s)


def _decode(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> Result:
    result = engine.generate(list(prompt), params)
    assert not isinstance(result, list)  # a single prompt
    return result


def _by_range(
    prompts: Sequence[Sequence[int]], curves: Sequence[CurveAt]
) -> list[list[Sequence[int]]]:
    """Up to PROMPTS_A_RANGE prompts that are continued in each range, the longest that are."""
    groups: list[list[Sequence[int]]] = [[] for _ in curves]
    for prompt in prompts:
        groups[range_of(curves, len(prompt) + NEW_TOKENS // 2)].append(prompt)
    for curve, group in zip(curves, groups, strict=True):
        if not group:
            raise RequestError(
                f"no prompt is continued at contexts from {curve.context} on; give more text"
            )
    return [group[:: max(1, len(group) // PROMPTS_A_RANGE)][:PROMPTS_A_RANGE] for group in groups]
