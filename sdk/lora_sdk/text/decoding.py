"""Text of tokens that come one by one, as a tokenizer.json's decoder makes it of all at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from lora_sdk.text.decoder_stages import (
    RUN,
    AtTheEnd,
    BpeSuffix,
    ByPlace,
    ByteFallback,
    ByteLevel,
    Ctc,
    Each,
    ReplaceText,
    Stage,
    StripEnds,
)

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
