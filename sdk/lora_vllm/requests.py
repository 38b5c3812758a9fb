"""What vLLM's scheduler has said of each request, and its sequence on the boards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from vllm.sampling_params import SamplingType

from lora_sdk.kv.kv_transfer import of_pages
from lora_sdk.kv.pages import PAGE_POSITIONS, pages_for
from lora_vllm.boards import Boards, Chunk

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
    from vllm.v1.outputs import LogprobsTensors

    from lora_sdk.kv.kv_arrays import KvArrays


@dataclass(eq=False)
class Request:
    """`output`: the tokens after the prompt. `pages`: the boards' pages by tile. `computed`:
    positions that vLLM counts as done before this step. `sequence`: None while it is not on the
    boards. `plain`: its token is the one of the max logit, with nothing else asked.
    `prompt_logprobs`: of the chunks that have run. `kv`: of its first positions, where they are not
    the boards' own."""

    name: str
    prompt: list[int]
    params: SamplingParams
    pages: list[int]
    computed: int
    adapter: LoRARequest | None
    plain: bool
    generator: torch.Generator | None
    output: list[int] = field(default_factory=list)
    sequence: int | None = None
    prompt_logprobs: list[LogprobsTensors] = field(default_factory=list)
    kv: KvArrays | None = None

    def tokens(self, start: int, end: int) -> list[int]:
        """Those of positions `start` to `end` - 1 that are known."""
        first = len(self.prompt)
        return self.prompt[start:end] + self.output[max(0, start - first) : max(0, end - first)]

    def kept(self) -> KvArrays | None:
        """`kv` as far as the positions are that vLLM counts as done: boards compute the others."""
        if self.kv is not None and self.computed < self.kv.positions:
            pages = self.computed // PAGE_POSITIONS
            self.kv = of_pages(self.kv, 0, pages) if pages else None
        return self.kv

    @property
    def length(self) -> int:
        """Positions that are known."""
        return len(self.prompt) + len(self.output)


def is_plain(params: SamplingParams) -> bool:
    """Whether the max logit decides, and nobody asks for more than the token."""
    return (
        params.sampling_type == SamplingType.GREEDY
        and params.logprobs is None
        and params.presence_penalty == 0
        and params.frequency_penalty == 0
        and params.repetition_penalty == 1
        and not any(
            getattr(params, name, None)
            for name in ("min_tokens", "logit_bias", "allowed_token_ids", "bad_words_token_ids",
                         "structured_outputs", "logprob_token_ids", "thinking_token_budget",
                         "prompt_logprobs")
        )
        and set(params.extra_args or ()) <= {"kv_transfer_params"}
    )  # fmt: skip


class Requests:
    """The requests that vLLM has scheduled and not finished."""

    def __init__(
        self, boards: Boards, take_kept: Callable[[str], KvArrays | None] = lambda _: None
    ) -> None:
        """`take_kept`: K and V of a new request's prompt, where they are not the boards' own."""
        self._boards = boards
        self._take_kept = take_kept
        self._first_page = boards.cache.first_page - 1  # block 0 is never written
        self.known: dict[str, Request] = {}

    def update(self, scheduled: SchedulerOutput) -> None:
        """Take over what has changed since the last step."""
        for name in scheduled.finished_req_ids:
            self._leave(self.known.pop(name, None))
        for name in scheduled.preempted_req_ids or ():
            self._leave(self.known.get(name))
        for new in scheduled.scheduled_new_reqs:
            self._leave(self.known.get(new.req_id))
            self.known[new.req_id] = self._request(new)
        self._update_cached(scheduled.scheduled_cached_reqs)

    def _request(self, new: NewRequestData) -> Request:
        params = new.sampling_params
        if params is None or new.prompt_token_ids is None or new.mm_features:
            raise ValueError(f"request {new.req_id}: boards run prompts of tokens that generate")
        seed = params.seed if params.sampling_type == SamplingType.RANDOM_SEED else None
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        return Request(
            new.req_id,
            list(new.prompt_token_ids),
            params,
            self._pages(new.block_ids),
            new.num_computed_tokens,
            new.lora_request,
            is_plain(params),
            generator,
            kv=self._take_kept(new.req_id),
        )

    def _update_cached(self, cached: CachedRequestData) -> None:
        for index, name in enumerate(cached.req_ids):
            request = self.known[name]
            request.computed = cached.num_computed_tokens[index]
            blocks = cached.new_block_ids[index]
            if name in cached.resumed_req_ids:
                self._leave(request)
                request.pages = []
            if blocks is not None:
                request.pages = request.pages + self._pages(blocks)

    def _pages(self, blocks: tuple[list[int], ...]) -> list[int]:
        """The pages of vLLM's blocks, of which there is one group."""
        return [self._first_page + block for block in blocks[0]]

    def _leave(self, request: Request | None) -> None:
        if request is not None and request.sequence is not None:
            self._boards.cache.close(request.sequence)
            request.sequence = None

    def groups(self, scheduled: SchedulerOutput) -> Iterator[list[Request]]:
        """The scheduled requests in steps of the boards. vLLM lets a request use a prefix that
        another one computes in the same step; rows of boards see pages after a step alone."""
        group: list[Request] = []
        written: set[int] = set()
        rows = 0
        for name, count in scheduled.num_scheduled_tokens.items():
            request = self.known[name]
            tile = request.computed // PAGE_POSITIONS
            used = request.pages[:tile] if request.sequence is None else ()
            if group and (rows + count > self._boards.row_limit or not written.isdisjoint(used)):
                yield group
                group, written, rows = [], set(), 0
            group.append(request)
            rows += count
            written.update(request.pages[tile : pages_for(request.computed + count)])
        if group:
            yield group

    def place(self, group: list[Request], scheduled: SchedulerOutput) -> None:
        """Give each request of a group a sequence on the boards, in the pages that vLLM named."""
        cache = self._boards.cache
        for request in group:
            number = request.sequence
            if number is not None and cache.length(number) != request.computed:
                self._leave(request)  # vLLM computes some positions again
            if request.sequence is None:
                adapter = self._boards.vllm_adapters.name_of(request.adapter)
                self._make_room(adapter, scheduled)
                tokens = request.tokens(0, request.computed)
                request.sequence = self._boards.start(
                    tokens, request.pages, adapter, request.kept()
                )
            else:
                assert number is not None
                cache.map(number, request.pages[len(cache.pages(number)) :])

    def _make_room(self, adapter: str | None, scheduled: SchedulerOutput) -> None:
        """vLLM may hold more requests than it schedules: others leave the boards where a sequence
        or an adapter's slot is wanted, and come back with their pages."""
        cache, adapters = self._boards.cache, self._boards.adapters
        for request in self.known.values():
            if cache.free_sequences and adapters.has_room(adapter):
                return
            if request.name not in scheduled.num_scheduled_tokens:
                self._leave(request)

    def chunk(self, request: Request, count: int, drafts: Sequence[int], all_wanted: bool) -> Chunk:
        """The rows of a request in this step, `count` with those of drafts. `all_wanted`: results
        of every row, not only from the last known token on."""
        assert request.sequence is not None
        known = request.tokens(request.computed, request.computed + count)
        tokens = [*known, *drafts][:count]
        first = 0 if all_wanted else max(0, request.length - 1 - request.computed)
        return Chunk(request.sequence, tokens, range(first, len(tokens)))

    @staticmethod
    def samples(request: Request, count: int) -> bool:
        """Whether the step's last row of the request is behind all that is known."""
        return bool(request.computed + count >= request.length)
