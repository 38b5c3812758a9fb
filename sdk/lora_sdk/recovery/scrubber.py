"""Reads what the boards' firmware says of its sums of weights (docs/firmware.md).

The boards sum by themselves, between steps. What the sums shall be comes from what the host loaded.
How much is summed: lora_sdk.recovery.sum_pace.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.placing import Range
from lora_sdk.recovery.regions import Regions, key
from lora_sdk.recovery.sum_pace import SumFacts, SumPace

if TYPE_CHECKING:
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.step.runner import Runner
    from lora_sdk.step.stepper import Stepper

Adapters = Callable[[], Mapping[str, Sequence[Range]]]
"""What the boards hold of each adapter, by name."""

Sums = tuple[int, int]
"""Commands and bytes that a board has summed."""

REMEMBERED = 1 << 16  # looks whose step and progress are known
FIRST_RATE = 1e9  # bytes a second that boards are assumed to sum, until it was measured


@dataclass(frozen=True)
class ScrubUse:
    """What was summed so far. `passes`: times that all weights were; `regions`: that they consist
    of. `bytes` and `operations`: on all boards. `seconds`: measured, of those that the host asked
    for; `modelled_seconds`: of the busiest board, a
    line a cycle. `weight_bytes`: of one pass, without adapters.
    `damaged`: times that something differed. `share`: of plain tokens' time."""

    passes: int
    regions: int
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
            f"MiB in {self.regions} regions), {self.damaged} times damaged"
        )


class Scrubber:
    """Of one opened model. Not thread-safe: the engine's lock is held. Errors of the boards pass
    through."""

    def __init__(
        self,
        opened: OpenedModel,
        stepper: Stepper,
        adapters: Adapters = dict,
        facts: SumFacts | None = None,
    ) -> None:
        """`facts`: None for those that ship."""
        self._opened, self._stepper, self._adapters = opened, stepper, adapters
        self.facts = facts or SumFacts()
        self._runner: tuple[Runner, int] | None = None  # whose weights the boards sum
        self._slots: list[Range] = []  # of adapters, that they sum
        self._held: Mapping[str, Sequence[Range]] | None = None  # the adapters that these are of
        self._good: dict[tuple[int, int, int], int] = {}  # progress, from earlier tables
        self._since = self._right = stepper.progress  # _right: before the boards have tables
        self._looks: list[tuple[int, int]] = []  # steps of the boards, the stepper's progress
        self._rate, self._seconds = FIRST_RATE, 0.0
        self._passes = 0
        self._told: dict[int, Sums] = {}  # by board, since the tables were written
        self._sums: dict[int, Sums] = {}  # the same and all before
        self._turns = 0  # that all boards have done since then
        self.damaged = 0
        self.on_sums: Callable[[int, int], None] | None = None
        """Called with commands and bytes that the busiest board has summed."""

    @property
    def use(self) -> ScrubUse:
        """The counts so far. Any thread may ask."""
        weights = sum(one.bytes for one in self._opened.runner.weights.ranges)
        sums = list(self._sums.values())
        busiest = max(sums, key=lambda one: one[1], default=(0, 0))
        regions = 0 if self._runner is None else self._regions.count
        return ScrubUse(
            self._passes + self._turns, regions, sum(size for _, size in sums),
            sum(count for count, _ in sums), self._seconds,
            self._pace.seconds(busiest[1], busiest[0]) if busiest[0] else 0.0,
            weights, self.damaged, self.facts.share,
        )  # fmt: skip

    @property
    def since(self) -> int:
        """The stepper's progress when all weights were last known to be right at once."""
        return self._since

    def advance(self) -> bool:
        """Look at what the boards have found, without an access. True: a region differs."""
        self._follow()
        return self._look()

    def advance_for(self, seconds: float) -> bool:
        """Let the boards sum for about so many measured seconds, up to a pass. True: a region
        differs."""
        self._follow()
        return self._ask(max(self.facts.slice_bytes, int(self._rate * seconds)))

    def prove(self) -> bool:
        """Let the boards sum every region, unless they did since the last rows ran. True: a region
        differs."""
        self._follow()
        if self._since == self._stepper.progress and not self._look():
            return False
        if self._ask(0):
            return True
        self._good, self._since = {}, self._stepper.progress
        return False

    def tokens_left(self) -> int:
        """Tokens that the boards may choose by themselves before the host looks."""
        return self.facts.loop_tokens

    def last_good(self, damaged: Sequence[Range]) -> int:
        """The stepper's progress when all of these were last known to be right. Reads tables."""
        self._keep_good()
        return min(
            (
                self._good.get(place, self._since)
                for region in self._regions.all
                for place in [key(region)]
                if any(_overlap(region, one) for one in damaged)
            ),
            default=self._since,
        )

    def proved(self) -> None:
        """All weights are right now: they were loaded again, or summed by somebody else."""
        self._close_tables()
        self._runner, self._good = None, {}
        self._right = self._stepper.progress

    # --- tables ---------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Give the boards their tables where what they hold is not what it was."""
        runner, adapters = self._opened.runner, self._adapters()
        now = runner, runner.restored
        if now == self._runner and adapters is self._held:
            return
        held = [one for found in adapters.values() for one in found if one.bytes]
        self._held = adapters
        if now == self._runner:
            if _same(held, self._slots):
                return
            self._keep_good()
            self._close_tables()
        else:
            opened = self._opened
            lists = {plan.rank: runner.commands[plan.board] for plan in opened.plan.boards}
            self._close_tables()  # reset boards have none
            self._pace = SumPace(opened.plan, lists, self.facts)
            self._regions = Regions(opened.cluster, opened.plan)
            self._good, self._looks = {}, []
            self._since = max(self._right, self._stepper.restored)  # rows may have run since
        self._slots = held
        self._regions.register(runner.weights.parts, held, self._pace.header())
        self._runner = now
        self._look()

    def _close_tables(self) -> None:
        """The boards' counts begin at 0 with the next ones."""
        self._passes += self._turns
        self._turns, self._told = 0, {}

    # --- what the boards say --------------------------------------------------------------------

    def _ask(self, size: int) -> bool:
        began = time.perf_counter()
        before = sum(size for _, size in self._sums.values())
        self._opened.cluster.scrub(size)
        seconds = time.perf_counter() - began
        differs = self._look()
        summed = sum(size for _, size in self._sums.values()) - before
        self._seconds += seconds
        if summed:
            self._rate = summed / seconds / max(1, len(self._told))
        return differs

    def _look(self) -> bool:
        """Take the states that came with the last completion records. True: a region differs, and
        what it is of has not left the boards since."""
        cluster = self._opened.cluster
        step, states = cluster.last_step, cluster.completions()["scrub"]
        if not self._looks or self._looks[-1][0] != step:
            self._looks.append((step, self._stepper.progress))
            del self._looks[:-REMEMBERED]
        most = 0, 0
        counts = zip(states["sums"].tolist(), states["bytes"].tolist(), strict=True)
        for board, (commands, size) in enumerate(counts):
            told, whole = self._told.get(board, (0, 0)), self._sums.get(board, (0, 0))
            more = commands - told[0], size - told[1]
            self._told[board] = commands, size
            self._sums[board] = whole[0] + more[0], whole[1] + more[1]
            if more[1] > most[1]:
                most = more
        self._turns = min(states["passes"].tolist())
        if self.on_sums is not None and most[0]:
            self.on_sums(*most)
        return any(states["damaged"].tolist())

    def _keep_good(self) -> None:
        """Note until when each region was right, from the boards' tables."""
        for region, step in self._regions.good_steps():
            place = key(region)
            found = self._since if step is None else self._progress_at(step)
            self._good[place] = max(found, self._good.get(place, self._since))

    def _progress_at(self, step: int) -> int:
        """The stepper's progress at the latest look before this step: the step itself may have been
        run again."""
        at = bisect_left(self._looks, (step, -1))
        return self._looks[at - 1][1] if at else self._since


def _same(one: Sequence[Range], other: Sequence[Range]) -> bool:
    return len(one) == len(other) and all(map(lambda a, b: a is b, one, other))


def _overlap(one: Range, other: Range) -> bool:
    same = (one.board, one.bank) == (other.board, other.bank)
    return (
        same and one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes
    )
