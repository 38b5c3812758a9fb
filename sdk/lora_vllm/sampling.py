"""vLLM's sampler over the logits of the requests that sample in a step."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.sample.logits_processor import build_logitsprocs
from vllm.v1.sample.sampler import Sampler
from vllm.v1.structured_output.utils import apply_grammar_bitmask
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from lora_vllm.requests import Request

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.outputs import SamplerOutput


class BatchSampler:
    """vLLM's batch of the requests that sample together, its logits processors and its sampler."""

    def __init__(self, config: VllmConfig) -> None:
        cpu, model = torch.device("cpu"), config.model_config
        custom = model.logits_processors or ()
        processors = build_logitsprocs(config, cpu, False, False, custom)
        self.has_custom = len(list(processors.all)) > 3  # besides vLLM's own
        self._sampler = Sampler(logprobs_mode=model.logprobs_mode)
        self._batch = InputBatch(
            max_num_reqs=config.scheduler_config.max_num_seqs,
            max_model_len=model.max_model_len,
            max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens,
            device=cpu,
            vocab_size=model.get_vocab_size(),
            block_sizes=[config.cache_config.block_size],
            max_num_blocks_per_req=[1],
            logitsprocs=processors,
            logitsprocs_need_output_token_ids=self.has_custom,
            **_older(config.cache_config.block_size),
        )
        self._members: dict[str, Request] = {}

    def sample(
        self,
        requests: list[Request],
        logits: npt.NDArray[np.float32],
        scheduled: SchedulerOutput,
        grammar: GrammarOutput | None,
    ) -> tuple[list[str], SamplerOutput]:
        """A token of each request from its row of `logits`, float32 [requests, vocabulary], which
        is overwritten. Returns the requests' names in the order of the output's rows."""
        self._gather(requests)
        row_of = {request.name: row for row, request in enumerate(requests)}
        order = list(self._batch.req_ids)
        tensor = torch.from_numpy(np.ascontiguousarray(logits[[row_of[name] for name in order]]))
        if grammar is not None:
            apply_grammar_bitmask(scheduled, grammar, self._batch, tensor)
        return order, self._sampler(tensor, self._batch.sampling_metadata)

    def _gather(self, requests: list[Request]) -> None:
        """Let the batch hold these requests and no others."""
        wanted = {request.name: request for request in requests}
        for name, member in list(self._members.items()):
            if wanted.get(name) is not member:
                self._batch.remove_request(name)
                del self._members[name]
        for name, request in wanted.items():
            if name not in self._members:
                self._members[name] = request
                self._batch.add_request(_state(request))
        self._batch.condense()
        self._batch.refresh_metadata()


def _older(block_size: int) -> dict[str, Any]:
    """What vLLM 0.31 wants to know besides."""
    known = inspect.signature(InputBatch).parameters
    return {"kernel_block_sizes": [block_size]} if "kernel_block_sizes" in known else {}


def _state(request: Request) -> CachedRequestState:
    """What vLLM's batch wants to know; the boards have tokens and pages."""
    return CachedRequestState(
        req_id=request.name,
        prompt_token_ids=request.prompt,
        mm_features=[],
        sampling_params=request.params,
        generator=request.generator,
        block_ids=([],),
        num_computed_tokens=0,
        output_token_ids=request.output,
    )
