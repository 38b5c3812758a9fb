"""Text of tokens that come one by one, as a tokenizer.json's decoder makes it of all at once.

The tokenizers package decodes a whole list: each decoder makes another list of it, and the last
one's pieces are joined. A stage does the same as the pieces come. It passes on what no later piece
can change; the rest is in its state, a value that is never altered, so that one can look ahead.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

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


State: TypeAlias = "tuple[Any, ...]"
Run: TypeAlias = Callable[[Any, list[str]], str]
"""Applies one of the package's decoders to pieces, with errors of ours."""
_JOINING = ("ByteLevel", "Fuse")  # all pieces become one
_LONGEST = 64  # characters of a string that is looked for across parts


class Decoding:
    """The states of a tokenizer's decoder, from token to token."""

    def __init__(self, stages: Sequence[Stage], piece: Callable[[int], str | None]) -> None:
        """`piece`: of a token as the decoder gets it; None for one that is left out."""
        cut = next((i for i, one in enumerate(stages) if not isinstance(one, Each)), len(stages))
        self._each = [one.convert for one in stages[:cut] if isinstance(one, Each)]
        self._stages = tuple(stages[cut:])
        self._piece = piece
        self._pieces: dict[int, str | None] = {}
        self.at_the_end = any(isinstance(one, AtTheEnd) for one in stages)
        """No text is final before the last token."""
        self.start: State = tuple(one.start for one in self._stages)
        self.rest: State = self._through(self.start, ("a",))[0]
        """The state in plain text, from which `plain` has the texts of tokens."""
        self.plain: dict[int, str] = {}
        """Of the tokens so far that lead from `rest` to `rest`."""
        self._at_rest = tuple(self._held(self.rest, whole) for whole in (False, True))

    def push(self, state: State, token: int) -> tuple[State, str]:
        """The state after `token`, and the text that is final now."""
        piece = self.piece(token)
        if piece is None:
            return state, ""
        new, pieces = self._through(state, (piece,))
        text = "".join(pieces)
        if new == self.rest:
            if state is self.rest:
                self.plain[token] = text
            new = self.rest
        return new, text

    def text(self, tokens: Iterable[int]) -> str:
        """Of all tokens."""
        state, parts = self.start, []
        for token in tokens:
            state, part = self.push(state, token)
            parts.append(part)
        return "".join((*parts, self.held(state, False)))

    def held(self, state: State, whole: bool) -> str:
        """The text that comes if no token follows. With `whole` without characters of which bytes
        are missing. The work grows with what is held."""
        return self._at_rest[whole] if state is self.rest else self._held(state, whole)

    def piece(self, token: int) -> str | None:
        """A token's piece after the decoders that see no other; None: it is left out."""
        try:
            return self._pieces[token]
        except KeyError:
            piece = self._piece(token)
            if piece is not None:
                for convert in self._each:
                    piece = convert(piece)
            self._pieces[token] = piece
            return piece

    def _through(self, state: State, pieces: Sequence[str]) -> tuple[State, Sequence[str]]:
        states = []
        for stage, one in zip(self._stages, state, strict=True):
            final: list[str] = []
            for piece in pieces:
                one, more = stage.step(one, piece)
                final += more
            states.append(one)
            pieces = final
        return tuple(states), pieces

    def _held(self, state: State, whole: bool) -> str:
        pieces: list[str] = []
        for stage, one in zip(self._stages, state, strict=True):
            final: list[str] = []
            for piece in pieces:
                one, more = stage.step(one, piece)
                final += more
            pieces = [*final, *stage.end(one, whole)]
        return "".join(pieces)


def decoders_of(backend: Any) -> list[dict[str, Any]] | None:
    """The fields of a tokenizer's decoders in their order, sequences taken apart; None: it has
    none, and its pieces are joined with spaces."""
    if backend.decoder is None:
        return None
    return _apart(json.loads(backend.decoder.__getstate__()))


def _apart(fields: dict[str, Any]) -> list[dict[str, Any]]:
    if fields["type"] != "Sequence":
        return [fields]
    return [one for decoder in fields["decoders"] for one in _apart(decoder)]


def stages_of(decoders: Sequence[dict[str, Any]] | None, run: Run) -> list[Stage]:
    """Stages that make what the package's decoders make."""
    if decoders is None:
        return [ByPlace(str, lambda piece: f" {piece}")]
    stages: list[Stage] = []
    joined = False
    for index, fields in enumerate(decoders):
        following = [one["type"] for one in decoders[index + 1 :]]
        found = _over_one(fields, run) if joined else _over_list(fields, following, run)
        if found is None:
            return [*stages, _rest(decoders[index:], joined, run)]
        stages += found
        joined = joined or fields["type"] in _JOINING
    return stages


def _over_list(fields: dict[str, Any], following: Sequence[str], run: Run) -> list[Stage] | None:
    """The stages of a decoder that gets one piece a token; None: there are none."""
    kind = fields["type"]
    if kind == "Fuse":
        return []
    if kind == "ByteLevel":
        return [ByteLevel()]
    if kind == "ByteFallback":
        return [ByteFallback(RUN if following[:1] in ([], ["Fuse"]) else None)]
    if kind == "Strip":
        return [Each(lambda piece: _strip(fields, piece))]
    decoder = _decoder(fields)
    if kind == "Replace":
        return [Each(lambda piece: run(decoder, [piece]))]
    if kind in ("WordPiece", "Metaspace"):
        return [ByPlace(lambda one: run(decoder, [one]), lambda one: run(decoder, ["", one]))]
    if kind == "CTC":
        return [Ctc(lambda piece: run(decoder, [piece]))]
    if kind == "BPEDecoder":
        return [BpeSuffix(lambda one: run(decoder, [one]), lambda one: run(decoder, [one, ""]))]
    return None


def _over_one(fields: dict[str, Any], run: Run) -> list[Stage] | None:
    """The stages of a decoder that gets one piece, in parts; None: there are none."""
    kind = fields["type"]
    if kind == "Fuse":
        return []
    if kind == "Strip":
        return [StripEnds(fields["content"], fields["start"], fields["stop"])]
    if kind == "Metaspace":  # of a first piece, which changes by character
        decoder = _decoder(fields)
        return [Each(lambda part: run(decoder, [part]))]
    if kind == "Replace":
        pattern = fields["pattern"].get("String")
        if pattern and len(pattern) <= _LONGEST:
            return [ReplaceText(pattern, fields["content"])]
    return None


def _strip(fields: dict[str, Any], piece: str) -> str:
    strip = StripEnds(fields["content"], fields["start"], fields["stop"])
    return "".join(strip.step(strip.start, piece)[1])


def _rest(decoders: Sequence[dict[str, Any]], joined: bool, run: Run) -> Stage:
    """The remaining decoders, at the end of the text."""
    from tokenizers import decoders as package

    whole = package.Sequence([_decoder(fields) for fields in decoders])
    return AtTheEnd(lambda pieces: run(whole, ["".join(pieces)] if joined else pieces))


def _decoder(fields: dict[str, Any]) -> Any:
    """One of the package's decoders."""
    from tokenizers import Regex, decoders

    given = {key: value for key, value in fields.items() if key != "type"}
    kind = fields["type"]
    if kind == "Replace":
        ((form, pattern),) = given["pattern"].items()
        return decoders.Replace(Regex(pattern) if form == "Regex" else pattern, given["content"])
    if kind == "Strip":
        return decoders.Strip(given["content"], given["start"], given["stop"])
    if kind == "ByteLevel":
        return decoders.ByteLevel()
    return getattr(decoders, kind)(**given)
