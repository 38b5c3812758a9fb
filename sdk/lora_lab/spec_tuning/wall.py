"""T_v(x) and T_d(x) by wall clock on this computer, from decoding with each length.

Lengths alternate on every prompt, so that other load disturbs all of them equally. A length's time
is the median over prompts of the faster of two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_lab.spec_tuning.collect import Progress
from lora_lab.spec_tuning.tune import CurveAt, range_of
from lora_sdk.sampling import SamplingParams
from lora_sdk.step.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.step.results import Result

NEW_TOKENS = 64
PROMPTS_PER_RANGE = 4
REPEATS = 2
LENGTHS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
"""Verification lengths that are measured, if there are trees of that size."""


@dataclass(frozen=True)
class MeasuredSetup:
    """The setup of a measurement: kind and number of boards, overlay, kernels, context."""

    board: str
    boards: int
    overlay: str
    kernels: str
    context: int


@dataclass(frozen=True)
class WallTimes:
    """Measured StepTimes: seconds by size, one entry per range of contexts; `plain_s` per token."""

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
        """Time of a round without its draft. Includes the host's work between the two."""
        return self.verify_s[range_of(self.curves, context)][rows]

    def draft(self, rows: int, context: int) -> float:
        """See StepTimes."""
        return self.draft_s[range_of(self.curves, context)][rows] if rows > 1 else 0.0


class Switch:
    """The tree that an engine drafts. It is changed between requests."""

    def __init__(self) -> None:
        self.tree = TreeShape()

    def __call__(self, context: int) -> TreeShape:
        """See `Choose`."""
        return self.tree


@dataclass(frozen=True)
class Decoders:
    """Engines of one model: `engine` drafts the trees of `switch`, `plain` drafts nothing."""

    engine: Engine
    plain: Engine
    switch: Switch
    trees: Mapping[int, TreeShape]


def measure_walls(
    decoders: Decoders,
    prompts: Sequence[Sequence[int]],
    curves: Sequence[CurveAt],
    temperature: float,
    progress: Progress,
) -> WallTimes:
    """Decode NEW_TOKENS after prompts of each range with every length, REPEATS times.
    `progress(done, total)` counts requests.

    RequestError: a range of contexts without a prompt."""
    sizes = [size for size in LENGTHS if size in decoders.trees]
    chosen = _by_range(prompts, curves)
    total = REPEATS * (len(sizes) + 1) * sum(map(len, chosen))
    done = 0
    walls: list[dict[int, tuple[float, float]]] = []
    for group in chosen:
        found: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for number, prompt in enumerate(group):
            params = SamplingParams(
                max_tokens=NEW_TOKENS, ignore_eos=True, temperature=temperature, seed=number
            )
            for size, best in _fastest(decoders, sizes, prompt, params).items():
                found[size].append(best)
            done += REPEATS * (len(sizes) + 1)
            progress(done, total)
        walls.append(
            {size: (_median(times, 0), _median(times, 1)) for size, times in found.items()}
        )
    return WallTimes(
        curves,
        [times[1][0] for times in walls],
        [{size: verify for size, (verify, _) in times.items() if size > 1} for times in walls],
        [{size: draft for size, (_, draft) in times.items() if size > 1} for times in walls],
    )


def _fastest(
    decoders: Decoders, sizes: Sequence[int], prompt: Sequence[int], params: SamplingParams
) -> dict[int, tuple[float, float]]:
    """Seconds of verification and draft per round, by size (1: plain decoding, per token): the
    fastest of REPEATS runs. Runs go through the sizes up and down, so that none is always first."""
    best: dict[int, tuple[float, float]] = {}
    for repeat in range(REPEATS):
        for size in (1, *sizes) if repeat % 2 == 0 else (*reversed(sizes), 1):
            decoders.switch.tree = decoders.trees[size]
            engine = decoders.plain if size == 1 else decoders.engine
            times = _round_times(_decode(engine, prompt, params))
            best[size] = min(best.get(size, times), times, key=sum)
    return best


def _round_times(result: Result) -> tuple[float, float]:
    """Seconds per round without its draft, and of its draft. Per token without a draft."""
    seconds = result.timing.total - result.timing.first_token
    found = result.speculation
    if found is None or not found.verifications:
        return seconds / max(result.completion_tokens - 1, 1), 0.0
    draft = found.draft_seconds / found.verifications
    return seconds / found.verifications - draft, draft


def _median(times: Sequence[tuple[float, float]], which: int) -> float:
    return median(entry[which] for entry in times)


def _decode(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> Result:
    result = engine.generate(list(prompt), params)
    assert not isinstance(result, list)  # a single prompt
    return result


def _by_range(
    prompts: Sequence[Sequence[int]], curves: Sequence[CurveAt]
) -> list[list[Sequence[int]]]:
    """Up to PROMPTS_PER_RANGE prompts for each range of contexts, evenly chosen."""
    groups: list[list[Sequence[int]]] = [[] for _ in curves]
    for prompt in prompts:
        groups[range_of(curves, len(prompt) + NEW_TOKENS // 2)].append(prompt)
    for curve, group in zip(curves, groups, strict=True):
        if not group:
            raise RequestError(
                f"no prompt is continued at contexts from {curve.context} on; give more text"
            )
    return [
        group[:: max(1, len(group) // PROMPTS_PER_RANGE)][:PROMPTS_PER_RANGE] for group in groups
    ]
