"""Decides where each request of a fleet runs, first come, first served (GLITCHES, III.C).

All state belongs to one thread, which receives events: a request has come, has its first token, has
ended; an engine has failed.
"""

from __future__ import annotations

import logging
import queue
import threading
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from lora_cluster.dispatch.place import Place, Ticket
from lora_cluster.dispatch.policy import Policy
from lora_host.errors import AdapterError, LoraError, RequestError
from lora_sdk.engine.requests import Request

Route = Callable[[Request, Sequence[Place]], Place]
"""Chooses one of the places, of which there is at least one, for a request."""

RETRY_SECONDS = 0.05  # until a request that could not leave its worker is asked again

_log = logging.getLogger("lora_lab.fleet")


@dataclass(frozen=True)
class FleetUse:
    """Counts of a fleet's requests so far. `fast`: prompts whose K and V are not the boards' own;
    `moved`: went on to a cluster after their prompt or in the middle of their text; `by_workers`:
    ended on a worker; `rescued`: went on elsewhere after an engine had failed. `failed`: names of
    the places that failed."""

    requests: int = 0
    ended: int = 0
    prefilled_by_workers: int = 0
    fast: int = 0
    moved: int = 0
    by_workers: int = 0
    rescued: int = 0
    failed: tuple[str, ...] = ()


class Dispatcher:
    """Runs requests on workers and clusters."""

    def __init__(
        self,
        workers: Sequence[Place],
        clusters: Sequence[Place],
        policy: Policy,
        route: Route | None = None,
    ) -> None:
        """`route`: the cluster of a request among those that have room; None: as `policy` says."""
        self.use = FleetUse()
        self._route = route
        self._workers = workers
        self._clusters = clusters
        self._policy = policy
        self._waiting: list[Ticket] = []
        self._tickets: list[Ticket] = []  # of requests that have not ended
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._arrivals = 0
        self._arriving = threading.Lock()
        self._users: dict[str, list[Request]] = {}  # requests by adapter
        self._open = True  # takes requests, and begins those that wait
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="lora-fleet", daemon=True)
        self._thread.start()

    def submit(self, requests: Sequence[Request], on_end: Callable[[], None]) -> None:
        """Queue requests, in this order. Does not wait. `on_end` is called for each that has ended
        and left its engine."""
        with self._arriving:
            if not self._open:
                raise RequestError("the fleet is closed; open another one")
            for request in requests:
                self._arrivals += 1
                if (adapter := request.params.adapter) is not None:
                    self._users[adapter] = [*self._users_of(adapter), request]
                ticket = Ticket(request, self._arrivals, on_end)
                request.wake_at_end = self.wake
                request.on_first_token = partial(self._events.put, partial(self._started, ticket))
                request.rescue = partial(self._rescue, ticket)
                self._events.put(partial(self._arrived, ticket))

    def without(self, adapter: str, act: Callable[[], None]) -> None:
        """Run `act` while no request uses the adapter, and none is submitted. AdapterError if one
        uses it."""
        with self._arriving:
            users = len(self._users_of(adapter))
            if users:
                raise AdapterError(
                    f"adapter {adapter!r} is used by {users} requests of the fleet; wait for them "
                    "or cancel them"
                )
            act()
            self._users.pop(adapter, None)

    def _users_of(self, adapter: str) -> list[Request]:
        return [one for one in self._users.get(adapter, ()) if not one.ended]

    def wake(self) -> None:
        """Look at all requests again: one was cancelled, or has ended."""
        self._events.put(self._nothing)

    def failed(self, place: Place, error: BaseException, returns: bool) -> None:
        """A place has failed, whether or not a request ran there. `returns`: see Place; False ends
        what waits if no other place lives."""
        self._events.put(partial(self._gone, place, error, returns))

    def restored(self, place: Place) -> None:
        """A place takes requests again."""
        self._events.put(partial(self._restored, place))

    def refuse(self) -> None:
        """Begin no more requests, and fail those that wait."""
        with self._arriving:
            self._open = False
        self._events.put(self._nothing)

    def close(self) -> None:
        """End the thread, after `refuse` and once the engines are closed."""
        self._ending = True
        self._events.put(self._nothing)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._open = False
            self._fail_all(error)
            raise

    def _serve(self) -> None:
        while not (self._ending and self._events.empty()):
            self._receive()
            if not self._open:
                self._fail_waiting(RequestError("the fleet was closed while the request waited"))
            self._sweep()
            while self._open and (self._to_cluster() or self._to_worker()):
                pass

    def _receive(self) -> None:
        """Wait for events, and handle all that have come."""
        held = any(ticket.held for place in self._workers for ticket in place.tickets)
        retry = held and any(place.free for place in self._clusters)
        try:
            self._events.get(timeout=RETRY_SECONDS if retry else None)()
        except queue.Empty:
            return
        while not self._events.empty():
            self._events.get()()

    # --- events ---------------------------------------------------------------------------------

    def _nothing(self) -> None:
        """An event that only wakes the thread."""

    def _arrived(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)
        self._waiting.append(ticket)
        self._count(requests=1)

    def _started(self, ticket: Ticket) -> None:
        place = ticket.place
        if place is not None and place.kind == "worker":
            ticket.held = True
            self._count(prefilled_by_workers=1, fast=int(place.fast))

    def _rescue(self, ticket: Ticket, error: BaseException) -> bool:
        """See Request.rescue. Called by the thread that runs the engine's steps."""
        place = ticket.place
        if place is None or not self._open or not place.is_cause(error):
            return False
        others = [other for other in self._places if other is not place]
        if not (place.returns or _any_lives(others)):
            return False
        ticket.failing = True
        self._events.put(partial(self._failed, ticket, place, error))
        return True

    def _failed(self, ticket: Ticket, place: Place, error: BaseException) -> None:
        if place.is_cause(error):  # not if it was started again meanwhile
            self._note_failure(place, error)
        place.leave(ticket)
        ticket.failing = False
        ticket.request.home = None
        insort(self._waiting, ticket, key=lambda one: one.arrival)
        self._count(rescued=1)

    def _gone(self, place: Place, error: BaseException, returns: bool) -> None:
        place.returns = returns
        self._note_failure(place, error)

    def _restored(self, place: Place) -> None:
        place.failure, place.returns = None, True

    def _note_failure(self, place: Place, error: BaseException) -> None:
        if place.failure is None:
            self.use = replace(self.use, failed=(*self.use.failed, place.name))
            _log.warning("%s takes no more requests: %s", place.name, error)
        place.failure = place.failure or error

    def _fail_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            ticket.request.fail(error)

    def _fail_all(self, error: BaseException) -> None:
        """End everything after a mistake of this class, so that nobody waits for ever."""
        while not self._events.empty():
            with suppress(Exception):
                self._events.get()()
        self._waiting.clear()
        for ticket in self._tickets:
            ticket.request.rescue = None
            ticket.request.fail(error)
            ticket.request.cancel()
            ticket.on_end()

    # --- decisions ------------------------------------------------------------------------------

    @property
    def _places(self) -> list[Place]:
        return [*self._workers, *self._clusters]

    def _suits_workers(self, ticket: Ticket) -> bool:
        """Whether a waiting request goes to a worker: it can move on, or there is nothing else."""
        return _any_lives(self._workers) and (ticket.movable or not _any_lives(self._clusters))

    def _sweep(self) -> None:
        """Forget requests that have ended, and end those that were cancelled while they waited."""
        for ticket in [one for one in self._waiting if one.request.cancelled]:
            self._waiting.remove(ticket)
            ticket.request.end_cancelled()
        if self._waiting and not _any_lives(self._places):
            failures = [place.failure for place in self._places if place.failure is not None]
            self._fail_waiting(failures[-1])
        ended: list[Ticket] = []
        left: list[Ticket] = []
        for ticket in self._tickets:  # asked once: other threads end requests meanwhile
            (ended if ticket.request.ended else left).append(ticket)
        self._tickets = left
        for ticket in ended:
            if ticket.place is not None:
                self._count(by_workers=int(ticket.place.kind == "worker"))
                ticket.place.ended += 1
                ticket.place.leave(ticket)
        self._count(ended=len(ended))
        for ticket in ended:
            ticket.on_end()

    def _to_cluster(self) -> bool:
        """Give the oldest request that can use one to an idle cluster."""
        free = [index for index, place in enumerate(self._clusters) if place.free]
        chosen = self._policy.cluster(free)
        if chosen is None:
            return False
        rooms = [self._clusters[index] for index in free]
        held = [
            one
            for place in self._workers
            for one in place.tickets
            if one.held and one.movable and not one.failing
        ]
        own = [one for one in self._waiting if not self._suits_workers(one)]
        for ticket in sorted(held + own, key=lambda one: one.arrival):
            if self._released(ticket):
                place = self._clusters[chosen]
                (place if self._route is None else self._route(ticket.request, rooms)).start(ticket)
                return True
        return False

    def _released(self, ticket: Ticket) -> bool:
        """Whether a request has left the queue or its worker."""
        place = ticket.place
        if place is None:
            self._waiting.remove(ticket)
            return True
        try:
            taken = place.engine.requests.take(ticket.request)
        except LoraError as error:  # the engine's own step meets it too
            _log.warning("%s: a request stays: %s", place.name, error)
            return False
        if taken:
            place.leave(ticket)
            self._count(moved=1)
        return taken

    def _to_worker(self) -> bool:
        """Give the oldest waiting prompt to a worker that has room."""
        suited = [one for one in self._waiting if self._suits_workers(one)]
        for place in self._workers:
            held = sum(one.held for one in place.tickets)
            if self._policy.worker(len(suited), held, place.free) == "prefill":
                self._waiting.remove(suited[0])
                place.start(suited[0])
                return True
        return False

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self.use, name) + number for name, number in more.items()}
        self.use = replace(self.use, **counts)


def _any_lives(places: Sequence[Place]) -> bool:
    return any(place.lives for place in places)
