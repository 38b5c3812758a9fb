"""Where requests run: one engine of a fleet, in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lora_host.errors import AdapterError, LoraError, ModelError, TransportError
from lora_sdk.recovery.recovery import may_be_recovered

if TYPE_CHECKING:
    from lora_cluster.dispatch.member import Member
    from lora_sdk.engine.requests import Request

Kind = Literal["worker", "cluster"]


@dataclass(eq=False)  # compared by identity
class Ticket:
    """A request of a fleet. `arrival` orders them. `on_end` is called once it has ended and left
    its engine. `place`: where it runs, None while it waits. `held`: a worker has computed its
    prompt. `failing`: the place has failed, and it is to go on elsewhere."""

    request: Request
    arrival: int
    on_end: Callable[[], None]
    place: Place | None = None
    held: bool = False
    failing: bool = False

    @property
    def movable(self) -> bool:
        """Whether it may be prefilled in one place and decoded in another: one sample, no beams."""
        request = self.request
        left = sum(sample.finish_reason is None for sample in request.samples)
        return left == 1 and len(request.samples) == 1 and request.search is None


@dataclass(eq=False)
class Place:
    """An engine, and what runs there. `room`: requests at once. `failure`: why it takes no more.
    `begun`, `taken`, `ended`: requests that began here, came from elsewhere, ended here.
    `returns`: somebody starts it again after a failure."""

    name: str
    kind: Kind
    engine: Member
    room: int
    tickets: list[Ticket] = field(default_factory=list)
    failure: BaseException | None = None
    begun: int = 0
    taken: int = 0
    ended: int = 0
    returns: bool = False
    confirmed: int = 0  # notices of its weights that were raised

    @property
    def lives(self) -> bool:
        """Whether it takes requests, now or once it was started again."""
        return self.failure is None or self.returns

    def confirm(self) -> None:
        """As Engine.confirm. LoraError also for damaged weights where a request has begun here and
        ended elsewhere: its engine does not know of it."""
        if self.engine.closed or self.engine.lost is not None:
            return  # requests that it had are elsewhere, or failed
        self.engine.confirm()
        notices = self.engine.weight_notices
        new, self.confirmed = notices.of_weights - self.confirmed, notices.of_weights
        if new and self.begun + self.taken > self.ended:
            cause = next(one for one in reversed(notices.latest) if not one.of_draft)
            raise TransportError(f"{cause}; requests that were moved away may hold wrong tokens")

    @property
    def fast(self) -> bool:
        """Whether K and V of prompts that are computed here are not the boards' own."""
        use = self.engine.prefill_use
        return use is not None and use.fast

    @property
    def free(self) -> int:
        """How many more requests it takes now."""
        return 0 if self.failure is not None else max(0, self.room - len(self.tickets))

    def start(self, ticket: Ticket) -> None:
        """Run a request. It fails if the engine is closed."""
        ticket.place, ticket.held = self, False
        self.tickets.append(ticket)
        if ticket.request.started is None:
            self.begun += 1
        else:
            self.taken += 1
        try:
            self.engine.requests.start(ticket.request)
        except LoraError as error:  # the engine is closed, or was lost
            ticket.request.fail(error)

    def leave(self, ticket: Ticket) -> None:
        """The request does not run here any more."""
        self.tickets.remove(ticket)
        ticket.place, ticket.held = None, False

    def is_cause(self, error: BaseException) -> bool:
        """Whether the engine failed, and not the request itself."""
        if not isinstance(error, LoraError) or isinstance(error, (AdapterError, ModelError)):
            return False
        return self.engine.closed or self.engine.lost is not None or may_be_recovered(error)
