"""A fleet in simulated time: arrivals, prompts on workers, hand-over, new tokens on clusters."""

from __future__ import annotations

import heapq
import random
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from lora_cluster.dispatch.policy import Policy
from lora_lab.fleet.description import FleetModel
from lora_lab.fleet.service import Cluster, Worker, exposed_transfer


@dataclass(eq=False)
class Served:
    """A request, with its times in seconds since the start."""

    number: int
    arrived: float
    prefilled: float = 0.0  # its first token
    finished: float = 0.0
    emitted: int = 0  # tokens that a worker has decoded
    decoded_by: str = ""


@dataclass(eq=False)
class _WorkerState:
    number: int
    worker: Worker
    capacity: int  # sequences in its memory
    held: deque[Served] = field(default_factory=deque)  # computed, oldest first
    resident: int = 0  # sequences in its memory, the ones being computed and sent included
    busy: bool = False
    prefilling: float = 0.0  # seconds so far
    decoding: float = 0.0


@dataclass(eq=False)
class _ClusterState:
    number: int
    cluster: Cluster
    busy: bool = False
    prefilling: float = 0.0
    decoding: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a simulation gave. `emissions`: (begin, end, tokens) during which a card emitted tokens
    at an even rate. `drained`: when the last sequence began to decode."""

    requests: tuple[Served, ...]
    emissions: tuple[tuple[float, float, int], ...]
    drained: float
    joules: float


class Simulation:
    """One run of a fleet."""

    def __init__(
        self,
        fleet: FleetModel,
        policy: Policy | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`progress` is called with the requests that have ended, and all."""
        self._progress = progress
        self._load, self._config = fleet.load, fleet.config
        self._rate = fleet.transfer_bytes_per_second
        self._policy = policy or Policy()
        positions = fleet.load.prompt + fleet.load.response
        self._workers = [
            _WorkerState(number, worker, worker.sequences(positions))
            for number, worker in enumerate(fleet.workers)
        ]
        self._clusters = [_ClusterState(*numbered) for numbered in enumerate(fleet.clusters)]
        self._idle_workers, self._idle_clusters = list(self._workers), list(self._clusters)
        self._now = self._drained = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._changes: list[float] = []  # when workers may have something else to do than decode
        self._count = 0
        self._queue: deque[Served] = deque()
        self._done: list[Served] = []
        self._emissions: list[tuple[float, float, int]] = []

    def run(self) -> Outcome:
        """Simulate until every request has ended."""
        load = self._load
        generator, at = random.Random(load.seed), 0.0
        for number in range(load.requests):
            if load.per_second is not None:
                at += generator.expovariate(load.per_second)
            self._change(at, partial(self._queue.append, Served(number, at)))
        while self._events:
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                heapq.heappop(self._events)[2]()
            self._assign()
        joules = sum(one.worker.joules(one.prefilling, one.decoding) for one in self._workers)
        joules += sum(one.cluster.joules(one.prefilling, one.decoding) for one in self._clusters)
        return Outcome(tuple(self._done), tuple(self._emissions), self._drained, joules)

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._count += 1  # events of one moment keep their order
        heapq.heappush(self._events, (self._now + seconds, self._count, what))

    def _change(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._changes, self._now + seconds)
        self._after(seconds, what)

    def _assign(self) -> None:
        """Give work to all that is idle."""
        for state in list(self._idle_clusters):
            self._feed(state)
            if not state.busy:  # nothing waits for the others either
                break
            self._idle_clusters.remove(state)
        for worker in list(self._idle_workers):
            self._start(worker)
            if worker.busy:
                self._idle_workers.remove(worker)

    def _free(self, state: _WorkerState | _ClusterState) -> None:
        """A card has ended its work."""
        state.busy = False
        if isinstance(state, _WorkerState):
            insort(self._idle_workers, state, key=attrgetter("number"))
        else:
            insort(self._idle_clusters, state, key=attrgetter("number"))

    # --- workers --------------------------------------------------------------------------------

    def _start(self, state: _WorkerState) -> None:
        room = state.capacity - state.resident
        chosen = self._policy.worker(len(self._queue), len(state.held), room)
        if chosen == "prefill":
            self._prefill(state, self._take())
        elif chosen == "decode":
            self._decode(state, state.held.popleft())

    def _take(self) -> Served:
        return self._queue.popleft()

    def _prefill(self, state: _WorkerState, request: Served) -> None:
        seconds = state.worker.prefill(self._load.prompt)
        state.busy, state.resident = True, state.resident + 1
        state.prefilling += seconds

        def ended() -> None:
            self._free(state)
            request.prefilled = self._now
            state.held.append(request)

        self._after(seconds, ended)

    def _decode(self, state: _WorkerState, request: Served) -> None:
        """Tokens until a prompt or an idle cluster may come: at least one."""
        count, seconds = self._until_change(state.worker, request)
        state.busy = True
        if not request.emitted:
            self._drained = self._now
        state.decoding += seconds
        began = self._now

        def ended() -> None:
            self._free(state)
            request.emitted += count
            self._emissions.append((began, self._now, count))
            if request.emitted == self._load.response:
                state.resident -= 1
                self._finish(request, state.worker.name)
            else:
                state.held.appendleft(request)

        self._after(seconds, ended)

    def _until_change(self, worker: Worker, request: Served) -> tuple[int, float]:
        """How many of a request's tokens a worker computes without a look, and their seconds."""
        while self._changes and self._changes[0] <= self._now:
            heapq.heappop(self._changes)
        context, left = self._load.prompt + request.emitted, self._load.response - request.emitted
        count = left
        if self._changes:
            last = worker.decode(context + left - 1, 1)  # the longest of them
            count = max(1, min(left, int((self._changes[0] - self._now) / last)))
        return count, worker.decode(context, count)

    # --- clusters -------------------------------------------------------------------------------

    def _feed(self, state: _ClusterState) -> None:
        """Let an idle cluster take the sequence that was computed first, or without workers the
        next prompt."""
        if not self._workers:
            if self._queue:
                self._serve(state, self._take(), state.cluster.prefill(self._load.prompt))
            return
        holding = [worker for worker in self._workers if worker.held]
        if not holding:
            return
        worker = min(holding, key=lambda one: one.held[0].prefilled)
        request = worker.held.popleft()
        waited = self._now - request.prefilled
        exposed = max(0.0, self._transfer(state.cluster, worker.worker) - waited)
        exposed += 2 * request.emitted * state.cluster.kv_bytes / self._rate

        def sent() -> None:
            worker.resident -= 1

        self._change(exposed, sent)
        self._serve(state, request, 0.0, exposed)

    def _transfer(self, cluster: Cluster, worker: Worker) -> float:
        """Seconds after a prompt's end until its K and V are on the boards, over both hops."""
        layers, prompt = self._config.layers, self._load.prompt
        per_layer = 2 * prompt * cluster.kv_bytes / layers / self._rate
        return exposed_transfer(worker.prefill(prompt), layers, per_layer)

    def _serve(
        self, state: _ClusterState, request: Served, prefill: float, transfer: float = 0.0
    ) -> None:
        load = self._load
        left = load.response - request.emitted
        seconds = state.cluster.decode(load.prompt, load.response, request.emitted)
        state.busy = True
        state.prefilling += prefill
        state.decoding += seconds
        begins = self._now + prefill + transfer
        self._drained = self._now
        self._emissions.append((begins, begins + seconds, left))
        if prefill:
            request.prefilled = begins

        def ended() -> None:
            self._free(state)
            self._finish(request, state.cluster.name)

        self._change(prefill + transfer + seconds, ended)

    def _finish(self, request: Served, where: str) -> None:
        request.finished, request.decoded_by = self._now, where
        self._done.append(request)
        self._progress(len(self._done), self._load.requests)
