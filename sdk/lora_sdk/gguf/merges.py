"""Merges of a SentencePiece vocabulary, which its scores define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MAX_WORK = 1 << 24
"""Characters of all tokens, times their lengths."""


def merges_of_scores(
    scored: Sequence[tuple[str, float]], vocabulary: Mapping[str, int]
) -> list[list[str]]:
    """Pairs of tokens that make a token of `scored`, the best score first; those of equal scores
    by the lengths of their parts, as the tokenizers package's own conversion has them. ValueError:
    tokens that are too long to be those of a language."""
    if sum(len(token) ** 2 for token, _ in scored) > MAX_WORK:
        raise ValueError("tokens of many characters")
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in scored:
        pairs = []
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                pairs.append((vocabulary[left], vocabulary[right], left, right))
        pairs.sort()
        found += [(score, len(left), len(right), left, right) for _, _, left, right in pairs]
    found.sort(key=lambda one: one[:3], reverse=True)
    return [[left, right] for *_, left, right in found]
