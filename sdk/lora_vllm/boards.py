"""A model on boards for a scheduler that owns the page tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.kv.kv_limits import kv_limits
from lora_sdk.kv.mapped_cache import MappedKvCache
from lora_sdk.opening.opening import open_model
from lora_sdk.recovery.recovery import Recovery
from lora_sdk.step.step import Row, build_rows
from lora_sdk.step.stepper import Stepper, argmax_of
from lora_vllm.adapters import VllmAdapters

if TYPE_CHECKING:
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.opening.options import EngineOptions


@dataclass(frozen=True)
class Chunk:
    """Tokens of a sequence whose rows run in one step, each after the one before it. `wanted`:
    indices of those whose logits are returned."""

    sequence: int
    tokens: Sequence[int]
    wanted: Sequence[int] = ()


@dataclass(frozen=True)
class Ran:
    """A chunk's rows: their `slots`, to be committed, and for the wanted ones either `tokens` or
    `logits`, float32 [wanted, vocabulary]."""

    slots: list[int]
    tokens: list[int]
    logits: npt.NDArray[np.float32] | None


class Boards:
    """Opens the boards, runs rows, recovers from failures. Not thread-safe."""

    def __init__(self, options: EngineOptions, kept_adapters: int = 0) -> None:
        """`kept_adapters`: how many the host keeps that no request uses. Errors of every layer pass
        through."""
        self.opened = open_model(options)
        plan = self.opened.plan
        self.adapters = AdapterSlots(self.opened.cluster, plan)
        self.vllm_adapters = VllmAdapters(
            self.adapters, self.opened.config, plan.adapters.max_rank, kept_adapters
        )
        self.cache = MappedKvCache(
            *kv_limits(plan),
            observer=self.adapters,
        )
        self.stepper = Stepper(
            self.opened.runner, self.cache, self.adapters if options.max_adapters else None
        )
        self.stepper.use(self.opened.runner, plan.row_limit)
        self.recovery = Recovery(self.opened, options, self.cache, self.stepper)
        self.recovery.on_boards = self._restore_adapters
        self.recovery.damaged_adapters = self.adapters.damaged
        if options.recovery == "auto":
            self.stepper.recover = self.adapters.recover = self.recovery.recover

    def _restore_adapters(self) -> None:
        self.adapters.restore(self.opened.cluster, self.opened.plan)

    @property
    def row_limit(self) -> int:
        """Rows that a step takes."""
        return self.opened.plan.row_limit

    def start(
        self,
        tokens: Sequence[int],
        pages: Sequence[int],
        adapter: str | None,
        kv: KvArrays | None = None,
    ) -> int:
        """A sequence whose first positions lie in `pages`, with a loaded adapter. `kv`: what a
        recovery writes there again. LoraError."""
        sequence = self.cache.start(tokens, pages, kv)
        if adapter is not None:
            try:
                self.adapters.attach(sequence, adapter)
            except BaseException:
                self.cache.close(sequence)
                raise
        return sequence

    def run(self, chunks: Sequence[Chunk], logits: bool) -> list[Ran]:
        """One step. Rows that are wanted return logits, or else the token of the max logit.
        LoraError of the boards, where a recovery has not helped."""
        rows: list[Row] = []
        ends: list[int] = []
        for chunk in chunks:
            rows += build_rows(
                self.cache,
                chunk.sequence,
                chunk.tokens,
                logits=chunk.wanted if logits else (),
                argmax=() if logits else chunk.wanted,
            )
            ends.append(len(rows))
        result = self.stepper.tried(lambda: self.stepper.run(rows, retry=True))
        where = {row: index for index, row in enumerate(result.rows)}
        ran = []
        for chunk, end in zip(chunks, ends, strict=True):
            first = end - len(chunk.tokens)
            wanted = [first + index for index in chunk.wanted]
            slots = [row.slot for row in rows[first:end]]
            if logits and result.logits is not None:
                ran.append(Ran(slots, [], result.logits[[where[row] for row in wanted]]))
            else:
                ran.append(Ran(slots, [argmax_of(result, row) for row in wanted], None))
        return ran

    def settle(self) -> None:
        """Let boards do what waits for a next step: vLLM gives pages of a request to another one
        while its last rows are still to be moved there. LoraError of the boards."""
        if self.cache.queued:
            self.stepper.tried(self.stepper.flush)

    def close(self) -> None:
        """Give the boards back."""
        self.opened.stack.close()
