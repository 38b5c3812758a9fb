"""Merges of SentencePiece vocabularies and texts of GGUF files, as the C library reads them."""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from lora_host.vocabulary import NO_PAIR, texts_end, texts_of, token_pairs
from lora_sdk.gguf.merges import merges_of_scores


def stored(texts: Sequence[str]) -> bytes:
    """As in a file."""
    return b"".join(struct.pack("<Q", len(one.encode())) + one.encode() for one in texts)


def every_pair(
    tokens: Sequence[str], scores: NDArray[np.float64], made: NDArray[np.bool_]
) -> list[tuple[str, str]]:
    """All pairs that join to a token, as the tokenizers package's conversion finds them."""
    known = set(tokens)
    found = [
        (-scores[index], -cut, cut - len(token), index, (token[:cut], token[cut:]))
        for index, token in enumerate(tokens)
        if made[index]
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return [one[-1] for one in sorted(found)]


def bpe(tokens: Sequence[str], merges: list[tuple[str, str]]) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    return Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="?"))


@pytest.mark.parametrize("seed", range(24))
def test_a_token_needs_one_pair(seed: int) -> None:
    """With scores of any order, equal ones among them, and letters that are no token."""
    random = np.random.default_rng(seed)
    letters = ("ab", "ab\u00e9\U0001f600")[seed % 2]
    words = [
        "".join(one) for size in range(2, 8 - len(letters)) for one in product(letters, repeat=size)
    ]
    chosen = random.choice(words, min(len(words), 90) * 3 // 4, replace=False).tolist()
    tokens = ["?", *letters[: 2 + seed % 4 // 2], *chosen]
    scores = -random.integers(0, (3, 12, 10**6)[seed % 3], len(tokens)).astype(float)
    made = random.random(len(tokens)) > 0.1
    made[: len(tokens) - len(chosen)] = False
    merges = merges_of_scores(tokens, stored(tokens), scores, made)
    wanted = every_pair(tokens, scores, made)
    assert [one for one in wanted if one in set(merges)] == merges
    assert len({left + right for left, right in merges}) == len(merges) < len(wanted)
    every, some = bpe(tokens, wanted), bpe(tokens, merges)
    for _ in range(300):
        text = "".join(random.choice(list(letters), 24))
        assert every.encode(text).ids == some.encode(text).ids


def test_long_tokens_are_no_language() -> None:
    tokens = ["a", "a" * 4097]
    with pytest.raises(ValueError, match="many characters"):
        merges_of_scores(tokens, stored(tokens), np.zeros(2), np.array([False, True]))
    pairs = token_pairs(stored(tokens), np.zeros(2), np.array([True, False]))
    assert (pairs == NO_PAIR).all()


def mapped(data: bytes) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize(
    "texts",
    [
        ["", "a", "\u00e9\n", ""],
        ["a\0b", "\x01", "\U0001f600"],
        ["".join(map(chr, range(32))), "", "\u2581x"],
    ],
)
def test_texts_are_those_of_the_file(texts: list[str]) -> None:
    """Also with the letters that are put between texts to read them."""
    data = b"12345" + stored(texts) + b"6"
    file, end = mapped(data), len(data) - 1
    assert texts_end(file, 5, len(texts)) == end
    assert texts_of(file, 5, end, len(texts)) == texts
    for cut in range(6, end):
        assert texts_end(data[:cut], 5, len(texts)) is None


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 9])
def test_lengths_beyond_the_file_are_not_followed(length: int) -> None:
    assert texts_end(struct.pack("<Q", length) + b"abcdefgh", 0, 1) is None


def test_texts_of_broken_letters_are_refused() -> None:
    data = struct.pack("<Q", 1) + b"\xc3" + struct.pack("<Q", 1) + b"\xa9"
    with pytest.raises(UnicodeDecodeError):
        texts_of(mapped(data), 0, len(data), 2)
