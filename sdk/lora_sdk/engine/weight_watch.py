"""What becomes of requests when weights were found damaged.

One that has got a token since the weights were last right fails. The others go on: the scheduler
computes again what the boards hold of them.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lora_host.errors import LoraError
from lora_sdk.engine.requests import worded
from lora_sdk.opening.weight_notices import DRAFT, WeightNotice, WeightNotices

if TYPE_CHECKING:
    from lora_sdk.engine.requests import Request
    from lora_sdk.engine.scheduler import Scheduler
    from lora_sdk.recovery.scrubber import Scrubber
    from lora_sdk.recovery.weight_repair import WeightRepair
    from lora_sdk.step.stepper import Stepper

_log = logging.getLogger("lora_sdk.recovery")


ENDED = 4096  # requests whose end is remembered

FAILED = (
    "the request has tokens that were computed with them; they are loaded again, submit it again"
)
NOT_SUMMED = "the weights were not summed after the last step, so texts are not confirmed"
ENDED_IN_DOUBT = (
    "may hold wrong tokens, from the first one on; the weights are loaded again, submit them again"
)

ErrorOf = Callable[[str], LoraError]
"""The error of a request, by what happened to it."""


class WeightWatch:
    """Of one engine. The engine's lock is held around every call."""

    def __init__(
        self,
        stepper: Stepper,
        scrubber: Scrubber,
        repair: WeightRepair,
        draft: tuple[Scrubber, WeightRepair] | None = None,
        notices: WeightNotices | None = None,
    ) -> None:
        """`draft`: those of the draft model's board."""
        self.scrubber = scrubber
        self.notices = notices or WeightNotices()
        self._stepper, self._repair, self._draft = stepper, repair, draft
        self._scheduler: Scheduler | None = None
        # The stepper's progress at requests' ends, in turn. Of one size, however many there are.
        self._ended, self._next_end = array("q", bytes(8 * ENDED)), 0
        self._broken: LoraError | None = None
        self._notice: LoraError | None = None  # of requests that have ended

    def join(self, scheduler: Scheduler) -> None:
        """Watch the requests of this scheduler."""
        self._scheduler = scheduler

    def note_end(self) -> None:
        """A request of the scheduler has ended."""
        self._ended[self._next_end] = self._stepper.progress
        self._next_end = (self._next_end + 1) % ENDED

    # --- between steps --------------------------------------------------------------------------

    def between_steps(self) -> None:
        """Sum what is due. LoraError: damaged weights could not be loaded again."""
        if self._broken is not None:
            raise type(self._broken)(str(self._broken))
        if self._draft is not None:
            self._watch_draft(*self._draft)
        if self._repair.recovery.doubt:
            self._doubt()
        self._unless_right(self.scrubber.advance)

    def idle_for(self, seconds: float) -> None:
        """Sum for the scrubber's share of so many measured seconds without requests."""
        self._doubt()
        share = self.scrubber.facts.share
        self._unless_right(lambda: self.scrubber.advance_for(share * seconds))

    def examine(self) -> bool:
        """Sum all weights, after a value that is not finite. Whether they were damaged: the request
        has failed, or is computed again."""
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

    def _watch_draft(self, scrubber: Scrubber, repair: WeightRepair) -> None:
        """Drafts of damaged weights cost speed alone: no request is suspect."""
        try:
            damage = repair.run() if scrubber.advance() else None
            if damage is not None:
                self.notices.add(WeightNotice(f"{DRAFT}{damage}", 0, 0))
        except LoraError as error:  # its next proposal meets it too
            _log.warning("the weights of the draft are not watched any more: %s", error)
            self._draft = None

    # --- damage ---------------------------------------------------------------------------------

    def _loaded_again(self) -> bool:
        """Load damaged weights again. Whether anything was damaged."""
        suspects: list[Request] = []
        try:
            damage = self._repair.run(lambda since: suspects.extend(self._take(since)))
        except LoraError as error:
            try:
                if self._recovered(error, suspects):
                    return True
                self._broken = error
            except LoraError as ended:  # no number of boards works
                self._broken = ended
            _fail(suspects, self._broken)
            raise self._broken from error
        if damage is None:
            return False
        self._settle(str(damage), damage.since, suspects, damage.error)
        return True

    def _recovered(self, error: LoraError, suspects: list[Request]) -> bool:
        """Whether boards that failed while weights were summed were recovered. That has loaded
        again what was damaged, without saying since when."""
        if not self._stepper.recovered(error):
            return False
        since = self.scrubber.since
        suspects.extend(self._take(since))
        self._repair.taken_doubt()
        self.scrubber.proved()
        self._settle(str(error), since, suspects, lambda why: worded(error, why))
        return True

    def _doubt(self) -> bool:
        """A recovery from another failure has loaded a part of the weights again, which may have
        been damaged before the failure. Whether it has."""
        doubt = self._repair.taken_doubt()
        if doubt:

            def error_of(why: str) -> LoraError:
                return LoraError(f"{doubt}; {why}")

            since = self.scrubber.since
            self._settle(doubt, since, self._take(since), error_of)
        return bool(doubt)

    def _take(self, since: int) -> list[Request]:
        """Requests that got tokens since then; they leave the scheduler. The cache tells it what is
        to be computed again of the others."""
        if self._scheduler is None:
            return []
        suspects = [one for one in self._scheduler.requests() if one.last_token > since]
        for request in suspects:
            self._scheduler.remove(request)
        for request in self._scheduler.requests():
            if request.last_token < 0:
                request.forget_prompt()
        return suspects

    def _settle(
        self, cause: str, since: int, suspects: Sequence[Request], error_of: ErrorOf
    ) -> None:
        """Requests that have ended are counted, the program is told, and those that got tokens
        fail."""
        self._repair.forget_pages()
        ended = self._tell_ended(since, error_of)
        self.notices.add(WeightNotice(cause, len(suspects), ended))
        _fail(suspects, error_of(FAILED))

    def _tell_ended(self, since: int, error_of: ErrorOf) -> int:
        count = sum(progress > since for progress in self._ended)
        if count:
            ended = "request that has" if count == 1 else "requests that have"
            self._notice = error_of(f"{count} {ended} ended {ENDED_IN_DOUBT}")
            _log.warning("%s", self._notice)
        return count


def _fail(suspects: Sequence[Request], error: LoraError) -> None:
    for request in suspects:
        request.rescue = None  # another engine would go on with its tokens
        request.fail(error)
