"""Token selection for one sample, all operations in order (docs/numbers.md, 8): penalties, bias and
forbidden tokens on raw logits, then argmax, or a draw among the tokens that top-k, top-p and min-p
keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError, RequestError
from lora_host.logits import draw_token, token_weights
from lora_sdk.sampling import philox, rejection
from lora_sdk.sampling.logprobs import PositionLogprobs, position_logprobs
from lora_sdk.sampling.params import SamplingParams

Logits = NDArray[np.float32]


def penalizes(params: SamplingParams) -> bool:
    """Whether `penalize` changes any logit."""
    return bool(
        params.repetition_penalty != 1.0
        or params.frequency_penalty
        or params.presence_penalty
        or params.logit_bias
    )


def penalize(
    logits: Logits, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> None:
    """Apply repetition, frequency and presence penalties, then bias, to logits [V] in place.

    Each is one FP32 operation per token. As in vLLM, the repetition penalty covers prompt and
    output, the other two only the output.
    """
    if params.repetition_penalty != 1.0:
        seen = np.unique(np.asarray([*prompt, *output], dtype=np.int64))
        factor = np.float32(params.repetition_penalty)
        values = logits[seen]
        logits[seen] = np.where(values > 0, values / factor, values * factor)
    if output and (params.frequency_penalty or params.presence_penalty):
        seen, counts = np.unique(np.asarray(output, dtype=np.int64), return_counts=True)
        logits[seen] -= np.float32(params.frequency_penalty) * counts.astype(np.float32)
        logits[seen] -= np.float32(params.presence_penalty)
    for token, bias in params.logit_bias.items():
        logits[token] += np.float32(bias)


def forbid_bad_words(
    logits: Logits, bad_words: Sequence[Sequence[int]], output: Sequence[int]
) -> None:
    """Forbid, in place, each token that would complete a bad word at the end of the output."""
    for word in bad_words:
        before = len(word) - 1
        if before == 0 or tuple(output[-before:]) == tuple(word[:-1]):
            logits[word[-1]] = -np.inf


def restrict(logits: Logits, allowed: NDArray[np.bool_]) -> None:
    """Forbid, in place, every token that the mask [V] does not allow."""
    mask = np.asarray(allowed)
    if mask.shape != logits.shape or mask.dtype != np.bool_:
        raise RequestError(
            f"allowed-token mask is {mask.dtype} {list(mask.shape)}; expected bool "
            f"{list(logits.shape)}"
        )
    if not mask.any():
        raise RequestError("allowed-token mask allows no token; allow at least one")
    logits[~mask] = -np.inf


_TINY = float(np.finfo(np.float32).tiny)


def check_finite(logits: Logits, position: int) -> None:
    """ModelError when a logit of the token at `position` is NaN."""
    if np.isnan(np.maximum.reduce(logits)):  # NaN if any logit is NaN
        token = int(np.flatnonzero(np.isnan(logits))[0])
        raise ModelError(
            f"logits of position {position} hold NaN (first: token {token}); expected numbers; "
            "check the model's weights for values that overflow FP16"
        )


def most_likely(logits: Logits) -> int:
    """The token with the max logit. Ties: the lowest id."""
    return int(np.argmax(logits))


def tempered(logits: Logits, temperature: float) -> Logits:
    """(logit - max) / temperature, FP32 [V]; forbidden tokens stay at -infinity."""
    return divided(logits - _finite_top(logits), temperature)


def _finite_top(logits: Logits) -> np.float32:
    top: np.float32 = np.maximum.reduce(logits)
    if top == -np.inf:
        raise RequestError("no token may be chosen: every one is forbidden")
    if top == np.inf:
        raise ModelError(
            f"logit of token {most_likely(logits)} is infinite; expected finite ones to sample from"
        )
    return top


def divided(logits: Logits, temperature: float) -> Logits:
    """logit / temperature, FP32 [V]."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the max to -infinity
        scaled: Logits = logits / np.float32(max(temperature, _TINY))
    return scaled


def filters_of(
    temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[float, float, float, int]:
    """The filters of a draw, as lora_host.logits.Draw has them."""
    return top_p, min_p, max(temperature, _TINY), max(0, top_k)


def weights_of(
    logits: Logits, temperature: float, top_k: int, top_p: float, min_p: float
) -> Logits:
    """Weights FP32 [V] of logits FP32 [V]. Excluded tokens have weight 0. RequestError where all
    are forbidden, ModelError where one is infinite."""
    _finite_top(logits)
    return token_weights(logits, max(temperature, _TINY), top_k, top_p, min_p)


def draw(weights: Logits, u: float) -> int:
    """The first id whose running float64 sum of weights FP32 [V] exceeds u * total; u is in
    [0, 1)."""
    return draw_token(weights, u)


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
            penalizes(params)
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
        return filters_of(params.temperature, top_k, params.top_p, params.min_p)

    def choose(
        self, logits: Logits, position: int, prompt: Sequence[int], output: Sequence[int]
    ) -> tuple[int, PositionLogprobs | None]:
        """The token at `position` from logits FP32 [V], and its log probabilities if requested.

        `prompt` and `output` are the tokens before it. ModelError for NaN logits,
        RequestError if every token is forbidden.
        """
        params = self.params
        check_finite(logits, position)
        processed = self.processed(logits, prompt, output)
        if params.greedy:
            token = most_likely(processed)
            if processed[token] == -np.inf:
                raise RequestError("no token may be chosen: every one is forbidden")
        else:
            u = philox.uniform(self.seed, self.sample, position)
            token = draw(self._weights(processed), u)
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
        check_finite(logits, position)
        processed = self.processed(logits, prompt, output)
        if self.params.greedy:
            weights = np.zeros(processed.size)
            weights[most_likely(processed)] = 1.0
        else:
            weights = self._weights(processed).astype(np.float64)
        uniforms = philox.uniforms(self.seed, self.sample, position, ACCEPTANCE, len(siblings) + 1)
        token = rejection.choose(weights, drafted, siblings, uniforms)
        return token, self._logprobs(logits, processed, token)

    def _weights(self, processed: Logits) -> Logits:
        """Weights FP32 [V] of the logits that `processed` gave."""
        params = self.params
        return weights_of(processed, params.temperature, params.top_k, params.top_p, params.min_p)

    def _logprobs(self, logits: Logits, processed: Logits, token: int) -> PositionLogprobs | None:
        """Those of a chosen token that the request asks for."""
        params = self.params
        if params.logprobs is None:
            return None
        if params.logprobs_mode == "raw":
            return position_logprobs(logits, token, params.logprobs)
        if not params.greedy:
            processed = tempered(processed, params.temperature)
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
        penalize(processed, params, prompt, output)
        forbid_bad_words(processed, self.bad_words, output)
        if len(output) < params.min_tokens:
            processed[sorted(self.end_tokens)] = -np.inf
        if params.allowed_token_ids:
            processed[~self._allowed] = -np.inf
        if params.allowed_tokens is not None:
            allowed = params.allowed_tokens(tuple(output))
            if allowed is not None:
                restrict(processed, allowed)
        return processed
