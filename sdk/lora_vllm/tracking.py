"""The scheduler's side of LoraBoardsConnector: which prompts are handed over, and how far."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata

from lora_sdk.arguments.prefill_name import NAME
from lora_sdk.kv.pages import PAGE_POSITIONS
from lora_sdk.prefill.shared_kv import digest_of

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput

_log = logging.getLogger("vllm.lora_vllm")


@dataclass
class Slice:
    """Positions `start` to `stop` - 1 of a prompt, in these blocks of it. `total`: positions of the
    prompt that are handed over."""

    name: str
    digest: str
    total: int
    start: int
    stop: int
    blocks: list[int]


@dataclass
class Step(KVConnectorMetadata):
    """What has changed since the last step, and what this one computes."""

    announced: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)


@dataclass(eq=False)
class _Prompt:
    name: str
    digest: str
    total: int
    blocks: list[int] = field(default_factory=list)
    handed: int = 0


class Tracking:
    """Prompts that are to be handed over, by vLLM's name of their request."""

    def __init__(self) -> None:
        self._prompts: dict[str, _Prompt] = {}
        self._next = Step()

    def add(self, request: Any) -> None:
        """A new request of vLLM. One without a usable name or prompt is left alone."""
        asked = request.kv_transfer_params
        tokens = request.prompt_token_ids
        if not isinstance(asked, dict) or asked.get("do_remote_decode") is not True or not tokens:
            return
        name = asked.get("id", request.request_id)
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            _log.warning("kv_transfer_params: id is %.80r; K and V are not handed over", name)
            return
        if len(tokens) > 1 and request.lora_request is None:
            prompt = _Prompt(name, digest_of(tokens), len(tokens) - 1)
            self._prompts[request.request_id] = prompt
            self._next.announced.append(name)

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        """Nothing is fetched."""
        return 0, False

    def allocated(self, request: Any, blocks: Any, count: int) -> None:
        """Nothing is fetched."""

    def note(self, output: KVConnectorOutput) -> None:
        """Nothing is fetched."""

    def step(self, scheduled: SchedulerOutput) -> Step:
        """Of the rows that are scheduled. A range ends with a whole page, but for the last."""
        step, self._next = self._next, Step()
        for new in scheduled.scheduled_new_reqs:
            prompt = self._prompts.get(new.req_id)
            if prompt is not None:
                prompt.blocks = list(new.block_ids[0])
                self._note(step, prompt, new.req_id, new.num_computed_tokens, scheduled)
        cached = scheduled.scheduled_cached_reqs
        for index, request in enumerate(cached.req_ids):
            prompt = self._prompts.get(request)
            if prompt is None:
                continue
            blocks: Sequence[int] = (cached.new_block_ids[index] or ([],))[0]
            resumed = request in cached.resumed_req_ids
            prompt.blocks = [*(() if resumed else prompt.blocks), *blocks]
            self._note(step, prompt, request, cached.num_computed_tokens[index], scheduled)
        return step

    def _note(
        self, step: Step, prompt: _Prompt, request: str, computed: int, scheduled: SchedulerOutput
    ) -> None:
        stop = min(computed + scheduled.num_scheduled_tokens[request], prompt.total)
        if stop < prompt.total:
            stop -= stop % PAGE_POSITIONS
        if stop > prompt.handed:
            step.slices.append(
                Slice(prompt.name, prompt.digest, prompt.total, prompt.handed, stop, prompt.blocks)
            )
            prompt.handed = stop

    def finish(self, request: Any) -> dict[str, Any] | None:
        """A request has ended, or was cancelled. What a proxy passes on to the boards."""
        prompt = self._prompts.pop(request.request_id, None)
        if prompt is None:
            return None
        if prompt.handed < prompt.total:
            self._next.dropped.append(prompt.name)
        return {"do_remote_decode": False, "do_remote_prefill": True, "id": prompt.name}
