"""A model's tokenizer, run by the tokenizers package."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, RequestError
from lora_sdk.text.cuts import PART, Cuts, cuts_of
from lora_sdk.text.decoding import Decoding, byte_level_bytes, decoders_of, fallback_byte, stages_of
from lora_sdk.text.panics import without_panic_reports
from lora_sdk.text.token_length import longest_token
from lora_sdk.text.tokenizer_files import TokenizerFiles, one_line, tokenizer_files

_LONG = 1 << 12  # characters, a few milliseconds
PANIC = "PanicException"  # of pyo3: a BaseException that no module exports


class LongText(RequestError):
    """A text is too long for what it is wanted for."""


class Tokenizer:
    """Text to token ids and back. Special tokens (BOS) are added as tokenizer.json says."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Of the model in a folder or a GGUF file. `vocabulary`: the model's number of tokens; a
        larger id is an error. ModelError: no usable file."""
        self._files = tokenizer_files(folder)
        self._backend = _load(self._files)
        fast = getattr(self._backend, "encode_batch_fast", None)  # not in 0.20.0
        self._encode_many = fast or self._backend.encode_batch
        self._vocabulary = vocabulary
        self._config: dict[str, Any] | None = None
        self._decoders = decoders_of(self._backend)
        kinds = [one["type"] for one in self._decoders or ()]
        self.byte_fallback = "ByteFallback" in kinds
        self.joins_bytes = kinds == ["ByteLevel"]  # the text of tokens is that of their bytes
        # The package's own panics where there are fewer characters than may be cut.
        self._strips = any(one["type"] == "Strip" and one["stop"] for one in self._decoders or ())
        self._alone: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self._added = self._backend.get_added_tokens_decoder()
        self._decoding: dict[bool, Decoding] = {}

    @property
    def config(self) -> dict[str, Any]:
        """tokenizer_config.json, {} if there is none."""
        if self._config is None:
            self._config = self._files.settings()
        return self._config

    def definition(self) -> bytes:
        """tokenizer.json, or what it would hold."""
        return self._files.definition()

    def encode(
        self, text: str, special: bool = True, most: int | None = None, part: int | None = None
    ) -> list[int]:
        """Token ids of `text`; with `special` also the special tokens that the tokenizer adds.
        LongText, for texts above `PART`: there are over `most` tokens, told before all are made; or
        more than `part` bytes would be made tokens at once."""
        if not isinstance(text, str):
            raise RequestError(f"the text is {text!r:.100}; expected a str")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(
                f"the text is not Unicode: {text[error.start]!r} at {error.start} is a "
                "byte that is not UTF-8; expected UTF-8"
            ) from None
        try:
            ids = self._encoded(text, special, most, part)
        except BaseException as error:
            raise self._broken("encode", error) from None
        if ids and max(ids) >= self._vocabulary:
            raise ModelError(
                f"tokenizer.json gives id {max(ids)}, the model has {self._vocabulary} tokens; "
                "expected the model's own tokenizer"
            )
        return ids

    def _encoded(self, text: str, special: bool, most: int | None, part: int | None) -> list[int]:
        if len(text) <= PART:
            return self._at_once(text, special)
        cuts, around = self._cuts, self._around if special else ([], [])
        if cuts is None or around is None:
            return self._at_once(_short(text, part), special)
        ids = [*around[0]]
        for one in cuts.parts(text):
            ids += self._at_once(_short(one, part), False)
            if most is not None and len(ids) > most:
                raise LongText(f"over {most} tokens")
        return ids + around[1]

    def _at_once(self, text: str, special: bool) -> list[int]:
        """The package's ids. Batches alone let other threads run meanwhile; without the places of
        tokens in the text they take half of the time, and less memory."""
        if len(text) <= _LONG:
            encoding = self._backend.encode(text, add_special_tokens=special)
        else:
            (encoding,) = self._encode_many([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    @cached_property
    def _cuts(self) -> Cuts | None:
        def encode(text: str) -> list[int]:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
            return ids

        return cuts_of(self._backend, encode)

    @cached_property
    def _around(self) -> tuple[list[int], list[int]] | None:
        """The special tokens before and behind a text, None where that cannot be told."""
        plain, full = self.encode("a", special=False), self.encode("a")
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return full[:start], full[start + len(plain) :]
        return None

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of token ids; bytes that are not UTF-8 become U+FFFD."""
        if self._strips:
            return self.decoding(skip_special).text(ids)
        try:
            text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        except (OverflowError, TypeError) as error:
            raise _not_an_id(error) from None
        except BaseException as error:
            raise self._broken("decode", error) from None
        return text

    def decoding(self, skip_special: bool) -> Decoding:
        """How texts of tokens arise one by one, as `decode` has them of all at once."""
        found = self._decoding.get(skip_special)
        if found is None:
            found = self._decoding[skip_special] = Decoding(
                stages_of(self._decoders, self._run), lambda token: self._piece(token, skip_special)
            )
        return found

    def _run(self, decoder: Any, pieces: list[str]) -> str:
        """One of the package's decoders, applied to pieces."""
        try:
            text: str = decoder.decode(pieces)
        except BaseException as error:
            raise self._broken("decode", error) from None
        return text

    def _piece(self, token: int, skip_special: bool) -> str | None:
        """A token as the decoder gets it; None: it is left out."""
        try:
            piece: str | None = self._backend.id_to_token(token)
        except (OverflowError, TypeError) as error:
            raise _not_an_id(error) from None
        return None if skip_special and piece in self._special else piece

    def token_id(self, text: str) -> int | None:
        """The id of the token that is written so; None: there is none."""
        found: int | None = self._backend.token_to_id(text)
        return found

    @cached_property
    def longest(self) -> int | None:
        """The most bytes that texts have for each of their tokens; None: no bound is known."""
        return longest_token(self._backend)

    @cached_property
    def added(self) -> dict[str, int]:
        """Ids of the added tokens, special ones among them, by their text."""
        return {one.content: token for token, one in self._added.items()}

    @cached_property
    def _special(self) -> frozenset[str]:
        return frozenset(one.content for one in self._added.values() if one.special)

    def _broken(self, act: str, error: BaseException) -> BaseException:
        """The error of the package's own failure: bare Exception, or a panic, which is none."""
        if type(error) is not Exception and type(error).__name__ != PANIC:
            return error
        return ModelError(
            f"{self._files.path}: cannot {act}: {one_line(error)}; expected the "
            "model's own tokenizer"
        )

    def alone(self, token: int, skip_special: bool) -> str:
        """The text of one token alone, as `decode` returns it. Cached."""
        known = self._alone[skip_special]
        text = known.get(token)
        if text is None:
            text = known[token] = self.decode((token,), skip_special)
        return text

    def token_text(self, token: int) -> str:
        """The text of one token alone, also of a special one."""
        return self.decode([token], skip_special=False)

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for; they need not be UTF-8. b"" for an unknown id."""
        piece: str | None = self._backend.id_to_token(token)
        if piece is None:
            return b""
        if token in self._added:
            return piece.encode("utf-8")
        if self.joins_bytes:
            return byte_level_bytes(piece)
        if self.byte_fallback:
            byte = fallback_byte(piece)
            return bytes((byte,)) if byte is not None else piece.replace("▁", " ").encode()
        return self.token_text(token).encode("utf-8")

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The special tokens that the tokenizer adds before a text (BOS), () for none."""
        return tuple(self._around[0]) if self._around else ()

    def spellings(self, word: str) -> tuple[tuple[int, ...], ...]:
        """Token sequences of a word: at the start of a text, and inside one (after a space)."""
        bare = word.lstrip()
        found = (tuple(self.encode(text, special=False)) for text in (word, bare, f" {bare}"))
        return tuple(dict.fromkeys(ids for ids in found if ids))


def _load(files: TokenizerFiles) -> Any:
    try:
        backend = files.backend()
        with without_panic_reports():
            backend.no_truncation()
            backend.no_padding()
            with suppress(Exception):  # of this text; a panic is none, and comes with every text
                backend.encode("a")
        return backend
    except ModelError:
        raise
    except BaseException as error:  # the package raises bare Exception, or a panic, which is none
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise ModelError(f"{files.path} cannot be read: {one_line(error)}") from None


def _short(text: str, part: int | None) -> str:
    """`text`, which is made tokens at once."""
    if part is not None and (size := len(text.encode())) > part:
        raise LongText(f"{size} bytes without a place where tokens end; expected at most {part}")
    return text


def _not_an_id(error: Exception) -> RequestError:
    return RequestError(f"token ids: {error}; expected integers from 0 on")


def check_token_ids(ids: Sequence[int], vocabulary: int) -> list[int]:
    """`ids` as ints. RequestError if one is not a token of the model."""
    for index, token in enumerate(ids):
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise RequestError(f"token {index} of the prompt is {token!r}; expected an integer")
        if not 0 <= int(token) < vocabulary:
            raise RequestError(
                f"token {index} of the prompt is {int(token)}; expected 0..{vocabulary - 1}"
            )
    return [int(token) for token in ids]
