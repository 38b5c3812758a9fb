"""Where a tokenizer is defined: the files of a Hugging Face folder, or the keys of a GGUF file."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from lora_host.errors import ModelError
from lora_host.regular_file import read_regular
from lora_sdk.gguf.file import GgufFile, is_gguf
from lora_sdk.gguf.tokenizer import GgufTokenizer, InexactTokenizer
from lora_sdk.text.panics import without_panic_reports
from lora_sdk.text.tokenizer_limits import check_limits

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
MAX_CONFIG_BYTES = 16 << 20
MAX_TOKENIZER_BYTES = 256 << 20


class TokenizerFiles(Protocol):
    """A tokenizer's definition."""

    @property
    def path(self) -> Path:
        """The file, for messages."""

    def definition(self) -> bytes:
        """tokenizer.json, or what it would hold. ModelError: there is none, or it is unusable."""

    def backend(self) -> Any:
        """The package's tokenizer of the definition; any exception of its own where it refuses
        it."""

    def settings(self) -> dict[str, Any]:
        """tokenizer_config.json's object, or what it would hold, {} without one."""


def tokenizer_files(model: Path) -> TokenizerFiles:
    """Those of a model folder or a GGUF file. ModelError: a folder has none."""
    if is_gguf(model):
        return GgufTokenizerFiles(model)
    if not (model / TOKENIZER).exists():
        raise ModelError(
            f"{model} has no {TOKENIZER}; expected the file of the tokenizers package, or "
            "token ids instead of text"
        )
    return FolderTokenizerFiles(model)


class FolderTokenizerFiles:
    """Those of a folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / TOKENIZER

    def definition(self) -> bytes:
        """tokenizer.json."""
        return read_tokenizer(self.path)

    def backend(self) -> Any:
        """Of tokenizer.json."""
        return _parsed(self.definition())

    def settings(self) -> dict[str, Any]:
        """tokenizer_config.json."""
        return read_json_object(self.path.parent / SETTINGS)


class GgufTokenizerFiles:
    """Those of a GGUF file. Where its keys are not exact, tokenizer.json beside it defines the
    tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _keys(self) -> GgufTokenizer:
        return GgufTokenizer(GgufFile(self.path).metadata)

    def definition(self) -> bytes:
        """By the keys, or the file beside."""
        try:
            return json.dumps(self._keys.definition()).encode()
        except InexactTokenizer:
            beside = self.path.parent / TOKENIZER
            if not beside.exists():
                raise
            return read_tokenizer(beside)

    def backend(self) -> Any:
        """By the keys, or the file beside. Merges are not written as JSON to be parsed again: of
        Gemma's 515,000 that takes seconds."""
        try:
            return _made(self._keys.definition())
        except InexactTokenizer:
            return _parsed(self.definition())

    def settings(self) -> dict[str, Any]:
        """By the keys."""
        return self._keys.settings()


def _parsed(definition: bytes) -> Any:
    from tokenizers import Tokenizer as Backend

    with without_panic_reports():
        return Backend.from_buffer(definition)


def _made(definition: dict[str, Any]) -> Any:
    """The same as of the definition's JSON, from its parts."""
    from tokenizers import AddedToken, models

    model = dict(definition["model"])
    if model["type"] != "BPE":
        return _parsed(json.dumps(definition).encode())
    empty = {**definition, "added_tokens": [], "model": {**model, "vocab": {}, "merges": []}}
    backend = _parsed(json.dumps(empty).encode())
    del model["type"]
    given = {key: value for key, value in model.items() if value is not None}
    with without_panic_reports():
        backend.model = models.BPE(**given)
    added = definition["added_tokens"]
    fields = [{name: value for name, value in token.items() if name != "id"} for token in added]
    backend.add_tokens([AddedToken(**one) for one in fields])
    return backend


def read_tokenizer(path: Path) -> bytes:
    """The bytes of a tokenizer.json. ModelError: it cannot be read, is too large, or makes too much
    of a text (`check_limits`)."""
    try:
        data = read_regular(path, MAX_TOKENIZER_BYTES)
        check_limits(data)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # the package's, of an expression, are bare
        raise ModelError(f"{path} cannot be read: {one_line(error)}") from None
    return data


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, {} if there is no file. ModelError names a bad file."""
    try:
        value = json.loads(read_regular(path, MAX_CONFIG_BYTES).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {one_line(error)}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds a {type(value).__name__}; expected a JSON object")
    return value


def one_line(error: object) -> str:
    """The text of an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__
