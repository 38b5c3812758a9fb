"""Which requests the engine works on, and which wait: by turns between clients, up to a limit.

The engine itself serves first come, first served. So it is given only what can run at once, and the
rest waits here, a queue a client. A client with a hundred prompts delays another's by one turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Sequence

from lora_sdk.serve.errors import ApiError

_MAX_RETRY = 60  # seconds


class Ticket:
    """A place for one prompt: waiting, granted or released. Not thread-safe, as all of this file:
    the event loop's."""

    def __init__(self, gate: Gate, client: str, weight: int) -> None:
        self._gate = gate
        self.client = client
        self.weight = weight
        self.granted: float | None = None  # monotonic seconds
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Return when the engine may be given the prompt."""
        await self._future

    def grant(self) -> None:
        """Let the prompt run."""
        self.granted = time.monotonic()
        if not self._future.done():
            self._future.set_result(None)

    def release(self) -> None:
        """Give the place back; calling it again does nothing."""
        self._gate.release(self)


class Gate:
    """`capacity` sequences run at once, at most `max_waiting` wait."""

    def __init__(self, capacity: int, max_waiting: int) -> None:
        self.capacity = capacity
        self._max_waiting = max_waiting
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
        return sum(ticket.weight for queue in self._queues.values() for ticket in queue)

    def enter(self, client: str, weights: Sequence[int]) -> list[Ticket]:
        """A ticket for each prompt of a request, which has so many sequences. All of them or none:
        ApiError 429 where too many wait, 400 where so many could never wait."""
        weights = [min(weight, self.capacity) for weight in weights]
        total = sum(weights)
        if total > self.capacity + self._max_waiting:
            raise ApiError(
                400,
                f"the request has {total} sequences; the server takes at most "
                f"{self.capacity + self._max_waiting} at once: send fewer prompts or a lower n",
                param="n",
            )
        if self.running + self.waiting + total > self.capacity + self._max_waiting:
            raise ApiError(
                429,
                f"{self.waiting} sequences wait already; try again later",
                code="queue_full",
                retry_after=self._retry_after(),
            )
        tickets = [Ticket(self, client, weight) for weight in weights]
        self._queues.setdefault(client, deque()).extend(tickets)
        self._advance()
        return tickets

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
