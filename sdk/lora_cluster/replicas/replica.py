"""A replica as its server sees it: an engine of a fleet that runs in another process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_cluster.replicas.actor_calls import ActorCalls, ActorLost
from lora_cluster.replicas.messages import Batch, Failure, Opened, raised
from lora_cluster.replicas.prefixes import PrefixMemory, page_names
from lora_cluster.replicas.remote_request import RemoteRequest, tokens_of
from lora_host.errors import LoraError, RequestError
from lora_sdk.engine.chat_api import chat_tokens
from lora_sdk.engine.submission import RequestMaker
from lora_sdk.opening.weight_notices import WeightNotices
from lora_sdk.prefill.job import PrefillUse
from lora_sdk.recovery.recovery import may_be_recovered
from lora_sdk.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from lora_cluster.replicas.adapter_registry import AdapterRegistry
    from lora_cluster.replicas.daemons import Span
    from lora_sdk.adapters.slots import AdapterInfo
    from lora_sdk.engine.requests import OnDelta, Request
    from lora_sdk.engine.submission import Prompt
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.weight_notices import OnNotice
    from lora_sdk.plan.model_plan import Plan
    from lora_sdk.sampling import SamplingParams
    from lora_sdk.text.chat import Message


@dataclass(frozen=True)
class ReplicaOptions:
    """What each replica is: so many boards of a kind, and the Engine's arguments. `daemons`:
    addresses of the board daemons whose boards these are; none: boards of one node."""

    kind: str
    boards: int
    engine: Mapping[str, Any]
    daemons: Sequence[str] = ()


class Replica:
    """See Member. `lost`: why it takes no requests now."""

    def __init__(
        self,
        name: str,
        options: ReplicaOptions,
        registry: AdapterRegistry,
        on_notice: OnNotice | None = None,
        span: Span | None = None,
    ) -> None:
        """`span`: its boards behind daemons, None for those of a node."""
        self.name = name
        self.options = options
        self.registry = registry
        self.span = span
        self.closed = False
        self.lost: LoraError | None = None
        self.weight_notices = WeightNotices(on_notice)
        self.new_tokens = 0
        self.worked = False  # a request has ended since it was opened
        self.requests = ReplicaRequests(self)
        self._tokens_before = 0  # of processes that were lost
        self._running: dict[int, RemoteRequest] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._calls: ActorCalls | None = None
        self._opened: Opened | None = None

    # --- the process ----------------------------------------------------------------------------

    def use(self, calls: ActorCalls, opened: Opened) -> None:
        """Go on with this process. LoraError: its engine differs from the one before."""
        before = self._opened
        if before is not None and (before.config, before.plan.context) != (
            opened.config,
            opened.plan.context,
        ):
            raise LoraError(
                f"{self.name} came back with a context of {opened.plan.context}, or another KV "
                f"cache; expected {before.plan.context}: the model's folder has changed"
            )
        self.model_path = opened.model_path
        self.prefixes = PrefixMemory(opened.plan.page_count)
        self._adapters: OrderedDict[str, None] = OrderedDict()  # on its boards, the latest last
        self._tokens_before = self.new_tokens
        self.worked = False
        with self._lock:
            self._calls, self._opened, self.lost = calls, opened, None

    def start(self, request: Request) -> None:
        """See RequestApi. LoraError: it is lost."""
        with self._lock:
            if self._calls is None or self.lost is not None or self.closed:
                raise self.lost or RequestError(f"{self.name} is closed")
            self._next += 1
            remote = RemoteRequest(request, self._next)
            self._running[self._next] = remote
            calls = self._calls
        calls.start(remote.work())

    def listen(self, seconds: float) -> None:
        """Deliver what has come in so many seconds, and cancel what nobody wants any more.
        LoraError: the replica is lost."""
        calls = self.calls
        batch = calls.news(seconds)
        self._take(batch)
        unwanted = [remote for remote in self._all() if remote.request.cancelled]
        for remote in unwanted:
            remote.request.end_cancelled()
            self._forget(remote)
        if unwanted:
            calls.cancel([remote.number for remote in unwanted])

    def lose(self, error: LoraError) -> list[RemoteRequest]:
        """Take no more requests. Those that ran, whose ends are now up to the caller."""
        with self._lock:
            self.lost = error
            running, self._running = self._running, {}
            calls, self._calls = self._calls, None
        if calls is not None:
            calls.kill()
        return list(running.values())

    def close(self) -> None:
        """Give the boards back and end the process; requests that run end with an error."""
        self.closed = True
        with self._lock:
            calls, self._calls = self._calls, None
            running, self._running = self._running, {}
        for remote in running.values():
            remote.request.fail(RequestError("the replica was closed while the request ran"))
        if calls is not None:
            calls.close()

    def _take(self, batch: Batch) -> None:
        self.new_tokens = self._tokens_before + batch.new_tokens
        for notice in batch.notices:
            self.weight_notices.add(notice)
        for news in batch.news:
            with self._lock:
                remote = self._running.get(news.number)
            if remote is None:  # cancelled
                continue
            failure = news.failure
            if failure is not None and _is_loss(failure):
                raise raised(failure, f"{self.name}: ")
            try:
                remote.take(news)
                if failure is not None:
                    remote.request.fail(raised(failure))
            except Exception as error:  # of a callback, or of tokens
                remote.request.fail(error)
                self.calls.cancel([news.number])
                self._forget(remote)
            if news.ended:
                self._forget(remote)
                self._note_end(remote.request)

    def _note_end(self, request: Request) -> None:
        if request.error is None:
            self.worked = True
            params = request.params
            self.prefixes.add(page_names(tokens_of(request), params.adapter, params.cache_salt))

    def _all(self) -> list[RemoteRequest]:
        with self._lock:
            return list(self._running.values())

    def _forget(self, remote: RemoteRequest) -> None:
        with self._lock:
            self._running.pop(remote.number, None)

    @property
    def calls(self) -> ActorCalls:
        """The process. LoraError while there is none."""
        calls = self._calls
        if calls is None:
            raise self.lost or ActorLost(f"{self.name} is closed")
        return calls

    # --- routing --------------------------------------------------------------------------------

    def note(self, adapter: str | None, names: Sequence[bytes]) -> None:
        """A request with this adapter and these pages goes there."""
        self.prefixes.add(names)
        if adapter is not None:
            self._adapters[adapter] = None
            self._adapters.move_to_end(adapter)
            while len(self._adapters) > self.opened.adapter_slots:
                self._adapters.popitem(last=False)

    def has_on_boards(self, adapter: str) -> bool:
        """Whether an adapter is in a slot, as far as it is known here."""
        return adapter in self._adapters

    # --- the model ------------------------------------------------------------------------------

    @property
    def opened(self) -> Opened:
        """What the process has said of its engine, the latest one."""
        assert self._opened is not None  # the pool opens it first
        return self._opened

    @property
    def config(self) -> ModelConfig:
        """See Engine."""
        return self.opened.config

    @property
    def plan(self) -> Plan:
        """See Engine."""
        return self.opened.plan

    @property
    def context(self) -> int:
        """See Engine."""
        return self.opened.plan.context

    @property
    def movable(self) -> bool:
        """See Engine."""
        return self.opened.movable

    @property
    def prefill_use(self) -> PrefillUse | None:
        """Whether K and V of prompts are the boards' own; counts stay with the replica."""
        return PrefillUse(self.name, True) if self.opened.fast else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """See Engine."""
        return Tokenizer(self.model_path, self.config.vocabulary)

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """See Engine."""
        return chat_tokens(self.model_path, self.tokenizer, messages)

    # --- adapters -------------------------------------------------------------------------------

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """See Engine. The folder has the same path on every node."""
        folder = str(Path(path).resolve())
        info = self.calls.load_adapter(name, folder, scale)
        self.registry.add(name, folder, scale)
        return info

    def unload_adapter(self, name: str) -> None:
        """See Engine."""
        self.calls.unload_adapter(name)
        self.registry.remove(name)

    def adapters(self) -> list[AdapterInfo]:
        """See Engine."""
        return self.calls.adapters()

    def confirm(self) -> None:
        """See Engine. What a replica that is lost now had is elsewhere, or failed."""
        with suppress(ActorLost):
            self.calls.confirm()

    def check_adapter(self, name: str) -> None:
        """See Engine. Does not ask the replica."""
        self.registry.check(name)


def _is_loss(failure: Failure) -> bool:
    """Whether the boards failed, and not the request: others take what they ran."""
    return failure.lost or may_be_recovered(raised(failure))


class ReplicaRequests:
    """See RequestApi. What is made here may run on any replica of the model."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @cached_property
    def _maker(self) -> RequestMaker:
        one = self._replica
        return RequestMaker(one.config, one.context, lambda: one.tokenizer, one.check_adapter)

    def make(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_delta: OnDelta | None = None,
        index: int | None = None,
    ) -> Request:
        """See RequestMaker.request."""
        return self._maker.request(prompt, params, on_delta, index)

    def start(self, request: Request) -> None:
        """See Replica.start."""
        self._replica.start(request)

    def take(self, _request: Request) -> bool:
        """A request stays where it runs: K and V do not travel through Ray."""
        return False
