"""Merges of a SentencePiece vocabulary, which its scores define."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lora_host.vocabulary import NO_PAIR, token_pairs


def merges_of_scores(
    tokens: Sequence[str], texts: bytes, scores: NDArray[np.float64], made: NDArray[np.bool_]
) -> list[tuple[str, str]]:
    """Pairs of tokens that make the tokens `made`, the best score first; those of equal scores by
    the lengths of their parts, as the tokenizers package's own conversion has them. Of each token
    that pair alone which a text can come to. `texts`: `tokens` as in the file, none of them twice.
    ValueError: tokens that are too long to be those of a language."""
    pairs = token_pairs(texts, scores, made)
    (place,) = np.nonzero(pairs[:, 0] != NO_PAIR)
    left, right = pairs[place].T
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    order = np.lexsort((-lengths[right], -lengths[left], -scores[place]))
    token = tokens.__getitem__
    sides = (map(token, side[order].tolist()) for side in (left, right))
    return list(zip(*sides, strict=True))
