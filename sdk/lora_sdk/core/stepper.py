"""Steps with the cache's headers: every queued KV operation travels in the next step.

A step that fails leaves the boards' tables as they were before it. It is run once more: the C host
gives the same step number a higher epoch, so boards that have done it do it again, and boards that
have not do it for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lora_host import abi
from lora_host.errors import CommandError, LinkError, LoraError, ModelError, TransportError
from lora_sdk.core.kvcache import KvCache, Uncommitted
from lora_sdk.core.step import KvOp, Row, StepResult

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots


def may_be_redone(error: LoraError) -> bool:
    """Whether a step that failed with this may succeed when it is run again: a failure of boards or
    links, unless somebody cancelled it, a board hangs until a reset, or the C host has redone the
    step already."""
    if not isinstance(error, (CommandError, LinkError, TransportError)):
        return False
    final = (abi.ERR_CANCELLED, abi.ERR_TIMEOUT, abi.ERR_LINK_CRC)
    return error.failure is None or error.failure.code not in final


class StepRunner(Protocol):
    """What is needed of lora_sdk.core.runner.Runner."""

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult: ...


class Stepper:
    """Runs rows and keeps the cache's books in line with what the boards have done."""

    def __init__(
        self, runner: StepRunner, cache: KvCache, adapters: AdapterSlots | None = None
    ) -> None:
        """`adapters` says which adapter slot each sequence's rows name; None: they name none."""
        self._adapters = adapters
        self._runner = runner
        self._cache = cache
        self.steps = 0
        self.rows = 0
        self.redone = 0  # steps that were run a second time after a failure

    def run(self, rows: Sequence[Row], retry: bool = False) -> StepResult:
        """One step with these rows, whose slots were taken from the cache.

        A step that fails is redone once. A LoraError leaves the books as they were before the call;
        the rows' slots are given back, or with `retry` kept, so that the same rows may run again. A
        ModelError means that the step ran but is worthless: its rows are dropped. After any other
        exception (Ctrl-C) every sequence is forgotten.
        """
        try:
            while self._cache.more_than_a_header:
                self._step(())
            result = self._step(rows)
        except ModelError:
            self._note(rows)
            for sequence in {row.sequence for row in rows}:
                self._cache.drop(sequence)
            raise
        except LoraError:
            if not retry:
                self._cache.give_slots([row.slot for row in rows])
            raise
        self._note(rows)
        return result

    def flush(self, redo: bool = True) -> None:
        """Run empty steps until nothing is queued and what was freed is free."""
        while self._cache.queued or self._cache.leaving:
            self._step((), redo)

    def _step(self, rows: Sequence[Row], redo: bool = True) -> StepResult:
        try:
            return self._step_once(rows)
        except LoraError as error:
            if not redo or not may_be_redone(error):
                raise
        self.redone += 1
        return self._step_once(rows)

    def _step_once(self, rows: Sequence[Row]) -> StepResult:
        header = self._cache.next_header()
        try:
            result = self._runner.step(self._adapted(rows), header.kv_ops, header.path)
        except ModelError:  # raised of the results: the boards have done the step
            self._cache.step_done()
            raise
        except LoraError:
            self._cache.step_failed()
            raise
        except BaseException:
            self._cache.reset()
            raise
        self._cache.step_done()
        self.steps += 1
        self.rows += len(rows)
        return result

    def adapter_of(self, sequence: int) -> int:
        """Adapter slot that the sequence's rows name, -1 none."""
        return -1 if self._adapters is None else self._adapters.slot_of(sequence)

    def _adapted(self, rows: Sequence[Row]) -> Sequence[Row]:
        if self._adapters is None:
            return rows
        return [replace(row, adapter=self.adapter_of(row.sequence)) for row in rows]

    def _note(self, rows: Sequence[Row]) -> None:
        for row in rows:
            uncommitted = Uncommitted(row.token, row.position, row.parent)
            self._cache.add_row(row.sequence, row.slot, uncommitted)


def argmax_of(result: StepResult, index: int) -> int:
    """Token of the max logit of the step's row `index`; ModelError where a logit is NaN."""
    if result.argmax is None:
        raise ValueError("no row of the step wanted its argmax")
    values, tokens = result.argmax
    selected = result.rows.index(index)
    if values[selected] != values[selected]:
        raise ModelError(
            f"logits of row {index} of step {result.step} hold NaN; expected numbers; check the "
            "model's weights for values that overflow FP16"
        )
    return int(tokens[selected])
