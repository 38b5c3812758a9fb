"""Which requests the engine works on, and which wait: by turns between clients, up to a limit.

The engine itself serves first come, first served. So it is given only what can run at once, and the
rest waits here, a queue a client. A client with a hundred prompts delays another's by one turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from lora_sdk.serve.errors import ApiError

_MAX_RETRY = 60  # seconds


class Ticket:
    """A place for one prompt: waiting, granted or released. Not thread-safe, as all of this file:
    the event loop's."""

    def __init__(self, gate: Gate, client: str, weight: int, request: list[Ticket]) -> None:
        self._gate = gate
        self.client = client
        self.weight = weight
        self.request = request  # all tickets of one
        self.granted: float | None = None  # monotonic seconds
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def begun(self) -> bool:
        """Whether a prompt of the same request has left the queue."""
        return any(ticket.granted is not None for ticket in self.request)

    async def wait(self) -> None:
        """Return when the engine may be given the prompt. ApiError 429 where it is refused."""
        await self._future

    def grant(self) -> None:
        """Let the prompt run."""
        self.granted = time.monotonic()
        if not self._future.done():
            self._future.set_result(None)

    def refuse(self, error: ApiError) -> None:
        """Take the prompt out of the queue."""
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # seen, even if nobody waits
        self.release()

    def release(self) -> None:
        """Give the place back; calling it again does nothing."""
        self._gate.release(self)


class Gate:
    """`capacity` sequences run at once, at most `max_waiting` wait; None: as many as come."""

    def __init__(self, capacity: int, max_waiting: int | None) -> None:
        self.capacity = capacity
        self._most = None if max_waiting is None else capacity + max_waiting
        self._queues: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._held: set[Ticket] = set()
        self._seconds = 1.0  # moving mean of how long a place is held

    @property
    def running(self) -> int:
        """Sequences that the engine has been given."""
        return sum(ticket.weight for ticket in self._held)

    @property
    def waiting(self) -> int:
        """Sequences that wait here."""
        return sum(map(_weight, self._queues.values()))

    def enter(self, client: str, weights: Sequence[int]) -> list[Ticket]:
        """A ticket for each prompt of a request, which has so many sequences. All of them or none:
        ApiError 429 where too many wait, 400 where so many could never wait. Where the queue is
        full, the last requests of the client that has most in it are refused for another's."""
        weights = [min(weight, self.capacity) for weight in weights]
        total = sum(weights)
        if self._most is not None:
            if total > self._most:
                raise ApiError(
                    400,
                    f"the request has {total} sequences; the server takes at most "
                    f"{self._most} at once: send fewer prompts or a lower n",
                    param="n",
                )
            for ticket in self._crowded_out(client, total):
                ticket.refuse(self._full())
        request: list[Ticket] = []
        request += [Ticket(self, client, weight, request) for weight in weights]
        self._queues.setdefault(client, deque()).extend(request)
        self._advance()
        return list(request)

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """One place, held inside."""
        (ticket,) = self.enter(client, [1])
        try:
            await ticket.wait()
            yield
        finally:
            ticket.release()

    def _crowded_out(self, client: str, total: int) -> list[Ticket]:
        """The tickets that must go for `total` sequences of a client. ApiError 429 where it would
        have as many waiting as any other."""
        assert self._most is not None
        queues = {name: list(queue) for name, queue in self._queues.items()}
        own = _weight(queues.get(client, ())) + total
        over = self.running + self.waiting + total - self._most
        gone: list[Ticket] = []
        while over > 0:
            longest = max(queues, key=lambda name: _weight(queues[name]), default=client)
            queue = queues.get(longest, [])
            if longest == client or _weight(queue) <= own or queue[-1].begun:
                raise self._full()
            last = queue[-1].request
            gone += last
            over -= _weight(last)
            queues[longest] = [ticket for ticket in queue if ticket not in last]
        return gone

    def _full(self) -> ApiError:
        return ApiError(
            429,
            f"{self.waiting} sequences wait already; try again later",
            code="queue_full",
            retry_after=self._retry_after(),
        )

    def release(self, ticket: Ticket) -> None:
        """Give a ticket's place back, running or waiting."""
        queue = self._queues.get(ticket.client)
        if ticket in self._held:
            self._held.remove(ticket)
            assert ticket.granted is not None
            self._seconds += 0.1 * (time.monotonic() - ticket.granted - self._seconds)
        elif queue is not None and ticket in queue:
            queue.remove(ticket)
            if not queue:
                del self._queues[ticket.client]
        self._advance()

    def _advance(self) -> None:
        """Grant places, one a client by turns, while there are any."""
        while self._queues:
            client, queue = next(iter(self._queues.items()))
            if self.running + queue[0].weight > self.capacity:
                return
            ticket = queue.popleft()
            if queue:
                self._queues.move_to_end(client)
            else:
                del self._queues[client]
            self._held.add(ticket)
            ticket.grant()

    def _retry_after(self) -> int:
        seconds = self._seconds * (1 + self.waiting / self.capacity)
        return max(1, min(_MAX_RETRY, round(seconds)))


def _weight(tickets: Iterable[Ticket]) -> int:
    return sum(ticket.weight for ticket in tickets)
