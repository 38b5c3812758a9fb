"""Greedy decoding of one sequence by the C host's own loop: no Python between two tokens but the
listener's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lora_sdk.kvcache import KvCache, Uncommitted
from lora_sdk.stepper import Stepper

OnToken = Callable[[int], bool]
"""Called with each token; True ends the loop."""


class GreedyRunner(Protocol):
    """What is needed of lora_sdk.runner.Runner."""

    def greedy(
        self,
        sequence: int,
        position: int,
        token: int,
        slots: tuple[int, int],
        max_tokens: int,
        on_token: OnToken,
        stop_tokens: Sequence[int] = (),
    ) -> int: ...


class GreedyLoop:
    """The loop with the cache's books around it."""

    def __init__(self, runner: GreedyRunner, stepper: Stepper, cache: KvCache) -> None:
        self._runner = runner
        self._stepper = stepper
        self._cache = cache

    def run(self, sequence: int, token: int, max_tokens: int, on_token: OnToken) -> None:
        """Emit at most `max_tokens` tokens after the pending `token`.

        Pages for all of them enter the table first. What `on_token` raises ends the loop and is
        raised here, with the books in order.
        """
        start = self._cache.length(sequence)
        max_tokens = min(max_tokens, self._cache.context - start)
        self._cache.grow(sequence, start + max_tokens)
        self._stepper.flush()
        slots = self._cache.take_slots(2)
        run = [token]  # tokens whose rows have run, then the pending one
        raised: list[BaseException] = []

        def listen(emitted: int) -> bool:
            run.append(emitted)
            try:
                return on_token(emitted)
            except BaseException as error:  # must not cross the C frames
                raised.append(error)
                return True

        try:
            self._runner.greedy(
                sequence, start, token, (slots[0], slots[1]), max_tokens, listen
            )
        finally:
            self._settle(sequence, start, run[:-1], slots)
        if raised:
            raise raised[0]

    def _settle(self, sequence: int, start: int, run: Sequence[int], slots: Sequence[int]) -> None:
        """The rows of `run` took the slots in turn; all but the last are committed."""
        last, other = (slots[0], slots[1]) if len(run) % 2 else (slots[1], slots[0])
        if not run:
            self._cache.give_slots(slots)
            return
        self._cache.committed_elsewhere(sequence, run[:-1])
        row = Uncommitted(run[-1], start + len(run) - 1, -1)
        self._cache.add_row(sequence, last, row)
        self._cache.commit(sequence, [last])
        self._cache.give_slots([other])
