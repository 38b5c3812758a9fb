"""A byte-level tokenizer of any size from 259 on: three special tokens, the bytes, and merges of
two letters. It encodes any text and decodes every id."""

from __future__ import annotations

from itertools import islice, product
from string import ascii_lowercase

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<s>", "</s>", "<pad>")


def make_tokenizer(size: int) -> Tokenizer:
    """Ids 0..2 are <s>, </s>, <pad>, then 256 bytes, then merges of two letters."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ((a, b) for a, b in product(ascii_lowercase, repeat=2))
    merges = list(islice(pairs, size - 3 - len(alphabet)))
    pieces = [*SPECIAL, *alphabet, *("".join(merge) for merge in merges)]
    assert len(pieces) == size, (len(pieces), size)
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return tokenizer
