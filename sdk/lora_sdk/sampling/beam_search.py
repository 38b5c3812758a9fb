"""Beam search of one prompt: candidates, running beams, hypotheses (docs/numbers.md, 8.7).

Logits come from outside, one row a beam and step. The rules are those of `generate` in
transformers 5 for one prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_host import numerics
from lora_host.errors import ModelError, RequestError
from lora_host.logits import top_tokens
from lora_sdk.sampling import philox, rejection
from lora_sdk.sampling.beam_params import NEVER, BeamSearchParams
from lora_sdk.sampling.logprobs import max_and_log_sum
from lora_sdk.sampling.sampler import BEAMS, Sampler, check_finite, divided, weights_of

Logits = NDArray[np.float32]
Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Beam:
    """Emitted tokens and their score: of a running beam the sum of log probabilities, of a
    hypothesis that sum after the length penalty. `parent`: index of the beam that it continues."""

    tokens: tuple[int, ...]
    score: np.float32
    parent: int = 0


class BeamSearch:
    """The search of one prompt. `beams`: those to be run next, best first. `hypotheses`: the best
    final ones, best first. `ended`: nothing is to be run."""

    def __init__(self, sampler: Sampler, prompt: Sequence[int], max_new: int) -> None:
        """`sampler` has BeamSearchParams. A hypothesis has at most `max_new` tokens."""
        assert isinstance(sampler.params, BeamSearchParams)
        self.params = sampler.params
        self.beams = [Beam((), np.float32(0.0))]
        self.hypotheses: list[Beam] = []
        self.ended = False
        self._sampler = sampler
        self._prompt = prompt
        self._max_new = max_new
        self._spread = max(2, 1 + len(sampler.end_tokens))  # so that a token that is none is left

    def advance(self, logits: Sequence[Logits]) -> None:
        """Continue every beam by the token after its row of FP32 [V] raw logits.

        ModelError for logits that are not finite, RequestError if every token is forbidden."""
        length = len(self.beams[0].tokens) + 1
        vocabulary = logits[0].size
        rows = zip(self.beams, logits, strict=True)
        scores = np.concatenate([self._continued(beam, row) for beam, row in rows])
        taken = self._candidates(scores, len(self._prompt) + length - 1)
        if not taken:
            raise RequestError("no token may be chosen: every one is forbidden")
        running: list[Beam] = []
        final: list[Beam] = []
        for rank, index in enumerate(taken):
            parent, token = divmod(index, vocabulary)
            beam = Beam((*self.beams[parent].tokens, token), scores[index], parent)
            if token not in self._sampler.end_tokens and length < self._max_new:
                running.append(beam)
            elif rank < self.params.beam_width:
                final.append(Beam(beam.tokens, self._penalized(beam.score, length), parent))
        self.beams = self._best(running)
        self.hypotheses = self._best([*self.hypotheses, *final])
        self.ended = not self.beams or self._is_settled(length)

    def results(self) -> list[Beam]:
        """The `n` best hypotheses. There are fewer if masks left fewer."""
        return self.hypotheses[: self.params.n]

    def _continued(self, beam: Beam, logits: Logits) -> Scores:
        """Scores FP32 [V] of the beam with each token appended."""
        logprobs = _log_probabilities(logits, len(self._prompt) + len(beam.tokens))
        logprobs = self._sampler.processed(logprobs, self._prompt, beam.tokens)
        if not self.params.greedy:
            logprobs = self._filtered(logprobs)
        scores: Scores = logprobs + beam.score
        return scores

    def _filtered(self, logprobs: Logits) -> Logits:
        """Log probabilities divided by the temperature, without what top-k, top-p and min-p drop.
        The most likely tokens stay in any case, one more than there are end tokens."""
        params, least = self.params, self._spread
        scaled = divided(logprobs, params.temperature)
        if scaled.max() == -np.inf:
            return scaled
        top_k = max(params.top_k, least) if params.top_k > 0 else params.top_k
        kept = weights_of(scaled, 1.0, top_k, params.top_p, params.min_p) > 0.0
        kept[top_tokens(scaled, least)] = True
        scaled[~kept] = -np.inf
        return scaled

    def _candidates(self, scores: Scores, position: int) -> list[int]:
        """Indices of the candidates among the scores FP32 [beams * V], none of them -infinity."""
        count = self._spread * self.params.beam_width
        if self.params.greedy:
            return [i for i in top_tokens(scores, count) if scores[i] > -np.inf]
        top = scores.max()
        if top == -np.inf:
            return []
        weights = numerics.exp32(scores - top).astype(np.float64)
        sampler = self._sampler
        uniforms = philox.uniforms(sampler.seed, sampler.sample, position, BEAMS, count)
        return rejection.draw_siblings(weights, uniforms)

    def _best(self, beams: Sequence[Beam]) -> list[Beam]:
        """The `beam_width` best, in descending order; equal ones as they came."""
        return sorted(beams, key=lambda beam: -beam.score)[: self.params.beam_width]

    def _penalized(self, score: np.float32, length: int) -> np.float32:
        divisor = np.float32(numerics.power_64(length, self.params.length_penalty))
        penalized: np.float32 = score / divisor
        return penalized

    def _is_settled(self, length: int) -> bool:
        """Whether there are enough hypotheses and no beam that could be better."""
        params = self.params
        if len(self.hypotheses) < params.beam_width:
            return False
        if params.early_stopping is True:
            return True
        longest = params.early_stopping == NEVER and params.length_penalty > 0.0
        best = self._penalized(self.beams[0].score, self._max_new if longest else length)
        return not best > self.hypotheses[-1].score


def _log_probabilities(logits: Logits, position: int) -> Logits:
    """FP32 [V] of logits FP32 [V] (docs/numbers.md, 9.1), rounded once."""
    check_finite(logits, position)
    if not np.isfinite(logits.max()):
        raise ModelError(
            f"the largest logit of position {position} is {logits.max():g}; expected a finite one"
        )
    top, log_total = max_and_log_sum(logits)
    found: Logits = ((logits.astype(np.float64) - top) - log_total).astype(np.float32)
    return found
