"""Sums the weights on the boards between steps and compares the sums with the host's.

The boards sum; what the sums shall be comes from what the host loaded. How much is summed follows
from the modelled time of the steps that ran (lora_sdk.timing.scrub).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from lora_host.placing import Range
from lora_sdk.timing.scrub import ScrubPace
from lora_sdk.timing.scrub_facts import ScrubFacts, scrub_facts

if TYPE_CHECKING:
    from lora_sdk.core.opening import OpenedModel
    from lora_sdk.core.runner import Runner
    from lora_sdk.core.stepper import Stepper

Adapters = Callable[[], Mapping[str, Sequence[Range]]]
"""What the boards hold of each adapter, by name."""

EXACT_AFTER = 1000  # steps: the modelled time of a step is found once it has been worth it


@dataclass(frozen=True)
class ScrubUse:
    """What was summed so far. `passes`: times that all weights were. `bytes` and `operations`: on
    all boards. `seconds`: measured; `modelled_seconds`: of boards. `weight_bytes`: of one
    pass, without adapters. `damaged`: times that something differed. `share`: of modelled time."""

    passes: int
    bytes: int
    operations: int
    seconds: float
    modelled_seconds: float
    weight_bytes: int
    damaged: int
    share: float

    def line(self) -> str:
        """For people."""
        mib = 1 << 20
        whole = f"{self.passes} times all of" if self.passes else "a part of"
        return (
            f"{self.bytes / mib:.1f} MiB of weights summed ({whole} {self.weight_bytes / mib:.1f} "
            f"MiB) in {self.seconds:.3f} s, {self.damaged} times damaged"
        )


class Scrubber:
    """The regions of one opened model's weights, summed in turn. Not thread-safe: the engine's lock
    is held. Errors of the boards pass through; the region is then summed anew."""

    def __init__(
        self,
        opened: OpenedModel,
        stepper: Stepper,
        adapters: Adapters = dict,
        facts: ScrubFacts | None = None,
    ) -> None:
        """`facts`: None for those that ship."""
        self._opened, self._stepper, self._adapters = opened, stepper, adapters
        self.facts = facts or scrub_facts()
        self._runner: Runner | None = None  # whose weights the regions are of
        self._credit = 0.0  # modelled seconds that may be spent
        self._counted = stepper.progress
        self._passes = self._bytes = self._operations = 0
        self._turns = 0  # passes, those that found regions summed already included
        self._seconds = self._modelled = 0.0
        self.damaged = 0
        self.on_sum: Callable[[int], None] | None = None  # called with the bytes of each operation

    @property
    def use(self) -> ScrubUse:
        """The counts so far. Any thread may ask."""
        weights = sum(one.bytes for one in self._opened.runner.weights.ranges)
        return ScrubUse(
            self._passes, self._bytes, self._operations, self._seconds, self._modelled,
            weights, self.damaged, self.facts.share,
        )  # fmt: skip

    def advance(self) -> bool:
        """Sum what the steps since the last call allow, up to the end of a pass. True: a region
        differs."""
        self._earn()
        turns = self._turns
        while self._credit >= self._cost() and self._turns == turns:
            if self._sum_next():
                return True
        return False

    def advance_for(self, seconds: float) -> bool:
        """Sum for so many measured seconds at most, or one slice, up to the end of a pass. True: a
        region differs."""
        self._follow()
        end, turns = time.perf_counter() + seconds, self._turns
        while True:
            if self._sum_next():
                return True
            if time.perf_counter() >= end or self._turns > turns:
                return False

    def prove(self) -> bool:
        """Sum every region that was not since the last rows ran. True: a region differs."""
        self._earn()
        now = self._stepper.progress
        self._begin_pass()  # with the adapters of now
        for _ in range(len(self._regions)):
            region = self._regions[self._next]
            if self._good.get(_key(region), self._since) < now:
                while self._at < region.bytes - self._slice(region):
                    self._sum_next()
                if self._sum_next():
                    return True
            else:
                self._next_region()
        return False

    def tokens_left(self) -> int:
        """Tokens that the boards may choose by themselves before the next sum is due."""
        self._earn()
        missing = self._cost() - self._credit
        return max(self.facts.loop_tokens, ceil(missing / (self.facts.share * self._step)))

    def last_good(self, damaged: Sequence[Range]) -> int:
        """The stepper's progress when all of these were last known to be right."""
        return min(
            (
                self._good.get(_key(region), self._since)
                for region in self._regions
                if any(_overlap(region, one) for one in damaged)
            ),
            default=self._since,
        )

    def proved(self) -> None:
        """All weights are right now: they were loaded again, or summed by somebody else."""
        self._runner, self._counted = None, self._stepper.progress

    # --- regions --------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Begin anew where the boards were loaded since."""
        if self._runner is self._opened.runner:
            return
        self._runner = runner = self._opened.runner
        lists = {plan.rank: runner.commands[plan.board] for plan in self._opened.plan.boards}
        opened = self._opened
        self._pace = ScrubPace(opened.config, opened.plan, lists, self.facts)
        self._good: dict[tuple[int, int, int], int] = {}
        self._since = self._counted  # at the latest
        self._begin_pass()

    def _begin_pass(self) -> None:
        weights = joined(self._opened.runner.weights.parts, self.facts.slice_bytes)
        self._held = [one for found in self._adapters().values() for one in found if one.bytes]
        self._regions = [*weights, *self._held]
        self._next, self._left = 0, sum(one.bytes for one in self._regions)
        self._restart_region()

    def _restart_region(self) -> None:
        self._at, self._found = 0, 0

    def _next_region(self) -> None:
        self._next += 1
        self._restart_region()
        if self._next == len(self._regions):
            self._turns += 1
            self._passes += not self._left
            self._begin_pass()

    def _slice(self, region: Range) -> int:
        """Bytes of the next operation."""
        return min(self.facts.slice_bytes, region.bytes - self._at)

    def _sum_next(self) -> bool:
        """One operation. True: it ends a region, which differs."""
        region = self._regions[self._next]
        size = self._slice(region)
        if not self._at:
            self._begun = self._stepper.progress  # the region is good up to here, if it is
        began = time.perf_counter()
        found = self._opened.cluster.checksum(
            region.board, region.bank, region.offset + self._at, size
        )
        self._count(size, time.perf_counter() - began)
        self._found = _continued(self._found, found, size) if self._at else found
        self._at += size
        self._left -= size
        if self._at < region.bytes:
            return False
        differs = self._found != region.crc and self._is_current(region)
        if not differs:
            self._good[_key(region)] = self._begun
        self._next_region()
        return differs

    def _is_current(self, region: Range) -> bool:
        """Whether the boards should still hold it: an adapter may have gone since."""
        now = [one for found in self._adapters().values() for one in found]
        return not any(region is one for one in self._held) or any(region is one for one in now)

    # --- pace -----------------------------------------------------------------------------------

    @property
    def _step(self) -> float:
        """Modelled seconds of a plain token."""
        exact = self._stepper.progress >= EXACT_AFTER
        return self._pace.step if exact else self._pace.least_step

    def _cost(self) -> float:
        """Modelled seconds of the next operation."""
        return self._pace.seconds(self._slice(self._regions[self._next]))

    def _earn(self) -> None:
        """Count the steps since the last call."""
        self._follow()
        steps, self._counted = self._stepper.progress - self._counted, self._stepper.progress
        each = self.facts.share * self._step
        most = self._cost() + self.facts.loop_tokens * each
        self._credit = min(self._credit + steps * each, most)

    def _count(self, size: int, seconds: float) -> None:
        modelled = self._pace.seconds(size)
        self._credit -= modelled
        self._bytes += size
        self._operations += 1
        self._seconds += seconds
        self._modelled += modelled
        if self.on_sum is not None:
            self.on_sum(size)


def joined(parts: Sequence[Range], limit: int) -> list[Range]:
    """The parts in the order of addresses; adjacent ones joined up to `limit` bytes."""
    found: list[Range] = []
    for part in sorted(parts, key=_key):
        if not found or found[-1].bytes + part.bytes > limit or not found[-1].join(part):
            found.append(replace(part))
    return found


def _key(region: Range) -> tuple[int, int, int]:
    return region.board, region.bank, region.offset


def _overlap(one: Range, other: Range) -> bool:
    same = (one.board, one.bank) == (other.board, other.bank)
    return (
        same and one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes
    )


def _continued(before: int, behind: int, size: int) -> int:
    """The sum of bytes with the sum `before` and of `size` bytes with the sum `behind`."""
    whole = Range(0, 0, 0, 0, before)
    whole.join(Range(0, 0, 0, size, behind))
    return whole.crc
