"""When a worker computes and when its K and V go to the boards, with the transfer slowed down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from lora_sdk import Engine
from lora_sdk.prefill.job import Job, Part


@dataclass
class Times:
    """Seconds of one prompt: when each part was given, when computing ended, and begin and end of
    each write to the boards."""

    given: list[float] = field(default_factory=list)
    computed: float = 0.0
    writes: list[tuple[float, float]] = field(default_factory=list)

    @property
    def compute(self) -> float:
        """From the first part to the end of computing."""
        return self.computed - self.given[0]

    @property
    def exposed(self) -> float:
        """Transfer that nothing hides: after the last part was computed."""
        return max(0.0, self.writes[-1][1] - self.computed)

    @property
    def exposed_parts(self) -> float:
        """The same in parts: 1 is the time that a part is written in."""
        whole = sum(end - begin for begin, end in self.writes)
        return self.exposed / (whole / len(self.writes))

    @property
    def hidden(self) -> int:
        """Parts whose transfer began while others were computed."""
        return sum(begin < self.computed for begin, _ in self.writes)


def handover_times(
    engine: Engine,
    tokens: list[int],
    delay: float = 0.0,
    pipeline: bool = True,
    prefill_id: str | None = None,
) -> Times:
    """Prefill `tokens`, with every write `delay` seconds longer than it is. Without `pipeline`
    parts are given when all is computed."""
    source = engine._workers
    assert source is not None
    computer, transfer = source._worker._computer, source._transfer
    compute, write = computer.compute, transfer.write
    times = Times()

    def computing(job: Job, give: Callable[[Part], None]) -> None:
        kept: list[Part] = []

        def note(part: Part) -> None:
            times.given.append(time.monotonic())
            (give if pipeline else kept.append)(part)

        compute(job, note)
        times.computed = time.monotonic()
        for part in kept:
            give(part)

    def writing(*given: Any) -> Any:
        begin = time.monotonic()
        time.sleep(delay)
        written = write(*given)
        times.writes.append((begin, time.monotonic()))
        return written

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(computer, "compute", computing)
        patched.setattr(transfer, "write", writing)
        engine.generate(tokens, max_tokens=1, prefill_id=prefill_id)
    return times


def slowed(engine: Engine, tokens: list[int], enough: float, tries: int = 6) -> tuple[Times, Times]:
    """With the transfer slowed to half of the prompt's fastest computation so far: in a pipeline,
    the first of some tries that exposes no more than `enough` parts, else the best, since other
    programs disturb single ones; and without a pipeline."""
    best: Times | None = None
    plain = handover_times(engine, tokens)
    fastest = plain.compute
    for _ in range(tries):
        fastest = min(fastest, handover_times(engine, tokens).compute)
        delay = fastest / 2 / len(plain.writes)
        times = handover_times(engine, tokens, delay)
        fastest = min(fastest, times.compute)
        if best is None or times.exposed_parts < best.exposed_parts:
            best = times
        if best.exposed_parts <= enough:
            break
    assert best is not None
    return best, handover_times(engine, tokens, delay, False)
