"""The worker's side of LoraBoardsConnector on boards: K and V into the pages of vLLM's blocks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm.v1.outputs import KVConnectorOutput

from lora_host.errors import LoraError
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.kv.pages import PAGE_POSITIONS, pages_for
from lora_sdk.prefill.filling import Filling
from lora_sdk.prefill.job import Job
from lora_sdk.prefill.opening import check_worker, open_worker
from lora_sdk.prefill.sender import Sender
from lora_sdk.prefill.shared_kv import digest_of
from lora_vllm.prefill_metrics import PrefillStats

if TYPE_CHECKING:
    from lora_sdk.kv.kv_arrays import KvArrays
    from lora_sdk.opening.options import EngineOptions
    from lora_vllm.asking import Load
    from lora_vllm.boards import Boards
    from lora_vllm.prefill_source import PrefillSource

_log = logging.getLogger("vllm.lora_vllm")


@dataclass(eq=False)
class _Loading:
    load: Load
    filling: Filling
    fill: int  # its number among the cache's writes: below all sequences'
    pages: list[int]


@dataclass
class _News:
    """Since the last output: requests whose loads have ended, and blocks of those that failed."""

    ended: set[str] = field(default_factory=set)
    invalid: set[int] = field(default_factory=set)
    stats: PrefillStats = field(default_factory=PrefillStats)


class Loading:
    """Runs loads beside the steps of the boards. Its methods are called between steps."""

    def __init__(self, source: PrefillSource, options: EngineOptions, boards: Boards) -> None:
        """Errors of every layer pass through."""
        options = source.options(options)
        check_worker(options)
        worker = open_worker(options, boards.opened)
        assert worker is not None  # the source names one
        self._source, self._boards, self._worker = source, boards, worker
        self._sender = Sender()
        self._transfer = KvTransfer(boards.opened)
        self._loadings: dict[str, _Loading] = {}
        self._kept: dict[str, KvArrays] = {}
        self._fills = -1
        self._news = _News()

    def begin(self, loads: Sequence[Load], finished: Iterable[str]) -> None:
        """A step's news. Loads of `finished` requests end: nothing is written to their blocks any
        more. LoraError of the boards, where a recovery has not helped."""
        for name in finished:
            self._kept.pop(name, None)
            loading = self._loadings.pop(name, None)
            if loading is not None:
                loading.filling.stop()
                self._boards.cache.fills.end(loading.fill)
                self._news.ended.add(name)
        if loads:
            self._boards.settle()
        for load in loads:
            self._start(load)

    def _start(self, load: Load) -> None:
        cache, worker = self._boards.cache, self._worker
        tokens = load.tokens[:-1]
        unfit = len(tokens) > worker.context
        if worker.failure is not None or unfit:
            self._worker.tell_failure(_log)
            self._fail(load)
            return
        pages = [cache.first_page - 1 + block for block in load.blocks][: pages_for(len(tokens))]
        job = Job(
            tokens,
            None,
            lambda: load.request in self._loadings,
            resumed=True,
            name=load.name,
            digest=digest_of(load.tokens) if worker.by_name else "",
        )
        held = load.held // PAGE_POSITIONS
        filling = Filling(job, pages, self._transfer, self._sender, self._source.fast, held)
        loading = _Loading(load, filling, self._fills, pages)
        self._fills -= 1
        cache.fills.begin(loading.fill, filling)
        self._loadings[load.request] = loading
        worker.submit(job)

    def output(self) -> KVConnectorOutput | None:
        """What vLLM's scheduler is told after a step; None: nothing."""
        for name, loading in list(self._loadings.items()):
            self._poll(name, loading)
        news, self._news = self._news, _News()
        if not news.ended:
            return None
        stats = None if news.stats.is_empty() else news.stats
        return KVConnectorOutput(
            finished_recving=news.ended, invalid_block_ids=news.invalid, kv_connector_stats=stats
        )

    def _poll(self, name: str, loading: _Loading) -> None:
        try:
            ended = loading.filling.poll()
        except LoraError as error:  # of the boards: the next step shows it again
            _log.warning("prefill: %s; the boards compute the prompt", error)
            ended = False
        if ended is None:
            return
        del self._loadings[name]
        self._boards.cache.fills.end(loading.fill)
        if not ended:
            self._worker.tell_failure(_log)
            self._fail(loading.load)
            return
        self._boards.cache.filled(loading.pages)
        kept = loading.filling.kept()
        if kept is not None:
            self._kept[name] = kept
        self._news.ended.add(name)
        self._news.stats.add(self._source.mode, len(loading.load.tokens) - 1)

    def _fail(self, load: Load) -> None:
        """vLLM lets the boards compute the prompt: from what was there before."""
        self._news.ended.add(load.request)
        self._news.invalid.update(load.blocks[load.held // PAGE_POSITIONS :])
        self._news.stats.add_failed()

    def take_kept(self, request: str) -> KvArrays | None:
        """K and V of a request's prompt, where a recovery must write them again: the boards would
        compute others."""
        return self._kept.pop(request, None)

    def close(self) -> None:
        """End all loads, release the worker."""
        for loading in self._loadings.values():
            loading.filling.stop()
        self._loadings.clear()
        self._worker.close()
        self._sender.close()
