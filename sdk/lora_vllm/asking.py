"""The scheduler's side of LoraBoardsConnector on boards: which prompts a worker shall compute."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from lora_sdk.arguments.prefill_name import NAME
from lora_sdk.prefill.worker import LEAST_CACHED

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput

    from lora_vllm.prefill_source import PrefillSource

_log = logging.getLogger("vllm.lora_vllm")


@dataclass
class Load:
    """A prompt whose K and V, of all `tokens` but the last, shall come into `blocks` of vLLM's, of
    which the first `held` positions hold theirs. `name`: that the worker knows it by, if any."""

    request: str
    name: str | None
    tokens: list[int]
    blocks: list[int]
    held: int


@dataclass
class Loads(KVConnectorMetadata):
    """Those that begin with this step."""

    loads: list[Load] = field(default_factory=list)


class Asking:
    """Each prompt is asked for once: where that fails, boards compute it. vLLM's own names of
    requests are the keys."""

    def __init__(self, source: PrefillSource) -> None:
        self._source = source
        self._wanted: dict[str, str | None] = {}  # the worker's name for it
        self._loading: dict[str, Load] = {}
        self._taken: set[str] = set()
        self._next = Loads()

    def add(self, request: Any) -> None:
        """A new request of vLLM. One without a usable name or prompt is left alone."""
        tokens, params = request.prompt_token_ids, request.sampling_params
        whole = params is not None and params.prompt_logprobs is None
        if not tokens or len(tokens) < 2 or request.lora_request is not None or not whole:
            return
        name = None
        if self._source.by_name:
            name = _name_of(request.kv_transfer_params)
            if name is None:
                return
        self._wanted[request.request_id] = name
        if self._source.fast:
            _share_nothing(request)

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        """How many positions after the `computed` ones the worker shall bring, beside the steps of
        others."""
        if request.request_id not in self._wanted or request.num_output_tokens:
            return 0, False
        total = request.num_prompt_tokens - 1
        missing = total - computed
        return (0, False) if missing <= 0 or computed > LEAST_CACHED * total else (missing, True)

    def allocated(self, request: Any, blocks: Any, count: int) -> None:
        """vLLM has blocks for `count` positions that are to come."""
        if count:
            tokens = list(request.prompt_token_ids)
            name = self._wanted.pop(request.request_id)
            held = len(tokens) - 1 - count
            load = Load(request.request_id, name, tokens, list(blocks.get_block_ids()[0]), held)
            self._loading[load.request] = load
            self._next.loads.append(load)

    def step(self, scheduled: SchedulerOutput) -> Loads:
        """What the worker shall begin."""
        step, self._next = self._next, Loads()
        return step

    def note(self, output: KVConnectorOutput) -> None:
        """What the boards' side has told after a step."""
        for name in output.finished_recving or ():
            load = self._loading.pop(name, None)
            if load is not None and output.invalid_block_ids.isdisjoint(load.blocks):
                self._taken.add(name)

    def finish(self, request: Any) -> dict[str, Any] | None:
        """A request has ended. What its answer has as `kv_transfer_params`: how its prompt was
        computed, None where boards did it themselves."""
        name = request.request_id
        self._wanted.pop(name, None)
        self._loading.pop(name, None)
        if name not in self._taken:
            return None
        self._taken.discard(name)
        return {"prefill": self._source.mode}


def _name_of(asked: Any) -> str | None:
    if not isinstance(asked, dict) or asked.get("do_remote_prefill") is not True:
        return None
    name = asked.get("id")
    if isinstance(name, str) and NAME.fullmatch(name):
        return name
    _log.warning("kv_transfer_params: id is %.80r; the boards compute the prompt", name)
    return None


def _share_nothing(request: Any) -> None:
    """K and V that are not the boards' own serve no other request, and no other's serve it."""
    request.cache_salt = f"prefill {request.request_id}"
    request.block_hashes = []
    request.update_block_hashes()
