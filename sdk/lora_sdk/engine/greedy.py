"""Greedy decoding of one sequence by the C host's own loop. Between tokens only the callback runs
Python code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from lora_host.errors import LoraError, ModelError
from lora_sdk.core.contents import Uncommitted
from lora_sdk.core.kvcache import KvCache
from lora_sdk.core.nonfinite import nonfinite_error
from lora_sdk.core.stepper import Stepper, may_be_redone
from lora_sdk.timing.step import StepShape

if TYPE_CHECKING:
    from lora_sdk.core.opening import OpenedModel

OnToken = Callable[[int], bool]
"""Called with each token; True ends the loop."""


class Loop(Protocol):
    """Runs rows from the pending token on, alternating between the two slots, until `on_token`
    returns True. `run` ends with the pending token; new tokens are appended to it. `adapter`: slot
    of the rows, -1 for none."""

    def greedy(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int],
        max_tokens: int,
        on_token: OnToken,
        adapter: int,
    ) -> None: ...


class BoardLoop:
    """The C host's loop on the boards of an opened model."""

    def __init__(self, opened: OpenedModel) -> None:
        self._opened = opened

    def greedy(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int],
        max_tokens: int,
        on_token: OnToken,
        adapter: int,
    ) -> None:
        """See Cluster.greedy. ModelError names the command whose value is not finite."""
        runner = self._opened.runner
        before, on_step = len(run), runner.on_step

        def received(emitted: int) -> bool:
            run.append(emitted)
            if on_step is not None:
                done = len(run) - before
                on_step(StepShape(1, position + done, position + done, 1, int(done > 1)))
            return on_token(emitted)

        try:
            self._opened.cluster.greedy(
                sequence,
                position,
                run[-1],
                slots,
                max_tokens,
                runner.argmax_offsets,
                runner.plan.boards[0].control.block_offset,
                on_token=received,
                adapter=adapter,
            )
        except ModelError as error:
            at = error.failure
            if at is None or at.board is None or at.index is None:
                raise
            context = position + len(run) - before
            where = f"in the row of sequence {sequence}, position {context}"
            lists = runner.commands
            raise nonfinite_error(lists, at.board, at.index, where, at.row) from error


class GreedyLoop:
    """Runs the loop and keeps the cache's state consistent with it."""

    def __init__(self, loop: Loop, stepper: Stepper, cache: KvCache) -> None:
        self._loop = loop
        self._stepper = stepper
        self._cache = cache

    def run(self, sequence: int, token: int, max_tokens: int, on_token: OnToken) -> None:
        """Emit at most `max_tokens` tokens after the pending `token`.

        Pages for all of them are mapped first. A failed step is redone once, and again if the
        boards can be recovered: the loop continues from its pending token. An exception of
        `on_token` ends the loop and is raised here, with the cache consistent.
        """
        end = min(self._cache.length(sequence) + max_tokens, self._cache.context)
        run = [token]  # tokens whose rows have run, then the pending token
        failed = 0  # length of `run` when a step last failed
        self._cache.grow(sequence, end)
        self._stepper.flush()
        while True:
            try:
                if failed:  # the last row's commit is queued
                    self._stepper.flush(redo=False)
                return self._run(sequence, run, end, on_token)
            except LoraError as error:
                if failed != len(run) and may_be_redone(error):
                    self._stepper.redone += 1
                    failed = len(run)
                    continue
                if not self._stepper.recovered(error):
                    raise
            failed = len(run)  # once more is enough after a recovery

    def _run(self, sequence: int, run: list[int], end: int, on_token: OnToken) -> None:
        """Extend `run`, which ends with the pending token, to position `end`. Its other tokens are
        committed already."""
        start, before = self._cache.length(sequence), len(run) - 1
        slots = self._cache.take_slots(2)
        try:
            self._loop.greedy(
                sequence,
                start,
                run,
                (slots[0], slots[1]),
                end - start,
                on_token,
                self._stepper.adapter_of(sequence),
            )
        except ModelError:  # the last row ran, and its header committed the row before
            self._settle(sequence, start, run[before:], slots)
            self._cache.drop(sequence)
            raise
        except BaseException:
            self._settle(sequence, start, run[before:-1], slots)
            self._commit_last(sequence)
            raise
        self._settle(sequence, start, run[before:-1], slots)
        self._commit_last(sequence)

    def _settle(self, sequence: int, start: int, run: Sequence[int], slots: Sequence[int]) -> None:
        """The rows of `run` used the slots alternately. All but the last are committed."""
        if not run:
            self._cache.give_slots(slots)
            return
        self._stepper.progress += len(run)
        last, other = (slots[0], slots[1]) if len(run) % 2 else (slots[1], slots[0])
        self._cache.committed_elsewhere(sequence, run[:-1])
        row = Uncommitted(run[-1], start + len(run) - 1, -1)
        self._cache.add_row(sequence, last, row)
        self._cache.give_slots([other])

    def _commit_last(self, sequence: int) -> None:
        slots = list(self._cache.uncommitted(sequence))
        if slots:
            self._cache.commit(sequence, slots)
