"""Prompts computed on other boards, emulated ones on the host's own cores if none are named. The
bytes are those of any boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.kv.kv_limits import kv_limits
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.kv.pages import PAGE_POSITIONS
from lora_sdk.opening.opening import open_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.worker_name import WorkerName
from lora_sdk.prefill.job import Job, JobAdapter, Part
from lora_sdk.step.step import build_rows
from lora_sdk.step.stepper import Stepper


def worker_options(options: EngineOptions, name: WorkerName) -> EngineOptions:
    """The engine's options for the boards of a worker, which hold one sequence."""
    return replace(
        options,
        boards=name.boards,
        devices=name.devices,
        cluster_file=None,
        overlay=None,
        max_sequences=1,
        max_adapters=min(1, options.max_adapters),
        hidden_layers=(),
        embeddings=False,
        trace=False,
        speculation=None,
        prefix_cache=False,
        recovery="off",
        spares=(),
        prefill=None,
        prefill_mode="exact",
        prefill_model=None,
        progress=None,
    )


def step_ends(tokens: int, limit: int) -> list[int]:
    """Where the steps of a prompt end, each of at most `limit` rows. The last two are about equal,
    and divided between pages: a short last step would hide little of the transfer before it."""
    ends = [*range(limit, tokens, limit), tokens]
    if len(ends) > 1:
        before = ends[-2] - limit
        half = (before + tokens + 1) // 2
        page = half // PAGE_POSITIONS * PAGE_POSITIONS
        choices = [page, page + PAGE_POSITIONS, half]
        ends[-2] = next(
            end for end in choices if tokens - limit <= end <= ends[-2] and end > before
        )
    return ends


class BoardsComputer:
    """A model on boards that compute prompts alone."""

    takes_adapters = True
    by_name = False
    at_once = 1

    def __init__(self, options: EngineOptions) -> None:
        """`options`: of `worker_options`. Errors of every layer pass through."""
        self._opened = open_model(options)
        plan = self._opened.plan
        self._adapters = AdapterSlots(self._opened.cluster, plan)
        self._cache = KvCache(
            *kv_limits(plan),
            observer=self._adapters,
            first_spilled=plan.first_spilled,
        )
        adapters = self._adapters if options.max_adapters else None
        self._stepper = Stepper(self._opened.runner, self._cache, adapters)
        self._transfer = KvTransfer(self._opened)

    @property
    def context(self) -> int:
        """Max tokens of a prompt."""
        return self._opened.plan.context

    def close(self) -> None:
        """Release the boards; a step that runs is cancelled."""
        self._opened.stack.close()

    def compute(self, job: Job, give: Callable[[Part], None]) -> None:
        """See Computer. A part is the pages that a step has completed, all layers: an empty step
        commits its rows at once, so that they are on their way while the next rows compute."""
        self._stepper.tried(self._stepper.flush)  # frees the pages of the sequence before
        sequence = self._cache.open()
        try:
            if job.adapter is not None:
                self._attach(sequence, job.adapter)
            self._steps(job, sequence, give)
        finally:
            self._cache.close(sequence)

    def _steps(self, job: Job, sequence: int, give: Callable[[Part], None]) -> None:
        handed, start, tokens = 0, 0, job.tokens
        for stop in step_ends(len(tokens), self._opened.plan.row_limit):
            if not job.wanted():
                return
            chunk, last = tokens[start:stop], stop == len(tokens)
            if len(chunk) > self._cache.free_slots:
                self._stepper.tried(self._stepper.flush)
            wanted = [len(chunk) - 1] if last else []
            rows = build_rows(self._cache, sequence, chunk, logits=wanted)
            result = self._stepper.tried(partial(self._stepper.run, rows, retry=True))
            self._cache.commit(sequence, [row.slot for row in rows])
            full = stop if last else stop // PAGE_POSITIONS * PAGE_POSITIONS
            if full > handed:
                self._stepper.tried(self._stepper.flush)
                give(self._part(sequence, handed, full))
                handed = full
            start = stop
            if last:
                assert result.logits is not None  # of the last row
                job.logits = result.logits[0]

    def _part(self, sequence: int, start: int, stop: int) -> Part:
        pages: Sequence[int] = self._cache.pages(sequence)[start // PAGE_POSITIONS :]
        used = pages[: -(-(stop - start) // PAGE_POSITIONS)]
        return Part(0, start, self._transfer.read(used, stop - start))

    def _attach(self, sequence: int, adapter: JobAdapter) -> None:
        """Use an adapter; host memory keeps the latest one alone."""
        name = adapter.digest.hex()
        known = [one.name for one in self._adapters.infos()]
        if name not in known:
            for other in known:
                self._adapters.unload(other)
            self._adapters.add(name, adapter.weights)
        self._adapters.attach(sequence, name)
