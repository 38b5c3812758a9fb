"""Token selection for one sample: all operations in order (docs/numbers.md, 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.sampling import penalties, philox, rejection, select
from lora_sdk.sampling.logprobs import PositionLogprobs, position_logprobs
from lora_sdk.sampling.params import SamplingParams

Logits = NDArray[np.float32]

# Random streams of a position, besides the one that plain sampling uses.
ACCEPTANCE, DRAFTING, BEAMS = 1, 2, 3


@dataclass(frozen=True)
class Sampler:
    """Chooses tokens for sample `sample` of a request.

    `end_tokens`: ids that end the text (forbidden before min_tokens). `bad_words`: the token
    sequences of params.bad_words. `seed`: the request's seed.
    """

    params: SamplingParams
    vocabulary: int
    seed: int
    sample: int = 0
    end_tokens: frozenset[int] = frozenset()
    bad_words: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
            for token in getattr(self.params, name):
                if token >= self.vocabulary:
                    raise RequestError(
                        f"{name}: token id {token} is outside the vocabulary of {self.vocabulary}"
                    )

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """The mask [V] of allowed_token_ids."""
        mask = np.zeros(self.vocabulary, dtype=np.bool_)
        mask[list(self.params.allowed_token_ids)] = True
        return mask

    @cached_property
    def _unprocessed(self) -> bool:
        """Whether nothing but min_tokens changes logits."""
        params = self.params
        return not (
            penalties.penalizes(params)
            or self.bad_words
            or params.allowed_token_ids
            or params.allowed_tokens is not None
        )

    @cached_property
    def filters(self) -> tuple[float, float, float, int] | None:
        """Those of a draw that needs nothing else; None for another choice."""
        params = self.params
        if params.greedy or params.logprobs is not None or not self._unprocessed:
            return None
        top_k = min(params.top_k, self.vocabulary)  # a caller's may be any whole number
        return select.filters_of(params.temperature, top_k, params.top_p, params.min_p)

    def choose(
        self, logits: Logits, position: int, prompt: Sequence[int], output: Sequence[int]
    ) -> tuple[int, PositionLogprobs | None]:
        """The token at `position` from logits FP32 [V], and its log probabilities if requested.

        `prompt` and `output` are the tokens before it. ModelError for NaN logits,
        RequestError if every token is forbidden.
        """
        params = self.params
        select.check_finite(logits, position)
        processed = self.processed(logits, prompt, output)
        if params.greedy:
            token = select.most_likely(processed)
            if processed[token] == -np.inf:
                raise RequestError("no token may be chosen: every one is forbidden")
        else:
            u = philox.uniform(self.seed, self.sample, position)
            token = select.draw(self._weights(processed), u)
        return token, self._logprobs(logits, processed, token)

    def choose_among(
        self,
        logits: Logits,
        position: int,
        prompt: Sequence[int],
        output: Sequence[int],
        siblings: Sequence[int],
        drafted: NDArray[np.float64],
    ) -> tuple[int, PositionLogprobs | None]:
        """As `choose`, with the same distribution of tokens, by rejection sampling over `siblings`.
        These were drawn without replacement from weights `drafted` float64 [V]."""
        select.check_finite(logits, position)
        processed = self.processed(logits, prompt, output)
        if self.params.greedy:
            weights = np.zeros(processed.size)
            weights[select.most_likely(processed)] = 1.0
        else:
            weights = self._weights(processed).astype(np.float64)
        uniforms = philox.uniforms(self.seed, self.sample, position, ACCEPTANCE, len(siblings) + 1)
        token = rejection.choose(weights, drafted, siblings, uniforms)
        return token, self._logprobs(logits, processed, token)

    def _weights(self, processed: Logits) -> Logits:
        """Weights FP32 [V] of the logits that `processed` gave."""
        params = self.params
        return select.weights_of(
            processed, params.temperature, params.top_k, params.top_p, params.min_p
        )

    def _logprobs(self, logits: Logits, processed: Logits, token: int) -> PositionLogprobs | None:
        """Those of a chosen token that the request asks for."""
        params = self.params
        if params.logprobs is None:
            return None
        if params.logprobs_mode == "raw":
            return position_logprobs(logits, token, params.logprobs)
        if not params.greedy:
            processed = select.tempered(processed, params.temperature)
        return position_logprobs(processed, token, params.logprobs)

    def draw_siblings(self, drafted: NDArray[np.float64], position: int, count: int) -> list[int]:
        """`count` distinct tokens for `position` from a draft's weights float64 [V]. The random
        numbers are not those of `choose_among`."""
        uniforms = philox.uniforms(self.seed, self.sample, position, DRAFTING, count)
        return rejection.draw_siblings(drafted, uniforms)

    def processed(self, logits: Logits, prompt: Sequence[int], output: Sequence[int]) -> Logits:
        """The logits FP32 [V] after penalties, bias and forbidden tokens: a copy, unless none of
        these is asked for. RequestError if a mask is wrong."""
        params = self.params
        if self._unprocessed and len(output) >= params.min_tokens:
            return logits
        processed = np.array(logits, dtype=np.float32)
        penalties.penalize(processed, params, prompt, output)
        penalties.forbid_bad_words(processed, self.bad_words, output)
        if len(output) < params.min_tokens:
            processed[sorted(self.end_tokens)] = -np.inf
        if params.allowed_token_ids:
            processed[~self._allowed] = -np.inf
        if params.allowed_tokens is not None:
            allowed = params.allowed_tokens(tuple(output))
            if allowed is not None:
                penalties.restrict(processed, allowed)
        return processed
