"""Runs the requests of many threads and of asyncio in one loop of steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lora_host.errors import LoraError, RequestError
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.engine.requests import Request
from lora_sdk.engine.scheduler import Scheduler
from lora_sdk.engine.step_loop import StepLoop
from lora_sdk.engine.turns import FairLock, Turns, Waiter
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.step.stepper import Stepper

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.engine.kv_source import KvSource
    from lora_sdk.engine.scheduler import RunningSequence
    from lora_sdk.engine.weight_watch import WeightWatch
    from lora_sdk.spec.loop import Speculation

IDLE_SECONDS = 0.25  # between two looks at the weights without requests


class Generator:
    """Runs requests. Any thread may submit, wait and advance; one at a time runs steps.

    `lock` is held while a step runs and while a caller changes the cache or the adapters."""

    def __init__(
        self,
        stepper: Stepper,
        cache: KvCache,
        row_limit: int,
        greedy: GreedyLoop | None = None,
        adapters: AdapterSlots | None = None,
        speculation: Speculation | None = None,
        source: KvSource | None = None,
        weights: WeightWatch | None = None,
    ) -> None:
        """`source`: see Scheduler; `weights`: see StepLoop."""
        self.lock = FairLock()
        self._scheduler = Scheduler(cache, row_limit, adapters, source)
        self._loop = StepLoop(
            self._scheduler, stepper, cache, greedy, speculation, self._must_return, weights
        )
        self._inbox: deque[Request] = deque()
        self._turns = Turns()
        self._closed = False
        self._adopted: deque[Request] = deque()  # only the background thread waits for these
        self._background = Waiter()
        self._work = threading.Event()  # set when a request is adopted
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def new_tokens(self) -> int:
        """Tokens of all requests so far."""
        return self._loop.new_tokens

    @property
    def preempted(self) -> int:
        """Times that a sequence gave its pages back before its end."""
        return self._scheduler.preempted

    def submit(self, request: Request) -> None:
        """Queue a request. It takes part from the next step on. Does not wait."""
        if self._closed:
            raise RequestError("the engine is closed; open another one")
        request.home = self
        self._inbox.append(request)

    def run(self, requests: Sequence[Request]) -> None:
        """Queue requests and return once they have ended; any exception cancels them."""
        for request in requests:
            self.submit(request)
        try:
            self.wait(requests)
        finally:
            left = [request for request in requests if not request.ended]
            if left:
                self.forget(left)

    def wait(self, requests: Sequence[Request]) -> None:
        """Return once the requests have ended. Each holds its result or error."""
        waiter = Waiter()
        for request in requests:
            request.wake_at_end = waiter.wake
        left = deque(requests)

        def finished() -> bool:
            while left and left[0].ended:
                left.popleft()
            return not left

        self._turns.wait(waiter, finished, lambda: self._serve(one_step=False))

    def wait_for_delta(self, request: Request, waiter: Waiter, arrived: Callable[[], bool]) -> None:
        """Return once `arrived()` or the request has ended. Its callbacks wake `waiter`."""
        self._turns.wait(
            waiter, lambda: arrived() or request.ended, lambda: self._serve(one_step=True)
        )

    def forget(self, requests: Sequence[Request]) -> None:
        """Cancel requests that no caller waits for any more, and free what they hold."""
        for request in requests:
            request.cancel()
        with self.lock:
            self._take_inbox()
            for request in requests:
                self._loop.remove(request)

    def tracks(self, request: Request) -> list[RunningSequence]:
        """The running sequences of a request. The caller holds the lock."""
        self._take_inbox()
        return self._loop.tracks(request)

    def give_up(self, request: Request) -> None:
        """Remove a request that will run elsewhere. The caller holds the lock."""
        self._loop.remove(request)
        request.home = None

    def adopt(self, request: Request) -> None:
        """Submit a request for which no thread waits. A background thread runs the steps if no
        other thread does. Does not wait."""
        self.submit(request)
        self._adopted.append(request)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_background, name="lora-generator", daemon=True
                )
                self._thread.start()
        self._work.set()
        if self._closed:  # closed in the meantime
            self.advance()

    def close(self) -> None:
        """Fail the running requests and end the background thread."""
        self._closed = True
        self.advance()
        self._work.set()
        self._background.wake()
        with self._starting:  # a thread that is being started
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def advance(self, one_step: bool = True) -> bool:
        """Run one step, or with `one_step` False possibly many in the boards' own greedy loop.

        Returns False if there is nothing to do. A LoraError ends the affected requests and is then
        raised; the others continue. Any other exception ends all requests.
        """
        with self.lock:
            self._take_inbox()
            if self._closed:
                self._loop.fail_all(RequestError("the engine was closed while the request ran"))
                return False
            return self._loop.advance(one_step)

    def _serve(self, one_step: bool) -> None:
        with suppress(LoraError):  # stored in the requests that it ended
            self.advance(one_step)

    def _run_background(self) -> None:
        while not self._closed:
            if not self._work.wait(IDLE_SECONDS):
                self._watch_idle()
                continue
            self._work.clear()
            try:
                self._turns.wait(
                    self._background, self._is_deserted, lambda: self._serve(one_step=False)
                )
            except Exception:  # stored in every request; their callers raise it
                self._work.set()

    def between_steps(self) -> None:
        """What is due before a caller's own rows. The caller holds the lock."""
        self._loop.watch_weights()

    def _watch_idle(self) -> None:
        """Nothing was adopted for IDLE_SECONDS. A failure shows again at the next request."""
        if not self._scheduler.idle or self._inbox or self._closed:
            return
        with self.lock, suppress(LoraError):
            if not self._closed:
                self._loop.watch_weights(IDLE_SECONDS)

    def _is_deserted(self) -> bool:
        """Whether every adopted request has ended or is another engine's."""
        while self._adopted and (self._adopted[0].ended or self._adopted[0].home is not self):
            self._adopted.popleft()
        return self._closed or not self._adopted

    def _must_return(self) -> bool:
        """Whether the boards' own loop must end, because other work is waiting."""
        return bool(self._inbox) or self._closed or self.lock.contended

    def _take_inbox(self) -> None:
        while self._inbox:
            self._loop.submit(self._inbox.popleft())
