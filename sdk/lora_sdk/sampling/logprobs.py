"""Natural-log probabilities of FP32 logits by the project's own exp and log2
(docs/numbers.md, 9.1 and 9.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lora_host import numerics
from lora_host.logits import exp_total, top_tokens

Logits = NDArray[np.float32]
LN2 = float.fromhex("0x1.62e42fefa39efp-1")


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log probability (natural) and its rank, 1 for the most likely token. `text`: the
    token alone, with U+FFFD for bytes that are not UTF-8; None without a tokenizer."""

    token: int
    logprob: float
    rank: int
    text: str | None = None


@dataclass(frozen=True)
class PositionLogprobs:
    """The chosen token, and the most likely tokens in descending order."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]

    def with_texts(self, text_of: Callable[[int], str]) -> PositionLogprobs:
        """The same with the tokens' texts."""
        chosen, *top = (replace(one, text=text_of(one.token)) for one in (self.chosen, *self.top))
        return PositionLogprobs(chosen, tuple(top))


def max_and_log_sum(logits: Logits) -> tuple[float, float]:
    """The max logit and the natural log of sum(exp(logit - max)), both float64."""
    total = np.float64(exp_total(logits))
    return float(logits.max()), float(numerics.log2_64(total)) * LN2


def log_probability(logits: Logits, token: int) -> float:
    """Natural log probability of one token of logits [V]."""
    top, log_total = max_and_log_sum(logits)
    return (float(logits[token]) - top) - log_total


def log_of_count(count: int) -> float:
    """Natural log of a positive integer."""
    return float(numerics.log2_64(np.float64(count))) * LN2


def rank_of(logits: Logits, token: int) -> int:
    """1 + the number of tokens with a larger logit, or with an equal logit and a lower id."""
    value = logits[token]
    before = int(np.count_nonzero(logits > value))
    return 1 + before + int(np.count_nonzero(logits[:token] == value))


def position_logprobs(logits: Logits, chosen: int, count: int) -> PositionLogprobs:
    """Log probabilities of `chosen` and of the `count` most likely tokens of logits [V]."""
    top, log_total = max_and_log_sum(logits)

    def entry(token: int, rank: int) -> TokenLogprob:
        return TokenLogprob(token, (float(logits[token]) - top) - log_total, rank)

    return PositionLogprobs(
        entry(chosen, rank_of(logits, chosen)),
        tuple(entry(token, rank + 1) for rank, token in enumerate(top_tokens(logits, count))),
    )
