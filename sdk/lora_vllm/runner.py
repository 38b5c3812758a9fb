"""One step of vLLM's scheduler on the boards: rows, then tokens."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, ModelRunnerOutput

from lora_vllm.asking import Loads
from lora_vllm.drafts import Drafts, accepted
from lora_vllm.prompt_logprobs import PromptLogprobs
from lora_vllm.requests import Request, Requests
from lora_vllm.sampling import BatchSampler

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import GrammarOutput, SchedulerOutput
    from vllm.v1.outputs import DraftTokenIds

    from lora_vllm.boards import Boards
    from lora_vllm.loading import Loading


@dataclass
class Step:
    """A step whose rows have run. `tokens`: by request, those that the boards chose; `logits`: by
    request, float32 [1, vocabulary]."""

    scheduled: SchedulerOutput
    sampling: list[Request]
    tokens: dict[str, list[int]]
    logits: dict[str, npt.NDArray[np.float32]]


class Runner:
    """Runs what vLLM has scheduled. Not thread-safe."""

    def __init__(self, config: VllmConfig, boards: Boards, loading: Loading | None = None) -> None:
        """`loading`: of prompts that a worker computes."""
        self._boards, self._loading = boards, loading
        if loading is None:
            self.requests = Requests(boards)
        else:
            self.requests = Requests(boards, loading.take_kept)
        self._sampler = BatchSampler(config)
        self._prompts = PromptLogprobs(config)
        self._drafts = Drafts(config)
        self._drafted: DraftTokenIds | None = None
        self._step: Step | None = None

    def execute(self, scheduled: SchedulerOutput) -> ModelRunnerOutput | None:
        """Run the step's rows. None: `sample` gives its tokens. LoraError of the boards."""
        if scheduled.kv_cache_block_copies:
            raise ValueError("vLLM wants blocks copied, which boards do not do for it")
        self.requests.update(scheduled)
        if self._loading is not None:
            self._begin_loads(self._loading, scheduled)
        if not scheduled.total_num_scheduled_tokens:
            return self._with_loads(copy(EMPTY_MODEL_RUNNER_OUTPUT))
        counts = scheduled.num_scheduled_tokens
        requests = [self.requests.known[name] for name in counts]
        sampling = [one for one in requests if Requests.samples(one, counts[one.name])]
        by_logits = self._sampler.has_custom or not all(
            one.plain for one in sampling
        ) or any(self._prompts.wants(one) for one in requests)  # fmt: skip
        self._step = Step(scheduled, sampling, {}, {})
        for group in self.requests.groups(scheduled):
            self._run(group, self._step, by_logits)
        return None

    @staticmethod
    def _begin_loads(loading: Loading, scheduled: SchedulerOutput) -> None:
        asked = scheduled.kv_connector_metadata
        assert isinstance(asked, Loads)
        loading.begin(asked.loads, scheduled.finished_req_ids)

    def _with_loads(self, output: ModelRunnerOutput) -> ModelRunnerOutput:
        if self._loading is not None:
            output.kv_connector_output = self._loading.output()
        return output

    def _run(self, group: list[Request], step: Step, by_logits: bool) -> None:
        counts = step.scheduled.num_scheduled_tokens
        drafted = step.scheduled.scheduled_spec_decode_tokens
        self.requests.place(group, step.scheduled)
        chunks = [
            self.requests.chunk(
                one, counts[one.name], drafted.get(one.name, ()), self._prompts.wants(one)
            )
            for one in group
        ]
        for request, ran in zip(group, self._boards.run(chunks, by_logits), strict=True):
            name, drafts = request.name, drafted.get(request.name, ())
            rejected = 0
            if ran.logits is not None and self._prompts.wants(request):
                self._prompts.take(request, ran.logits)
            if drafts or (ran.logits is None and Requests.samples(request, counts[name])):
                chosen = ran.tokens if ran.logits is None else ran.logits.argmax(axis=1).tolist()
                count = accepted(drafts, chosen)
                step.tokens[name] = chosen[: count + 1]
                rejected = len(drafts) - count
            elif ran.logits is not None and Requests.samples(request, counts[name]):
                step.logits[name] = ran.logits[-1:]
            assert request.sequence is not None
            self._boards.cache.commit(request.sequence, ran.slots[: len(ran.slots) - rejected])

    def sample(self, grammar: GrammarOutput | None) -> ModelRunnerOutput:
        """The tokens of the step that `execute` ran."""
        step, self._step = self._step, None
        assert step is not None, "no step has run"
        logprobs = self._from_logits(step, grammar) if step.logits else None
        for request in step.sampling:
            request.output += step.tokens[request.name]
        self._drafted = self._drafts.of(step.sampling)
        names = list(step.scheduled.num_scheduled_tokens)
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[step.tokens.get(name, []) for name in names],
            logprobs=logprobs,
            prompt_logprobs_dict=self._prompts.done(),
        )
        return self._with_loads(output)

    def take_drafts(self) -> DraftTokenIds | None:
        """What the last step's requests are expected to say next."""
        found, self._drafted = self._drafted, None
        return found

    def _from_logits(self, step: Step, grammar: GrammarOutput | None) -> LogprobsLists | None:
        """Let vLLM's sampler choose. Returns its log probabilities in the order of the step."""
        requests = [one for one in step.sampling if one.name in step.logits]
        logits = np.concatenate([step.logits[one.name] for one in requests])
        order, output = self._sampler.sample(requests, logits, step.scheduled, grammar)
        for name, token in zip(order, output.sampled_token_ids[:, 0].tolist(), strict=True):
            step.tokens[name] = [token]
        if output.logprobs_tensors is None:
            return None
        row_of = {name: row for row, name in enumerate(order)}
        rows = [row_of.get(name, 0) for name in step.scheduled.num_scheduled_tokens]
        found = output.logprobs_tensors.tolists()
        return LogprobsLists(*[array[rows] for array in found[:3]], None)
