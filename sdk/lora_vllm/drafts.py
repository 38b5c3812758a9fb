"""Drafted tokens: vLLM's n-gram look-up proposes, rows on boards verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from vllm.v1.outputs import DraftTokenIds

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from lora_vllm.requests import Request


def accepted(drafts: Sequence[int], chosen: Sequence[int]) -> int:
    """How many drafts are what the model chose at their places."""
    pairs = enumerate(zip(drafts, chosen, strict=False))
    return next((index for index, (draft, token) in pairs if draft != token), len(drafts))


class Drafts:
    """Proposes for plain requests; others decode without."""

    def __init__(self, config: VllmConfig) -> None:
        self._proposer = None
        if config.speculative_config is not None:
            from vllm.v1.spec_decode.ngram_proposer import NgramProposer

            self._proposer = NgramProposer(config)

    def of(self, requests: Sequence[Request]) -> DraftTokenIds | None:
        """Drafts of requests that have just got tokens. None: nobody drafts."""
        if self._proposer is None:
            return None
        plain = [request for request in requests if request.plain]
        tokens = np.zeros((len(plain), max([one.length for one in plain], default=0)), np.int32)
        for row, request in zip(tokens, plain, strict=True):
            row[: request.length] = request.tokens(0, request.length)
        lengths = np.array([request.length for request in plain], np.int32)
        found = self._proposer.propose(self._proposer.k, [[0]] * len(plain), lengths, tokens)
        return DraftTokenIds([request.name for request in plain], found)
