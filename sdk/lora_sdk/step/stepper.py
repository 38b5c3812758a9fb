"""Runs steps. Each step's header carries the cache's queued KV operations.

A failed step leaves the boards' tables as they were before it. The next one may have other rows:
the C host uses the same step number with a higher epoch, so every board runs it, whether or not it
has completed the failed one. If that fails too, `recover` may restore the boards, without what they
held of the open sequences: its rows run before any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from lora_host import abi
from lora_host.errors import CommandError, LinkError, LoraError, ModelError, TransportError
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.kv.uncommitted import Uncommitted
from lora_sdk.step.step import Row, StepResult, joined

Result = TypeVar("Result")

WriteKv = Callable[[Sequence[int], KvArrays], object]
"""Writes K and V to pages."""


OF_BOARDS = (CommandError, LinkError, TransportError)  # failures of boards and links


def may_be_redone(error: LoraError) -> bool:
    """Whether a step that failed with this error of boards or links may succeed the next time.

    True for all but cancellation, a hang (which needs a reset), and failures after which the C host
    has already redone the step."""
    final = (abi.ERR_CANCELLED, abi.ERR_TIMEOUT, abi.ERR_LINK_CRC, abi.ERR_GATHERED)
    return error.failure is None or error.failure.code not in final


class StepRunner(Protocol):
    """The part of lora_sdk.step.runner.Runner that is used here."""

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult: ...


class StepObserver(Protocol):
    """Told of steps, and of failures that those who wait for results never see."""

    def before_step(self) -> None:
        """A step is about to run."""

    def saw(self, error: LoraError) -> None:
        """A step or a recovery has failed. The same error may come twice."""

    def restored(self) -> None:
        """Boards hold weights and lists again, before the sequences' rows run again."""


class SlotsOfSequences(Protocol):
    """Which adapter's slot the rows of a sequence use."""

    def slot_of(self, sequence: int) -> int:
        """-1 for none."""


class Stepper:
    """Runs rows and keeps the cache's state consistent with the boards."""

    def __init__(
        self, runner: StepRunner, cache: KvCache, adapters: SlotsOfSequences | None = None
    ) -> None:
        """`adapters` gives the adapter slot of each sequence's rows; None: no adapters."""
        self._adapters = adapters
        self._runner = runner
        self._cache = cache
        self.steps = 0
        self.rows = 0  # that have run, also in the boards' own loop
        self.redone = 0  # failures after which no more was done than to try again
        self._failed = -1  # the rows at the last of them
        self.progress = 0  # changes whenever rows have run
        self.restored = 0  # the progress when boards were last restored, their weights summed
        self.recover: Callable[[LoraError], bool] | None = None
        """Called with an error of the boards. True: they were recovered, and the cache knows what
        they have lost. Raises what the requests shall end with instead."""
        self.write_kv: WriteKv | None = None  # None where no sequence was imported
        self.observer: StepObserver | None = None
        self._row_limit = 0  # of the boards, 0 for as many as callers give

    def use(self, runner: StepRunner, row_limit: int) -> None:
        """Run steps with another runner from now on. More than `row_limit` rows run as several."""
        self._runner, self._row_limit = runner, row_limit

    def run(self, rows: Sequence[Row], retry: bool = False) -> StepResult:
        """One step with these rows, whose slots were taken from the cache, after what their
        sequences have lost.

        A LoraError leaves the cache as it was before the call; the rows' slots are returned, or
        kept with `retry`, so that the same rows may run again. RowsLostError: rows that they follow
        were lost. A ModelError means that the step ran but its results are unusable: its rows are
        dropped. After any other exception (Ctrl-C) every sequence is forgotten.
        """
        if self._cache.has_lost:
            try:
                self._compute_lost(rows)
            except LoraError:
                if not retry:
                    self._give_back(rows)
                raise
        return self._run(rows, retry)

    def _compute_lost(self, rows: Sequence[Row]) -> None:
        slots = {row.slot for row in rows}
        for row in rows:
            if row.parent not in slots:
                self._cache.check_parent(row.sequence, row.parent)
        for sequence in {row.sequence: None for row in rows}:
            self.compute(sequence)

    def compute(self, sequence: int) -> None:
        """Run the rows of committed positions that the boards have lost. RequestError if there are
        no pages for them."""
        cache = self._cache
        kv = cache.lost_import(sequence) if cache.lost(sequence) else None
        if kv is not None:
            assert self.write_kv is not None
            self.write_kv(cache.pages(sequence), kv)
            cache.written(sequence)
        while cache.lost(sequence):
            if not cache.free_slots:
                self.flush()
            tokens = cache.lost(sequence)[: max(1, min(abi.MAX_ROWS, cache.free_slots))]
            start = cache.computed(sequence)
            cache.grow(sequence, start + len(tokens))
            slots = cache.take_slots(len(tokens))
            self._run(
                [
                    Row(sequence, start + i, token, slots[i], slots[i - 1] if i else -1,
                        vector=cache.vector(sequence, start + i))
                    for i, token in enumerate(tokens)
                ]
            )  # fmt: skip
            cache.commit(sequence, slots)
        cache.note_losses()

    def _run(self, rows: Sequence[Row], retry: bool = False) -> StepResult:
        size = self._row_limit or len(rows)
        parts = [rows[start : start + size] for start in range(0, len(rows), size or 1)] or [rows]
        results: list[StepResult] = []
        try:
            while self._cache.more_than_a_header:
                self._step(())
            for part in parts:
                results.append(self._step(part))
                self._note(part)
        except ModelError as error:
            done = sum(map(len, parts[: len(results)]))
            if error.row is not None:
                error.row += done
            self._note(parts[len(results)])
            self._give_back([row for part in parts[len(results) + 1 :] for row in part])
            self._drop(rows)
            raise
        except LoraError:
            if results:  # only where the boards run fewer rows than before
                self._drop([row for part in parts[: len(results)] for row in part])
            if not retry:
                self._give_back([row for part in parts[len(results) :] for row in part])
            raise
        return results[0] if len(results) == 1 else joined(results, list(map(len, parts)))

    def _drop(self, rows: Sequence[Row]) -> None:
        for sequence in {row.sequence for row in rows}:
            self._cache.drop(sequence)

    def _give_back(self, rows: Sequence[Row]) -> None:
        self._cache.release_slots([row.slot for row in rows])

    def flush(self) -> None:
        """Run empty steps until nothing is queued and all freed slots and pages are free."""
        while self._cache.queued or self._cache.leaving:
            self._step(())

    def again(self, error: LoraError) -> bool:
        """Whether what has failed may be tried again: once at once, if the failure may pass, else
        after the boards were recovered. LoraError: what requests shall end with instead."""
        if not isinstance(error, OF_BOARDS):
            return False
        self.saw(error)
        if self._failed != self.rows and may_be_redone(error):
            self._failed = self.rows
            self.redone += 1
            return True
        return self.recovered(error)

    def tried(self, act: Callable[[], Result]) -> Result:
        """What `act` returns, tried again after failures."""
        while True:
            try:
                return act()
            except LoraError as error:
                if not self.again(error):
                    raise

    def recovered(self, error: LoraError) -> bool:
        """Whether the boards were recovered after this error. The step may then run again."""
        self.saw(error)
        if self.recover is None:
            return False
        try:
            return self.recover(error)
        except LoraError:
            raise
        except BaseException:  # Ctrl-C: the boards hold only a part
            self._cache.reset()
            raise

    def saw(self, error: LoraError) -> None:
        """Tell the observer of a failure."""
        if self.observer is not None:
            self.observer.saw(error)

    def _step(self, rows: Sequence[Row]) -> StepResult:
        header = self._cache.next_header()
        if self.observer is not None:
            self.observer.before_step()
        try:
            result = self._runner.step(self._adapted(rows), header.kv_ops, header.path)
        except ModelError:  # raised for the results: the boards have completed the step
            self._cache.step_done()
            self.progress += 1
            raise
        except LoraError as error:
            self._cache.step_failed()
            self.saw(error)
            raise
        except BaseException:
            self._cache.reset()
            raise
        self._cache.step_done()
        self.steps += 1
        self.progress += 1
        self.rows += len(rows)
        return result

    def adapter_of(self, sequence: int) -> int:
        """Adapter slot of the sequence's rows, -1 for none."""
        return -1 if self._adapters is None else self._adapters.slot_of(sequence)

    def _adapted(self, rows: Sequence[Row]) -> Sequence[Row]:
        if self._adapters is None:
            return rows
        return [replace(row, adapter=self.adapter_of(row.sequence)) for row in rows]

    def _note(self, rows: Sequence[Row]) -> None:
        for row in rows:
            uncommitted = Uncommitted(row.token, row.position, row.parent, row.vector)
            self._cache.add_row(row.sequence, row.slot, uncommitted)


def argmax_of(result: StepResult, index: int) -> int:
    """Token of the max logit of the step's row `index`. ModelError if a logit is NaN."""
    if result.argmax is None:
        raise ValueError("no row of the step requested its argmax")
    values, tokens = result.argmax
    selected = result.rows.index(index)
    if values[selected] != values[selected]:
        raise ModelError(
            f"logits of row {index} of step {result.step} hold NaN; expected numbers; check the "
            "model's weights for values that overflow FP16"
        )
    return int(tokens[selected])
