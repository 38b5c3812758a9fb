"""Requests of many threads and of asyncio on one loop of steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lora_host.errors import LoraError, RequestError
from lora_sdk.core.kvcache import KvCache
from lora_sdk.core.stepper import Stepper
from lora_sdk.engine.fair_lock import FairLock
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.engine.requests import Request
from lora_sdk.engine.scheduler import Scheduler
from lora_sdk.engine.step_loop import StepLoop
from lora_sdk.engine.turns import Turns, Waiter

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.spec.loop import Speculation


class Generator:
    """Runs requests. Any thread may submit, wait and advance; one at a time runs steps.

    `lock` is held while a step runs, and by whoever else changes the cache or the adapters."""

    def __init__(
        self,
        stepper: Stepper,
        cache: KvCache,
        row_limit: int,
        greedy: GreedyLoop | None = None,
        adapters: AdapterSlots | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self.lock = FairLock()
        scheduler = Scheduler(cache, row_limit, adapters)
        self._loop = StepLoop(scheduler, stepper, cache, greedy, speculation, self._is_wanted)
        self._inbox: deque[Request] = deque()
        self._turns = Turns()
        self._closed = False
        self._adopted: deque[Request] = deque()  # nobody but the background thread waits for these
        self._background = Waiter()
        self._work = threading.Event()  # something was adopted
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def submit(self, request: Request) -> None:
        """Hand a request in; it takes part from the next step on. Waits for nothing."""
        if self._closed:
            raise RequestError("the engine is closed; open another one")
        self._inbox.append(request)

    def wait(self, requests: Sequence[Request]) -> None:
        """Return once the requests have ended. Their results hold what they ended with."""
        waiter = Waiter()
        for request in requests:
            request.wake_at_end = waiter.wake
        left = deque(requests)

        def finished() -> bool:
            while left and left[0].ended:
                left.popleft()
            return not left

        self._turns.wait(waiter, finished, lambda: self._serve(one_step=False))

    def wait_for_delta(self, request: Request, waiter: Waiter, came: Callable[[], bool]) -> None:
        """Return once `came()` or the request has ended; its callbacks wake `waiter`."""
        self._turns.wait(
            waiter, lambda: came() or request.ended, lambda: self._serve(one_step=True)
        )

    def forget(self, requests: Sequence[Request]) -> None:
        """Free what requests hold that nobody waits for any more."""
        for request in requests:
            request.cancel()
        with self.lock:
            self._take_inbox()
            for request in requests:
                self._loop.remove(request)

    def adopt(self, request: Request) -> None:
        """Submit a request for which no thread waits: one in the background runs the steps where
        no other does. Waits for nothing."""
        self.submit(request)
        self._adopted.append(request)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run_background, name="lora-generator", daemon=True
                )
                self._thread.start()
        self._work.set()
        if self._closed:  # meanwhile
            self.advance()

    def close(self) -> None:
        """Fail what still runs and end the thread in the background."""
        self._closed = True
        self.advance()
        self._work.set()
        self._background.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def advance(self, one_step: bool = True) -> bool:
        """Run one step, or with `one_step` False as many as the boards' own greedy loop takes.

        False when there is nothing to do. A LoraError is raised after the requests that it ended
        hold it; the others go on. Anything else ends them all.
        """
        with self.lock:
            self._take_inbox()
            if self._closed:
                self._loop.fail_all(RequestError("the engine was closed while the request ran"))
                return False
            return self._loop.advance(one_step)

    def _serve(self, one_step: bool) -> None:
        with suppress(LoraError):  # the requests that it ended hold it
            self.advance(one_step)

    def _run_background(self) -> None:
        while not self._closed:
            self._work.wait()
            self._work.clear()
            try:
                self._turns.wait(
                    self._background, self._is_deserted, lambda: self._serve(one_step=False)
                )
            except Exception:  # every request holds it; their owners raise it
                self._work.set()

    def _is_deserted(self) -> bool:
        """Whether every adopted request has ended."""
        while self._adopted and self._adopted[0].ended:
            self._adopted.popleft()
        return self._closed or not self._adopted

    def _is_wanted(self) -> bool:
        """Whether the boards' own loop must end, because somebody else wants something."""
        return bool(self._inbox) or self._closed or self.lock.wanted

    def _take_inbox(self) -> None:
        while self._inbox:
            self._loop.submit(self._inbox.popleft())
