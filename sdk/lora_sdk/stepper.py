"""Steps with the cache's headers: every queued KV operation travels in the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lora_host.errors import LoraError, ModelError

from lora_sdk.kvcache import KvCache, Uncommitted
from lora_sdk.step import KvOp, Row, StepResult


class StepRunner(Protocol):
    """What is needed of lora_sdk.runner.Runner."""

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult: ...


class Stepper:
    """Runs rows and keeps the cache's books in line with what the boards have done."""

    def __init__(self, runner: StepRunner, cache: KvCache) -> None:
        self._runner = runner
        self._cache = cache
        self.steps = 0
        self.rows = 0

    def run(self, rows: Sequence[Row]) -> StepResult:
        """One step with these rows, whose slots were taken from the cache.

        A LoraError leaves the books as they were: the step may be run again. Any other exception
        (Ctrl-C) leaves unknown whether the step ran, so every sequence is forgotten.
        """
        while self._cache.more_than_a_header:
            self._step(())
        result = self._step(rows)
        for row in rows:
            self._cache.add_row(row.sequence, row.slot, Uncommitted(row.token, row.position, row.parent))
        return result

    def flush(self) -> None:
        """Run empty steps until nothing is queued and what was freed is free."""
        while self._cache.queued or self._cache.leaving:
            self._step(())

    def _step(self, rows: Sequence[Row]) -> StepResult:
        header = self._cache.next_header()
        try:
            result = self._runner.step(rows, header.kv_ops, header.path)
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


def argmax_of(result: StepResult, index: int) -> int:
    """Token of the largest logit of the step's row `index`; ModelError where a logit is NaN."""
    if result.argmax is None:
        raise ValueError("no row of the step wanted its argmax")
    values, tokens = result.argmax
    place = result.rows.index(index)
    if values[place] != values[place]:
        raise ModelError(
            f"logits of row {index} of step {result.step} hold NaN; expected numbers; check the "
            "model's weights for values that overflow FP16"
        )
    return int(tokens[place])
