"""Log probabilities of a prompt's own tokens, collected over its chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from vllm.v1.outputs import LogprobsTensors
from vllm.v1.sample.sampler import Sampler

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from lora_vllm.requests import Request


class PromptLogprobs:
    """What requests ask of their prompts."""

    def __init__(self, config: VllmConfig) -> None:
        self._vocabulary = config.model_config.get_vocab_size()
        self._done: dict[str, LogprobsTensors | None] = {}

    def wants(self, request: Request) -> bool:
        """Whether logits of this step's rows are of a prompt whose log probabilities are asked."""
        asked = request.params.prompt_logprobs is not None and not request.output
        return asked and request.computed < len(request.prompt)

    def take(self, request: Request, logits: npt.NDArray[np.float32]) -> None:
        """Logits of the step's rows, [rows, vocabulary]: each says what it expects next."""
        first = request.computed + 1
        following = request.prompt[first : first + len(logits)]
        if not request.computed:
            request.prompt_logprobs.clear()
        asked = request.params.prompt_logprobs
        count = self._vocabulary if asked == -1 else asked
        if following:
            rows = torch.from_numpy(logits[: len(following)].copy())
            tokens = torch.tensor(following, dtype=torch.int64)
            found = Sampler.gather_logprobs(Sampler.compute_logprobs(rows), count, tokens)
            request.prompt_logprobs.append(found)
        if first + len(logits) > len(request.prompt):
            parts = request.prompt_logprobs
            self._done[request.name] = LogprobsTensors.cat(parts, [0]) if parts else None

    def done(self) -> dict[str, LogprobsTensors | None]:
        """Those of prompts that this step has ended."""
        found, self._done = self._done, {}
        return found
