"""transformers' own beam search, driven by logits that a function returns instead of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin, LogitsProcessor, LogitsProcessorList
from transformers.modeling_outputs import CausalLMOutput

from lora_sdk import Engine
from lora_sdk.sampling import philox
from lora_sdk.sampling.sampler import BEAMS
from tests.beam_cases import Case, Found

LogitsOf = Callable[[tuple[int, ...]], NDArray[np.float32]]
"""Logits FP32 [V] after a sequence of tokens."""


class BoardLogits:
    """The logits of an engine's boards, each sequence computed alone and once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[int, ...], NDArray[np.float32]] = {}

    def __call__(self, tokens: tuple[int, ...]) -> NDArray[np.float32]:
        if tokens not in self._known:
            sequence = self._engine.open_sequence()
            self._known[tokens] = self._engine.prefill(sequence, tokens).copy()
            self._engine.release(sequence)
        return self._known[tokens]


class _Config(PreTrainedConfig):  # type: ignore[misc]
    model_type = "driven"


class _Driven(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A model whose forward pass is `logits_of`, row by row, padding removed."""

    config_class = _Config
    main_input_name = "input_ids"

    def __init__(self, logits_of: LogitsOf, vocabulary: int) -> None:
        super().__init__(_Config(vocab_size=vocabulary))
        self._logits_of = logits_of
        self.unused = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: Any, attention_mask: Any = None, **_: Any) -> CausalLMOutput:
        if attention_mask is None:  # no padding
            attention_mask = torch.ones_like(input_ids)
        rows = [
            self._logits_of(tuple(ids[seen].tolist()))
            for ids, seen in zip(input_ids, attention_mask.bool(), strict=True)
        ]
        return CausalLMOutput(logits=torch.from_numpy(np.stack(rows))[:, None, :])


class _Bias(LogitsProcessor):  # type: ignore[misc]
    """logit_bias, after the other processors as in docs/numbers.md, 8.2; their own comes first."""

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._bias = bias

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores = scores.clone()
        for token, value in self._bias.items():
            scores[:, token] += value
        return scores


def driven(case: Case, logits_of: LogitsOf, vocabulary: int) -> list[Found]:
    """What `generate` returns for the case: hypotheses of each prompt with their scores."""
    fields, params = case.fields, case.params
    options: dict[str, Any] = {
        "num_beams": params.beam_width,
        "num_return_sequences": params.n,
        "length_penalty": params.length_penalty,
        "early_stopping": params.early_stopping,
        "max_new_tokens": params.max_tokens,
        "eos_token_id": case.ends or None,
        "pad_token_id": case.pad,
        "use_cache": False,
        "return_dict_in_generate": True,
        "output_scores": True,
        "do_sample": not params.greedy,
    }
    if fields.get("min_tokens"):
        options["min_new_tokens"] = params.min_tokens
    if fields.get("repetition_penalty"):
        options["repetition_penalty"] = params.repetition_penalty
    if not params.greedy:
        options.update(
            temperature=params.temperature, top_k=params.top_k, top_p=params.top_p,
            min_p=params.min_p or None,
        )  # fmt: skip
    longest = max(map(len, case.prompts))
    ids = [[0] * (longest - len(p)) + list(p) for p in case.prompts]
    mask = [[0] * (longest - len(p)) + [1] * len(p) for p in case.prompts]
    with _our_noise(params.seed or 0, [len(prompt) for prompt in case.prompts]), torch.no_grad():
        result = _Driven(logits_of, vocabulary).eval().generate(
            torch.tensor(ids), attention_mask=torch.tensor(mask),
            generation_config=GenerationConfig(**options),
            logits_processor=LogitsProcessorList([_Bias(params.logit_bias)]),
        )  # fmt: skip
    lengths = (result.beam_indices >= 0).sum(dim=1).tolist()
    rows = [
        (tuple(sequence[longest : longest + length].tolist()), float(score))
        for sequence, score, length in zip(
            result.sequences, result.sequences_scores, lengths, strict=True
        )
    ]
    return [rows[i : i + params.n] for i in range(0, len(rows), params.n)]


@contextmanager
def _our_noise(seed: int, lengths: Sequence[int]) -> Any:
    """torch.multinomial with the random numbers of docs/numbers.md, 8.7; `lengths` of the prompts.
    Call i is for the token i of every prompt."""
    calls = 0

    def multinomial(weights: Any, num_samples: int) -> Any:
        nonlocal calls
        rows = []
        for length, row in zip(lengths, weights.numpy().astype(np.float64), strict=True):
            numbers = philox.uniforms(seed, 0, length + calls, BEAMS, num_samples)
            rows.append([_draw(row, number) for number in numbers])
        calls += 1
        return torch.tensor(rows)

    with mock.patch.object(torch, "multinomial", multinomial):
        yield


def _draw(weights: NDArray[np.float64], number: float) -> int:
    running = np.cumsum(weights)
    index = int(np.argmax(running > number * running[-1]))
    weights[index] = 0.0
    return index
