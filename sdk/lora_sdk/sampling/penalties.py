"""Changes to raw logits before temperature: penalties, bias, forbidden tokens
(docs/numbers.md, 8.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
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
