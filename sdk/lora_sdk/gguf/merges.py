"""Merges of a SentencePiece vocabulary, which its scores define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

MAX_WORK = 1 << 24
"""Characters of all tokens, times their lengths."""


def merges_of_scores(
    scored: Sequence[tuple[str, float]], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Pairs of tokens that make a token of `scored`, the best score first; those of equal scores
    by the lengths of their parts, as the tokenizers package's own conversion has them. ValueError:
    tokens that are too long to be those of a language."""
    if sum(len(token) ** 2 for token, _ in scored) > MAX_WORK:
        raise ValueError("tokens of many characters")
    found: list[tuple[str, str]] = []
    scores: list[float] = []
    for token, score in scored:
        pairs = [
            (left, token[cut:])
            for cut in range(1, len(token))
            if (left := token[:cut]) in vocabulary and token[cut:] in vocabulary
        ]
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        found += pairs
        scores += [score] * len(pairs)
    lengths = np.array([(len(left), len(right)) for left, right in found], np.int64).reshape(-1, 2)
    order = np.lexsort((-lengths[:, 1], -lengths[:, 0], -np.array(scores, np.float64)))
    return [found[place] for place in order.tolist()]
