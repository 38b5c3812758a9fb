"""What becomes of requests whose tokens were computed from damaged weights.

A request is suspect if it has run since the weights were last right. Its tokens are computed again
from its prompt. Those that were delivered are compared: the first that differs ends the request.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lora_host.errors import LoraError
from lora_sdk.engine.requests import MOST_BEGINNINGS, worded
from lora_sdk.opening.weight_notices import DRAFT, WeightNotice, WeightNotices

if TYPE_CHECKING:
    from lora_sdk.engine.requests import Request
    from lora_sdk.engine.scheduler import Scheduler
    from lora_sdk.recovery.scrubber import Scrubber
    from lora_sdk.recovery.weight_repair import WeightRepair
    from lora_sdk.step.results import Delta
    from lora_sdk.step.stepper import Stepper

_log = logging.getLogger("lora_sdk.recovery")


ENDED = 4096  # requests whose end is remembered

FAILED = (
    "the request was computed with them, from its first token on; they are loaded again, submit it "
    "again"
)
AGAIN = (
    f"the request began again {MOST_BEGINNINGS} times because of damaged weights, and ends now; "
    "they are loaded again: check the board's memory (lora validate --memory)"
)
NOT_SUMMED = "the weights were not summed after the last step, so texts are not confirmed"
ENDED_IN_DOUBT = (
    "may hold wrong tokens, from the first one on; the weights are loaded again, submit them again"
)
DELIVERED = "tokens that were delivered are wrong; the weights are loaded again, submit it again"

ErrorOf = Callable[[str], LoraError]
"""The error of a request, by what happened to it."""


class WeightWatch:
    """Of one engine. The engine's lock is held around every call."""

    def __init__(
        self,
        policy: str,
        stepper: Stepper,
        scrubber: Scrubber,
        repair: WeightRepair,
        draft: tuple[Scrubber, WeightRepair] | None = None,
        notices: WeightNotices | None = None,
    ) -> None:
        """`policy`: EngineOptions.scrub. `draft`: those of the draft model's board."""
        self.policy, self.scrubber = policy, scrubber
        self.notices = notices or WeightNotices()
        self._stepper, self._repair, self._draft = stepper, repair, draft
        self._scheduler: Scheduler | None = None
        self._held: list[tuple[Request, Delta]] = []  # last deltas, of requests to be proved
        # The stepper's progress at requests' ends, in turn. Of one size, however many there are.
        self._ended, self._next_end = array("q", bytes(8 * ENDED)), 0
        self._broken: LoraError | None = None
        self._notice: LoraError | None = None  # of requests that have ended

    def join(self, scheduler: Scheduler) -> None:
        """Watch the requests of this scheduler."""
        self._scheduler = scheduler

    def watch(self, request: Request) -> None:
        """Note what becomes of a request from now on."""
        request.on_finish = self._note_end
        if request.on_delta is not None:
            request.delivered = []

    def _note_end(self) -> None:
        self._ended[self._next_end] = self._stepper.progress
        self._next_end = (self._next_end + 1) % ENDED

    # --- between steps --------------------------------------------------------------------------

    def between_steps(self) -> None:
        """Sum what is due. LoraError: damaged weights could not be loaded again."""
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))
        self._watch_draft()
        self._doubt()
        self._unless_right(self.scrubber.advance)

    def idle_for(self, seconds: float) -> None:
        """Sum for the scrubber's share of so many measured seconds without requests."""
        self._doubt()
        share = self.scrubber.facts.share
        self._unless_right(lambda: self.scrubber.advance_for(share * seconds))

    def examine(self) -> bool:
        """Sum all weights, after a value that is not finite. Whether they were damaged: requests
        that were computed with them run again, or have failed."""
        return self._unless_right(self.scrubber.prove)

    def confirm(self) -> None:
        """Sum what was not summed since the last step. LoraError: requests that have ended may hold
        wrong tokens, raised once; or the weights could not be summed."""
        if self._broken is not None:
            raise self._broken
        try:
            self._doubt()
            self._unless_right(self.scrubber.prove)
        except LoraError as error:
            raise worded(error, NOT_SUMMED) from error
        notice, self._notice = self._notice, None
        if notice is not None:
            raise notice

    def confirm_last(self) -> None:
        """The same once nothing runs any more: what is found is told, and nothing is raised."""
        if self._broken is not None or self.scrubber.since == self._stepper.progress:
            return
        try:
            self._doubt()
            if self.scrubber.prove():
                self._loaded_again()
        except LoraError as error:
            _log.warning("%s", worded(error, NOT_SUMMED))

    def loop_tokens(self) -> int:
        """Tokens that boards may choose by themselves before something is due."""
        return self.scrubber.tokens_left()

    def _unless_right(self, scrub: Callable[[], bool]) -> bool:
        """Run a part of the scrubber. Whether weights were damaged, and loaded again."""
        try:
            return scrub() and self._loaded_again()
        except LoraError as error:
            if self._broken is not None or not self._stepper.recovered(error):
                raise
            return self._doubt()  # the recovery may have loaded weights that were damaged before

    def _watch_draft(self) -> None:
        """Drafts of damaged weights cost speed alone: no request is suspect."""
        if self._draft is None:
            return
        scrubber, repair = self._draft
        try:
            damage = repair.run() if scrubber.advance() else None
            if damage is not None:
                self.notices.add(WeightNotice(f"{DRAFT}{damage}", 0, 0))
        except LoraError as error:  # its next proposal meets it too
            _log.warning("the weights of the draft are not watched any more: %s", error)
            self._draft = None

    # --- ends that wait for a proof -------------------------------------------------------------

    def holds(self, request: Request, delta: Delta) -> bool:
        """Whether the delta waits for a proof: it ends the request."""
        if self.policy != "prove" or not request.done:
            return False
        self._held.append((request, delta))
        return True

    @property
    def holding(self) -> bool:
        """Whether a request waits for a proof."""
        return bool(self._held)

    def forget(self, request: Request | None = None) -> list[Request]:
        """A request, or each, waits no more. Returns them."""
        gone = [one for one, _ in self._held if request is None or one is request]
        self._held = [entry for entry in self._held if entry[0] not in gone]
        return gone

    def release(self) -> list[tuple[Request, Delta]]:
        """Prove the weights. Returns what may be delivered."""
        if not self._held:
            return []
        self._doubt()
        self._unless_right(self.scrubber.prove)
        held, self._held = self._held, []
        return held

    # --- damage ---------------------------------------------------------------------------------

    def _loaded_again(self) -> bool:
        """Load damaged weights again, and the suspect requests begin again or fail. Whether
        anything was damaged."""
        suspects: list[Request] = []

        def forget(since: int) -> None:
            suspects.extend(self._take_suspects(since))

        try:
            damage = self._repair.run(forget)
        except LoraError as error:
            try:
                if self._recovered(error, suspects):
                    return True
            except LoraError as ended:  # no number of boards works
                self._fail(suspects, ended)
                raise
            self._fail(suspects, error)
            raise
        if damage is None:
            return False
        self._settle(str(damage), damage.since, suspects, damage.error)
        return True

    def _fail(self, suspects: Sequence[Request], error: LoraError) -> None:
        self._broken = error
        for request in suspects:
            request.rescue = None
            request.fail(error)

    def _recovered(self, error: LoraError, suspects: list[Request]) -> bool:
        """Whether boards that failed while weights were summed were recovered. That has loaded
        again what was damaged, without saying since when."""
        if not self._stepper.recovered(error):
            return False
        since = self.scrubber.since
        suspects.extend(self._take_suspects(-1))
        self._repair.taken_doubt(strict=True)
        self.scrubber.proved()
        self._settle(str(error), since, suspects, lambda why: worded(error, why))
        return True

    def _doubt(self) -> bool:
        """A recovery from another failure has loaded weights again. A part of them may have been
        damaged before the failure. So may all that a reset has lost, and only the policy that
        promises that no end is wrong counts on that. Whether requests began again, or failed."""
        doubt = self._repair.taken_doubt(strict=self.policy == "prove")
        if doubt:

            def error_of(why: str) -> LoraError:
                return LoraError(f"{doubt}; {why}")

            since = self.scrubber.since
            self._settle(doubt, since, self._take_suspects(-1), error_of)
        return bool(doubt)

    def _take_suspects(self, since: int) -> Sequence[Request]:
        """Requests that ran since then; they leave the scheduler."""
        if since == self._stepper.progress or self._scheduler is None:
            return []
        running = [one for one in self._scheduler.requests() if one.started is not None]
        for request in running:
            self._scheduler.remove(request)
        return [*running, *self.forget()]

    def _settle(
        self, cause: str, since: int, suspects: Sequence[Request], error_of: ErrorOf
    ) -> None:
        """Requests that have ended are counted, those that run begin again or fail, and the program
        is told."""
        ended = self._tell_ended(since, error_of)
        self._resolve(suspects, error_of)
        self.notices.add(WeightNotice(cause, len(suspects), ended))

    def _resolve(self, suspects: Sequence[Request], error_of: ErrorOf) -> None:
        again = []
        for request in suspects:
            if self.policy == "fail" or not request.begin_again(error_of(DELIVERED)):
                request.rescue = None  # another engine would go on with its tokens
                request.fail(error_of(FAILED if self.policy == "fail" else AGAIN))
            else:
                again.append(request)
        if self._scheduler is not None:
            self._scheduler.restart(again)

    def _tell_ended(self, since: int, error_of: ErrorOf) -> int:
        count = sum(progress > since for progress in self._ended)
        if count:
            ended = "request that has" if count == 1 else "requests that have"
            self._notice = error_of(f"{count} {ended} ended {ENDED_IN_DOUBT}")
            _log.warning("%s", self._notice)
        return count
