"""The decoders of tokenizer.json, piece by piece.

The tokenizers package decodes a whole list: each decoder makes another list of it, and the last
one's pieces are joined. A stage does the same as the pieces come. It passes on what no later piece
can change; the rest is in its state, a value that is never altered, so that one can look ahead.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

UNKNOWN = "\ufffd"  # what decoders emit for bytes that are not UTF-8
RUN = 256  # bytes of a run of byte tokens that are held at most
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")  # as Rust reads two hexadecimal digits
_UNPRINTABLE = (*range(0x21), *range(0x7F, 0xA1), 0xAD)
# How byte-level tokenizers write bytes: printable ones of Latin-1 as themselves, the others from
# U+0100 on.
_BYTE_LEVEL = {chr(byte): byte for byte in range(0x100) if byte not in _UNPRINTABLE}
_BYTE_LEVEL |= {chr(0x100 + index): byte for index, byte in enumerate(_UNPRINTABLE)}


def fallback_byte(piece: str) -> int | None:
    """The byte that a byte token stands for; None: the piece is none."""
    if len(piece) != 6 or not piece.startswith("<0x"):
        return None
    match = _BYTE.fullmatch(piece)
    return int(match.group(1), 16) if match else None


@lru_cache(1 << 14)
def byte_level_bytes(piece: str) -> bytes:
    """The bytes that a byte-level tokenizer's piece stands for: its own where it is not written in
    that way."""
    try:
        return bytes([_BYTE_LEVEL[letter] for letter in piece])
    except KeyError:
        return piece.encode()


def begun(text: str, words: Sequence[str]) -> int:
    """Length of the longest suffix of `text` with which one of `words` begins but does not end."""
    longest = max((len(word) for word in words), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(word.startswith(text[-length:]) for word in words):
            return length
    return 0


class Stage(Protocol):
    """One decoder."""

    start: Any
    """Its state before the first piece."""

    def step(self, state: Any, piece: str) -> tuple[Any, Sequence[str]]:
        """The state after `piece`, and what is final now."""

    def end(self, state: Any, whole: bool) -> Sequence[str]:
        """What else there is if no piece follows. With `whole` without characters of which bytes
        are missing."""


class Each:
    """Pieces that do not affect each other."""

    start = None

    def __init__(self, convert: Callable[[str], str]) -> None:
        self.convert = convert

    def step(self, state: None, piece: str) -> tuple[None, Sequence[str]]:
        return None, (self.convert(piece),)

    def end(self, state: None, whole: bool) -> Sequence[str]:
        return ()


class ByPlace:
    """WordPiece, Metaspace: the first piece differs. The state: whether there was one."""

    start = False

    def __init__(self, first: Callable[[str], str], later: Callable[[str], str]) -> None:
        self._first, self._later = first, later

    def step(self, state: bool, piece: str) -> tuple[bool, Sequence[str]]:
        return True, ((self._later if state else self._first)(piece),)

    def end(self, state: bool, whole: bool) -> Sequence[str]:
        return ()


class Ctc:
    """Of equal pieces in a row the first. The state: the piece before."""

    start = None

    def __init__(self, convert: Callable[[str], str]) -> None:
        self._convert = convert

    def step(self, state: str | None, piece: str) -> tuple[str, Sequence[str]]:
        text = "" if piece == state else self._convert(piece)
        return piece, (text,) if text else ()

    def end(self, state: str | None, whole: bool) -> Sequence[str]:
        return ()


class BpeSuffix:
    """BPEDecoder: the last piece differs. The state: the piece that may be it."""

    start = None

    def __init__(self, last: Callable[[str], str], earlier: Callable[[str], str]) -> None:
        self._last, self._earlier = last, earlier

    def step(self, state: str | None, piece: str) -> tuple[str, Sequence[str]]:
        return piece, () if state is None else (self._earlier(state),)

    def end(self, state: str | None, whole: bool) -> Sequence[str]:
        return () if state is None else (self._last(state),)


class ByteLevel:
    """The bytes of all pieces are one text. The state: those of an incomplete character."""

    start = b""

    def step(self, state: bytes, piece: str) -> tuple[bytes, Sequence[str]]:
        data = state + byte_level_bytes(piece)
        text, used = codecs.utf_8_decode(data, "replace", False)
        return data[used:], (text,)

    def end(self, state: bytes, whole: bool) -> Sequence[str]:
        return () if whole else (state.decode("utf-8", "replace"),)


class ByteFallback:
    """A run of byte tokens is one piece if it is UTF-8, else each of its bytes is U+FFFD. So it is
    held until it ends, or is no UTF-8. The state: how the run goes, its whole characters, the bytes
    of an incomplete one. One of more than `limit` bytes is shown character by character."""

    _HELD, _SHOWN, _BROKEN = range(3)
    start = (_HELD, "", b"")

    def __init__(self, limit: int | None) -> None:
        """`limit`: RUN; None where the next stage needs whole pieces."""
        self._limit = limit

    def step(
        self, state: tuple[int, str, bytes], piece: str
    ) -> tuple[tuple[int, str, bytes], Sequence[str]]:
        byte = fallback_byte(piece)
        if byte is None:
            return self.start, (*self.end(state, False), piece)
        mode, text, tail = state
        if mode == self._BROKEN:
            return state, (UNKNOWN,)
        tail += bytes((byte,))
        try:
            more, used = codecs.utf_8_decode(tail, "strict", False)
        except UnicodeDecodeError:
            return (self._BROKEN, "", b""), self._unknown(text, tail)
        text, tail = text + more, tail[used:]
        if mode == self._SHOWN or (self._limit is not None and self._long(text, tail)):
            return (self._SHOWN, "", tail), (text,) if text else ()
        return (mode, text, tail), ()

    def end(self, state: tuple[int, str, bytes], whole: bool) -> Sequence[str]:
        _, text, tail = state
        if tail and not whole:
            return self._unknown(text, tail)
        return (text,) if text else ()

    def _long(self, text: str, tail: bytes) -> bool:
        assert self._limit is not None
        return len(text) * 4 > self._limit and len(text.encode()) + len(tail) > self._limit

    @staticmethod
    def _unknown(text: str, tail: bytes) -> Sequence[str]:
        return (UNKNOWN,) * (len(text.encode()) + len(tail))


class StripEnds:
    """Strip, over one text that comes in parts. The state: how many characters may still be left
    out at the front, and how many are held that may be the last ones."""

    def __init__(self, content: str, left: int, right: int) -> None:
        self._content, self._right = content, right
        self.start = (left, 0)

    def step(self, state: tuple[int, int], piece: str) -> tuple[tuple[int, int], Sequence[str]]:
        left, held = state
        if left and piece:
            rest = piece.lstrip(self._content)
            cut = min(left, len(piece) - len(rest))
            piece, left = piece[cut:], 0 if rest or cut == left else left - cut
        if not self._right:
            return (left, 0), (piece,)
        text = self._content * held + piece
        held = min(self._right, len(text) - len(text.rstrip(self._content)))
        return (left, held), (text[: len(text) - held],)

    def end(self, state: tuple[int, int], whole: bool) -> Sequence[str]:
        return ()


class ReplaceText:
    """Replace of a string, over one text that comes in parts. The state: its end, which may begin
    the string."""

    start = ""

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content = pattern, content

    def step(self, state: str, piece: str) -> tuple[str, Sequence[str]]:
        *before, last = (state + piece).split(self._pattern)
        kept = len(last) - begun(last, (self._pattern,))
        return last[kept:], (self._content.join((*before, last[:kept])),)

    def end(self, state: str, whole: bool) -> Sequence[str]:
        return (state,) if state else ()


class AtTheEnd:
    """Decoders that need the whole list. The state: its pieces, the last one first."""

    start = None

    def __init__(self, decode: Callable[[list[str]], str]) -> None:
        self._decode = decode

    def step(self, state: Any, piece: str) -> tuple[Any, Sequence[str]]:
        return (state, piece), ()

    def end(self, state: Any, whole: bool) -> Sequence[str]:
        pieces: list[str] = []
        while state is not None:
            state, piece = state
            pieces.append(piece)
        return (self._decode(pieces[::-1]),)
