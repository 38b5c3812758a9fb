"""Recovery of boards: a failure costs a pause, not the requests.

In place first: all boards are reset, weights are proved by the boards' own sums and loaded again
where they differ. A board or cable that fails again is left out: the model is planned anew on what
remains. Either way nothing of the open sequences is computed any more: the scheduler does that.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.boardd.waiting import wait_for_daemons
from lora_host.errors import (
    CommandError,
    LinkError,
    LoraError,
    PlacementError,
    RequestError,
    TransportError,
)
from lora_host.naming import counted
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.opening.opening import replan
from lora_sdk.plan.partition import BOARD_COUNTS
from lora_sdk.recovery.failover import Failover, Lost, blamed

if TYPE_CHECKING:
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.opening.options import EngineOptions
    from lora_sdk.step.stepper import Stepper

_log = logging.getLogger("lora_sdk.recovery")

# Recoveries in place without a step in between, before something is left out: after failures that
# name the same board or cable, and after any.
IN_PLACE = 2
IN_PLACE_OF_ANY = 4
KEPT = 8  # records; all are logged

# Refusals of what the host sent, and its own cancellation: a reset would not help.
_FINAL = (abi.ERR_CANCELLED, abi.ERR_ROW, abi.ERR_KV, abi.ERR_STEP)


def may_be_recovered(error: LoraError) -> bool:
    """Whether resetting the boards may help: a failure that the C library saw on board or link."""
    kinds = (CommandError, LinkError, TransportError)
    failure = error.failure
    return isinstance(error, kinds) and failure is not None and failure.code not in _FINAL


@dataclass(frozen=True)
class Recovered:
    """One recovery. `cause`: the failure, and those of attempts at recovery that came after it.
    `left_out`: the boards and cables that are not used any more. `weight_bytes`:
    of the weights that were loaded, of `total_bytes` placed. `rows`: positions of open sequences
    that boards held and must compute again. `seconds`: measured."""

    cause: str
    left_out: tuple[str, ...]
    boards: int
    weight_bytes: int
    total_bytes: int
    rows: int
    seconds: float

    def __str__(self) -> str:
        how = f"recovered {counted(self.boards, 'board')} in place"
        if self.left_out:
            how = f"{' and '.join(self.left_out)} left out, model planned anew on {self.boards}"
        mib = 1 << 20
        return (
            f"{self.cause}; {how} in {self.seconds:.2f} s: {self.weight_bytes / mib:.1f} of "
            f"{self.total_bytes / mib:.1f} MiB of weights loaded again, {self.rows} positions lost"
        )


class Recovery:
    """Recovers the boards of one opened model. Not thread-safe: the engine's lock is held."""

    def __init__(
        self, opened: OpenedModel, options: EngineOptions, cache: KvCache, stepper: Stepper
    ) -> None:
        self.records: deque[Recovered] = deque(maxlen=KEPT)
        self.count = 0
        self.on_boards: Callable[[], None] = lambda: None
        """Called when boards hold weights and lists again, before rows run."""
        self.damaged_adapters: Callable[[], Iterable[tuple[int, str]]] = tuple
        """Says what of the adapters has changed, as it is found: boards, and the places in
        words."""
        # What the attempts of a recovery have found:
        self._changed: list[str] = []  # places of adapters
        self._loaded = 0  # bytes of weights
        self._partly = False  # some on a board that had not lost all of them
        self._emptied: set[int] = set()  # boards that had; forgotten once rows have run
        self._emptied_at = -1  # the stepper's progress then
        self._opened = opened
        self._options = options
        self._cache = cache
        self._stepper = stepper
        self._survivors: Failover | None = None
        self._expected = 0  # rows of the stepper once what the last recovery cost was computed
        self._failures: Counter[Lost | None] = Counter()
        self.doubt = ""
        """What a recovery says that loaded weights or adapters again: they may have been damaged
        before the failure. "" where each board has lost all of them, in a reset or with its
        daemon, or none: this is no sign of that."""
        self._incomplete = False  # a recovery began and did not end
        stepper.write_kv = lambda pages, kv: KvTransfer(opened).place(pages, kv)
        self.ended: LoraError | None = None  # what every later failure ends with

    def recover(self, error: LoraError) -> bool:
        """See Stepper.recover. PlacementError: the model does not fit on the boards that remain."""
        if self.ended is not None:
            raise type(self.ended)(str(self.ended), failure=self.ended.failure)
        causes = [str(error)]
        if self._stepper.progress != self._emptied_at:
            self._emptied = set()
        if not (self._incomplete or may_be_recovered(error)):
            found = self._of_adapters(error)
            if found is None:
                return False
            if found is not error:
                causes.append(str(found))
                error = found
        began = time.monotonic()
        self._cache.fills.stop_all()
        self._incomplete = True
        if self._stepper.rows > self._expected:
            self._failures.clear()
        left_out: list[str] = []
        try:
            rows = self._until_restored(error, left_out, causes)
        finally:  # interrupted or not, requests may have run with what was found
            causes += dict.fromkeys(self._changed)
            cause, loaded = "; then ".join(causes), self._loaded
            self._raise_doubt(cause)
            self._changed, self._loaded, self._partly = [], 0, False
            self._emptied_at = self._stepper.progress
        self._emptied, self._incomplete = set(), False
        self._expected = max(self._expected, self._stepper.rows + rows)
        total = sum(board.placed_bytes for board in self._opened.plan.boards)
        seconds = time.monotonic() - began
        size = self._opened.plan.size
        self.note(Recovered(cause, tuple(left_out), size, loaded, total, rows, seconds))
        return True

    def _of_adapters(self, error: LoraError) -> LoraError | None:
        """What to recover from, if boards refuse a row whose adapter they do not hold as it was
        written: `error`, or what failed while adapters were compared. None: they hold them."""
        failure = error.failure
        if not isinstance(error, CommandError) or failure is None or failure.code != abi.ERR_ROW:
            return None
        if self._opened.cluster.closed:
            return None
        try:
            self._compare_adapters()
            return error if self._changed else None
        except LoraError as again:
            if not may_be_recovered(again):
                raise
            self._stepper.saw(again)
            return again

    def _compare_adapters(self) -> None:
        """Find what has changed, but for boards that have lost all. What is found before a sum
        fails is kept: the next attempt may meet a board that has lost all since."""
        for board, place in self.damaged_adapters():
            if board not in self._emptied:
                self._changed.append(place)

    def _raise_doubt(self, cause: str) -> None:
        """Requests may have run with what differed before the failure."""
        if self._changed or self._partly:
            what = "weights" if self._loaded else "adapters"
            self.doubt = f"{cause}; {what} were loaded again"

    def note(self, record: Recovered) -> None:
        """Log a recovery and keep its record."""
        self.records.append(record)
        self.count += 1
        _log.warning("%s", record)

    def _until_restored(self, error: LoraError, left_out: list[str], causes: list[str]) -> int:
        """Attempt by attempt; each failure says what the next one does, and joins `causes`. Returns
        the number of positions that the boards have lost."""
        try:
            while True:
                try:
                    return self._attempt(error, left_out)
                except LoraError as again:
                    if not may_be_recovered(again):
                        self.ended = type(again)(str(again), failure=again.failure)
                        raise
                    error = again
                    self._stepper.saw(error)
                    if str(error) != causes[-1]:
                        causes.append(str(error))
        finally:
            del error  # its traceback refers to this frame

    def _attempt(self, error: LoraError, left_out: list[str]) -> int:
        """Bring the boards back once. Returns the number of positions that they have lost."""
        lost = blamed(error)
        self._failures[lost] += 1
        again = self._failures[lost] > IN_PLACE or self._failures.total() > IN_PLACE_OF_ANY
        closed = self._opened.cluster.closed
        if again or (closed and lost):
            left_out.append(self._leave_out(error))
            self._failures.clear()
        repaired: Counter[int] = Counter()
        try:
            if left_out or closed:
                self._elsewhere(error, left_out, repaired)
            else:
                self._in_place(error, repaired)
        finally:  # a later attempt finds them right
            self._note_loaded(repaired)
        self._stepper.restored = self._stepper.progress
        if not left_out and not closed:
            self._compare_adapters()
        self.on_boards()
        if self._stepper.observer is not None:
            self._stepper.observer.restored()
        return self._cache.lose(self._opened.plan.page_count, self._opened.plan.first_spilled)

    def _note_loaded(self, repaired: Counter[int]) -> None:
        """Count weights that an attempt has loaded, and keep which boards had lost all of them, and
        so their adapters: a later attempt may be the first to compare those."""
        placed = {board.board: board.placed_bytes for board in self._opened.plan.boards}
        emptied = {board for board, count in repaired.items() if count == placed.get(board)}
        self._loaded += repaired.total()
        self._emptied |= emptied
        # A loading that failed half way leaves a part for this one: that is no damage.
        self._partly |= not set(repaired) <= self._emptied

    def _in_place(self, error: LoraError, repaired: Counter[int]) -> None:
        """Reset all boards. The one that had failed gets no second try where it does not come
        back; another one may have failed meanwhile by itself, and gets one."""
        cluster = self._opened.cluster
        wait_for_daemons((entry.uri for entry in cluster.entries), self._options.daemon_wait)
        try:
            cluster.reset()
        except LoraError as again:
            if blamed(again) == blamed(error):
                self._failures[blamed(again)] = IN_PLACE
            raise
        self._opened.runner.restore(repaired)

    # --- without what was lost ------------------------------------------------------------------

    def _boards(self) -> Failover:
        if self._survivors is None:
            cluster, options = self._opened.cluster, self._options
            file = None if options.cluster_file is None else Path(options.cluster_file)
            self._survivors = Failover(cluster.entries, cluster.cables, file, options.spares)
        return self._survivors

    def _leave_out(self, error: LoraError) -> str:
        """Leave out what the error names. Returns it in words."""
        lost = blamed(error)
        if lost is None:
            raise RequestError(f"the failure names no board to leave out: {error}") from error
        name = self._boards().name(lost)
        self._boards().leave_out(lost)
        return name

    def _elsewhere(self, error: LoraError, left_out: list[str], repaired: Counter[int]) -> None:
        """Plan the model on the boards that remain and load it; `repaired`: bytes by board."""
        survivors, reasons = self._boards(), [str(error)]
        most = self._opened.plan.size
        for count, file in survivors.candidates([n for n in BOARD_COUNTS if n <= most]):
            stages = min(count, len(self._opened.plan.stages))  # fewer boards in each, or stages
            try:
                chosen, plan = replan(self._opened, file, count, stages)
            except (LinkError, PlacementError, RequestError) as refused:
                reasons.append(f"on {count}: {refused}")
                continue
            survivors.use(chosen)
            if not self._opened.cluster.closed:
                self._stepper.redone += self._opened.cluster.stats().redone_steps
            self._opened.reopen(self._options, file.only(chosen), plan)
            self._stepper.use(self._opened.runner, plan.row_limit)
            repaired.update({board.board: board.placed_bytes for board in plan.boards})
            return
        self._opened.cluster.close()
        lost = " and ".join(left_out) or "a board"
        raise PlacementError(
            f"{lost} {'are' if len(left_out) > 1 else 'is'} lost and the model does not fit on the "
            f"{survivors.count} that remain ({'; '.join(reasons)}); name spares, or repair it and "
            "open the engine again",
            failure=error.failure,
        )
