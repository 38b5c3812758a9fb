"""Where a long text can be cut so that its parts' tokens are those of the whole. What a part takes
while it is encoded goes before the next one, which need not be encoded where there are enough."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from lora_sdk.text.decoding import byte_level_bytes

PART = 1 << 16  # characters of a part, at least
_HAN = "\u4e00-\u9fff"
_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0391-\u03a1\u03b1-\u03c9\u0410-\u044f"
    f"\u05d0-\u05ea\u0627-\u063a\u0905-\u0939\u0e01-\u0e2e\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3{_HAN}"
)
"""Without marks that a normalizer joins with the letter before them."""
_COMMA = "\uff0c"  # of Chinese, which has no spaces
_END = "\udc80-\udcbf"  # bytes that end a character, where a piece does not have the whole of it
_TRIALS = 400
_PIECES = (
    "a", "e", "Z", "the", "\u00e9", "\u0436", "\u4e00", "\u3042", "\uac00", "\u0301", "1", "27",
    "'s", "'", ".", ",", "(", "=", "_", "-", "\uff0c", "\u3002", "\U0001f600", "\u200d", " ", "  ",
    "\n", "b", "\r\n", "\t", "\u00a0", "\u3000", "<",
)  # fmt: skip

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Cuts:
    """Places that match `pattern`; `drop`: characters behind them that the tokenizer adds itself to
    what it takes for the beginning of a text."""

    pattern: re.Pattern[str]
    drop: int

    def parts(self, text: str) -> Iterator[str]:
        """The text, cut at the first place behind each `PART` characters."""
        begin = 0
        while begin < len(text):
            found = self.pattern.search(text, begin + PART)
            end = len(text) if found is None else found.start()
            yield text[begin + (self.drop if begin else 0) : end]
            begin = end


def cuts_of(backend: Any, encode: Encode) -> Cuts | None:
    """The cuts of tokenizers.Tokenizer, None for none. `encode`: tokens without special ones.

    No piece of the vocabulary may lie across a cut, so no rule can join what is on both sides; that
    what splits texts into words does so by what is near is tried with made-up texts."""
    added = backend.get_added_tokens_decoder().values()
    if any(one.lstrip or one.rstrip or one.single_word for one in added):
        return None
    whole = [one.content for one in added]
    pieces = [*whole, *map(_text_of(backend), backend.get_vocab(with_added_tokens=False))]
    for drop in (0, 1):
        if _WORDS.holds(pieces, encode, drop):
            more = not drop and _CHINESE.holds(pieces, encode, drop)
            kinds = (_WORDS, _CHINESE) if more else (_WORDS,)
            return Cuts(re.compile("|".join(one.pattern for one in kinds)), drop)
    return None


@dataclass(frozen=True)
class _Kind:
    """`left` and `right`: what a cut lies between. `across`: found in pieces that may lie there."""

    left: str
    right: str
    across: str
    space: bool

    @property
    def pattern(self) -> str:
        return f"(?<={self.left})(?={self.right})"

    def holds(self, pieces: Iterable[str], encode: Encode, drop: int) -> bool:
        across = re.compile(self.across)
        if any(across.search(piece) for piece in pieces):
            return False
        random, middle = Random(0), " " if self.space else _COMMA
        letters = [one for one in _PIECES if re.fullmatch(f"{self.left}+", one)]
        for _ in range(_TRIALS):
            left, right = ("".join(random.choices(_PIECES, k=random.randrange(9))) for _ in "ab")
            left += random.choice(letters)
            right = middle + (random.choice(letters) if self.space else "") + right
            if encode(left + right) != encode(left) + encode(right[drop:]):
                return False
        return True


_WORDS = _Kind(f"[{_LETTERS}]", f" [{_LETTERS}]", f"[{_LETTERS}{_END}] ", True)
_CHINESE = _Kind(f"[{_HAN}]", _COMMA, f"[{_HAN}{_END}](?:{_COMMA}|\udcef\udcbc?$)", False)


def _text_of(backend: Any) -> Callable[[str], str]:
    """What a piece stands for; bytes of a part of a character as Python escapes them."""
    splits = [] if backend.pre_tokenizer is None else [backend.pre_tokenizer.__getstate__()]
    if any(b'"ByteLevel"' in one for one in splits):
        return lambda piece: byte_level_bytes(piece).decode("utf-8", "surrogateescape")
    return lambda piece: piece.replace("\u2581", " ")
