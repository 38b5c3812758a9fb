"""A model's tokenizer, run by the tokenizers package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, RequestError
from lora_sdk.text.panics import without_panic_reports
from lora_sdk.text.tokenizer_files import one_line, tokenizer_files

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_UNPRINTABLE = (*range(0x21), *range(0x7F, 0xA1), 0xAD)
# How byte-level tokenizers write bytes: printable ones of Latin-1 as themselves, the others from
# U+0100 on.
_BYTE_LEVEL = {chr(byte): byte for byte in range(0x100) if byte not in _UNPRINTABLE}
_BYTE_LEVEL |= {chr(0x100 + index): byte for index, byte in enumerate(_UNPRINTABLE)}
_LONG = 1 << 12  # characters, a few milliseconds
PANIC = "PanicException"  # of pyo3: a BaseException that no module exports


class Tokenizer:
    """Text to token ids and back. Special tokens (BOS) are added as tokenizer.json says."""

    def __init__(self, folder: Path, vocabulary: int) -> None:
        """Of the model in a folder or a GGUF file. `vocabulary`: the model's number of tokens; a
        larger id is an error. ModelError: no usable file."""
        self._files = tokenizer_files(folder)
        self._backend = _load(self._files.path, self._files.definition())
        self._vocabulary = vocabulary
        self._config: dict[str, Any] | None = None
        decoder = repr(self._backend.decoder)
        self.byte_fallback = "ByteFallback" in decoder
        # The text of tokens is that of their bytes joined. So a token of whole characters adds the
        # same text in any context.
        self.joins_bytes = decoder.startswith("ByteLevel(")
        self._alone: tuple[dict[int, str], dict[int, str]] = ({}, {})
        self._added = frozenset(self._backend.get_added_tokens_decoder())

    @property
    def config(self) -> dict[str, Any]:
        """tokenizer_config.json, {} if there is none."""
        if self._config is None:
            self._config = self._files.settings()
        return self._config

    def definition(self) -> bytes:
        """tokenizer.json, or what it would hold."""
        return self._files.definition()

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token ids of `text`; with `special` also the special tokens that the tokenizer adds."""
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
            ids = self._encoded(text, special)
        except BaseException as error:
            raise self._broken("encode", error) from None
        if ids and max(ids) >= self._vocabulary:
            raise ModelError(
                f"tokenizer.json gives id {max(ids)}, the model has {self._vocabulary} tokens; "
                "expected the model's own tokenizer"
            )
        return ids

    def _encoded(self, text: str, special: bool) -> list[int]:
        """The package's ids. Batches alone let other threads run meanwhile."""
        if len(text) <= _LONG:
            encoding = self._backend.encode(text, add_special_tokens=special)
        else:
            (encoding,) = self._backend.encode_batch([text], add_special_tokens=special)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of token ids; bytes that are not UTF-8 become U+FFFD."""
        try:
            text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        except (OverflowError, TypeError) as error:
            raise RequestError(f"token ids: {error}; expected integers from 0 on") from None
        except BaseException as error:
            raise self._broken("decode", error) from None
        return text

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
        if self.joins_bytes and all(letter in _BYTE_LEVEL for letter in piece):
            return bytes(_BYTE_LEVEL[letter] for letter in piece)
        if self.byte_fallback:
            match = _FALLBACK.fullmatch(piece)
            return bytes.fromhex(match.group(1)) if match else piece.replace("▁", " ").encode()
        return self.token_text(token).encode("utf-8")

    @property
    def begins_with(self) -> tuple[int, ...]:
        """The special tokens that the tokenizer adds before a text (BOS), () for none."""
        plain = self.encode("a", special=False)
        full = self.encode("a")
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return tuple(full[:start])
        return ()

    def spellings(self, word: str) -> tuple[tuple[int, ...], ...]:
        """Token sequences of a word: at the start of a text, and inside one (after a space)."""
        bare = word.lstrip()
        found = (tuple(self.encode(text, special=False)) for text in (word, bare, f" {bare}"))
        return tuple(dict.fromkeys(ids for ids in found if ids))


def _load(path: Path, definition: bytes) -> Any:
    from tokenizers import Tokenizer as Backend

    try:
        with without_panic_reports():
            backend = Backend.from_buffer(definition)
            backend.no_truncation()
            backend.no_padding()
            with suppress(Exception):  # of this text; a panic is none, and comes with every text
                backend.encode("a")
        return backend
    except BaseException as error:  # the package raises bare Exception, or a panic, which is none
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise ModelError(f"{path} cannot be read: {one_line(error)}") from None


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
