"""Bits per byte of a model on whole texts: every byte counts, the first token too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from .corpus import Document, byte_count
from .tokenizer import END_OF_TEXT_ID, encode_text

Scorer = Callable[[torch.Tensor], torch.Tensor]
"""Maps ids [1, T] to logits [1, T, V]."""


def window_nats(scorer: Scorer, ids: Sequence[int]) -> float:
    """Nats of one window: the first token is predicted from the end-of-text token alone."""
    inputs = torch.tensor([[END_OF_TEXT_ID, *ids[:-1]]])
    with torch.no_grad():
        logits = scorer(inputs)[0].float()
    return float(F.cross_entropy(logits, torch.tensor(list(ids)), reduction="sum"))


def bits_per_byte(
    scorer: Scorer, tokenizer: Tokenizer, documents: Sequence[Document], window: int = 1024
) -> float:
    """Bits per byte over `documents`; each is cut into windows that share no context."""
    nats = 0.0
    for document in documents:
        ids = encode_text(tokenizer, document.text)
        for start in range(0, len(ids), window):
            nats += window_nats(scorer, ids[start : start + window])
    return nats / math.log(2.0) / byte_count(list(documents))
