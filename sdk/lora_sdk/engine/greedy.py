"""Greedy decoding of one sequence without Python between the tokens, but for the callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lora_host.errors import ModelError
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.kv.uncommitted import Uncommitted
from lora_sdk.step.stepper import Stepper

OnToken = Callable[[int], bool]
"""Called with each token; True ends the loop."""

SLOTS = 3
"""Rows use them in turn. While one board runs a row, another may have to run the row before it
again, which commits the row before that."""


class Loop(Protocol):
    """Runs rows from the pending token on, using the slots in turn, until `on_token` returns True
    or a stop token has come. `run` ends with the pending token. New tokens are appended to it, and
    taken off where their step has to be run again. `adapter`: slot of the rows, -1 for none.

    `rows`: rows that ran in the last call, also if it failed. They may be more than it has appended
    tokens, because boards go on until they are stopped."""

    rows: int

    def greedy(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int, int],
        max_tokens: int,
        on_token: OnToken,
        adapter: int,
        stop_tokens: Sequence[int] = (),
    ) -> None: ...


class GreedyLoop:
    """Runs the loop and keeps the cache's state consistent with it."""

    def __init__(self, loop: Loop, stepper: Stepper, cache: KvCache) -> None:
        self._loop = loop
        self._stepper = stepper
        self._cache = cache

    def run(
        self,
        sequence: int,
        token: int,
        max_tokens: int,
        on_token: OnToken,
        stop_tokens: Sequence[int] = (),
    ) -> None:
        """Emit at most `max_tokens` tokens after the pending `token`, or up to a stop token.

        Pages for all of them are mapped first. A step that fails ends the loop: the cache says how
        many rows are computed, which may be fewer than tokens were emitted. So does an exception of
        `on_token`, which is raised here."""
        start = self._cache.length(sequence)
        end = min(start + max_tokens, self._cache.context)
        run = [token]  # tokens whose rows have run, then the pending token
        self._cache.grow(sequence, end)
        self._stepper.flush()
        slots = self._cache.take_slots(SLOTS)
        ran: Sequence[int] | None = None
        try:
            self._loop.greedy(
                sequence,
                start,
                run,
                (slots[0], slots[1], slots[2]),
                end - start,
                on_token,
                self._stepper.adapter_of(sequence),
                stop_tokens,
            )
        except ModelError:  # the last row ran, and its header committed the row before
            ran = run
            raise
        finally:
            self._settle(sequence, start, run[:-1] if ran is None else ran, slots)
            if ran is None:
                self._commit_last(sequence)
            else:
                self._cache.drop(sequence)

    def _settle(self, sequence: int, start: int, run: Sequence[int], slots: Sequence[int]) -> None:
        """The rows of `run` used the slots in turn. All but the last are committed. Rows that ran
        after them are dropped."""
        self._stepper.progress += len(run)
        self._stepper.rows += len(run)
        if self._loop.rows > len(run):
            self._cache.committed_elsewhere(sequence, run, slots)
            return
        if not run:
            self._cache.release_slots(slots)
            return
        last = slots[(len(run) - 1) % SLOTS]
        self._cache.committed_elsewhere(sequence, run[:-1])
        row = Uncommitted(run[-1], start + len(run) - 1, -1)
        self._cache.add_row(sequence, last, row)
        self._cache.release_slots([slot for slot in slots if slot != last])

    def _commit_last(self, sequence: int) -> None:
        slots = list(self._cache.uncommitted(sequence))
        if slots:
            self._cache.commit(sequence, slots)
