"""K and V of prompts that a worker computes while the boards decode."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import LoraError, RequestError
from lora_sdk.engine.handover import Handover
from lora_sdk.engine.kv_source import KvSource, NewSequence
from lora_sdk.prefill.job import Job, JobAdapter, PrefillUse
from lora_sdk.prefill.shared_kv import digest_of

if TYPE_CHECKING:
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.kv.kv_transfer import KvTransfer
    from lora_sdk.kv.kvcache import KvCache
    from lora_sdk.prefill.sender import Sender
    from lora_sdk.prefill.worker import Worker

_log = logging.getLogger("lora_sdk.prefill")


class WorkerSource:
    """A KvSource before another one: prompts of which that one knows nothing go to the worker. If
    the worker fails, the boards compute them."""

    def __init__(
        self,
        inner: KvSource,
        worker: Worker,
        cache: KvCache,
        transfer: KvTransfer,
        adapters: AdapterSlots,
        sender: Sender,
        fast: bool = False,
    ) -> None:
        """`fast`: the worker's K and V are not the boards'."""
        self._fast = fast
        self._inner = inner
        self._worker = worker
        self._cache = cache
        self._transfer = transfer
        self._sender = sender
        self._adapters = adapters
        self._opened: dict[int, NewSequence] = {}
        self._handovers: dict[int, Handover] = {}
        self._logits: dict[int, NDArray[np.float32]] = {}
        self.use = PrefillUse(worker.name, fast)
        self.by_name = worker.by_name

    def needs(self, new: NewSequence) -> int:
        """See KvSource."""
        return self._inner.needs(new)

    def open(self, new: NewSequence) -> int:
        """See KvSource."""
        sequence = self._inner.open(new)
        self._opened[sequence] = new
        self._logits.pop(sequence, None)
        for number, handover in list(self._handovers.items()):
            if number == sequence or not handover.job.wanted():
                del self._handovers[number]
        return sequence

    def computed(self, sequence: int) -> int | None:
        """See KvSource."""
        handover = self._handovers.get(sequence)
        if handover is None:
            count = self._inner.computed(sequence)
            started = count == 0 and self._start(sequence, self._opened[sequence])
            return None if started else count
        try:
            ended = handover.advance()
        except LoraError as error:  # of the boards: the next step shows it again
            _log.warning("prefill: %s; the boards compute the prompt", error)
            ended = False
        if ended is None:
            return None
        del self._handovers[sequence]
        job = handover.job
        if not ended:
            self._worker.tell_failure(_log)
            return 0
        if job.logits is not None:
            self._logits[sequence] = job.logits
        if self._fast:
            self._opened[sequence].note_prefill("fast")
        self.use.prompts += 1
        self.use.tokens += len(job.tokens)
        return len(job.tokens)

    def logits(self, sequence: int) -> NDArray[np.float32] | None:
        """See KvSource."""
        return self._logits.pop(sequence, None)

    def _start(self, sequence: int, new: NewSequence) -> bool:
        """Hand the prompt to the worker. False: the boards compute it."""
        worker, tokens = self._worker, list(new.tokens)
        digest = ""
        if worker.by_name:
            if new.prefill_id is None:
                return False
            digest = digest_of(tokens)
            del tokens[-1:]  # whose logits the boards compute
        adapted = new.adapter is not None and not worker.takes_adapters
        unfit = not tokens or len(tokens) > worker.context
        if adapted or new.recompute or worker.failure or unfit:
            self._worker.tell_failure(_log)
            return False
        try:
            self._cache.grow(sequence, len(tokens))
        except RequestError:  # pages that another sequence was to bring
            return False
        known = self._cache.identity(sequence)
        wanted = partial(self._is_wanted, sequence, known)
        job = Job(
            tokens,
            self._adapter(new.adapter),
            wanted,
            resumed=worker.by_name,
            name=new.prefill_id,
            digest=digest,
        )
        self._handovers[sequence] = Handover(
            job, sequence, self._cache, self._transfer, self._sender, self._fast
        )
        worker.submit(job)
        return True

    def _is_wanted(self, sequence: int, known: object) -> bool:
        return self._cache.identity(sequence) is known

    def _adapter(self, name: str | None) -> JobAdapter | None:
        if name is None:
            return None
        return JobAdapter(self._adapters.digest(name), self._adapters.weights(name))
