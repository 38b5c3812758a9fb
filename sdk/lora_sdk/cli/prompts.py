"""Prompts from the command line: a file, standard input, an option, or a batch of JSON lines."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lora_host.errors import LoraError, RequestError
from lora_host.locale_text import utf8_text
from lora_sdk.sampling import SamplingParams, params_from_mapping

MAX_PROMPT_BYTES = 64 << 20
MAX_LINES = 1 << 18  # of a batch; a line takes a thousand bytes of memory


@dataclass(frozen=True)
class BatchLine:
    """One line of a batch file: `prompt` is text, token ids, or chat messages. A line that cannot
    be run has an `error`."""

    number: int
    params: SamplingParams = field(default_factory=SamplingParams)
    prompt: str | list[int] | None = None
    messages: list[Mapping[str, Any]] | None = None
    error: LoraError | None = None


def read_prompt(source: str) -> str:
    """The text of a prompt file, or of standard input for "-". One final newline is removed.

    RequestError: the file is missing, empty or not UTF-8.
    """
    text = _decode(_read(source), source)
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise RequestError(f"prompt file {name_of(source)} is empty; expected text")
    return text


def argument_text(flag: str, text: str) -> str:
    """The text of a flag. RequestError if its bytes are not UTF-8."""
    text = utf8_text(text)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"the text of {flag} is not UTF-8: byte {ord(text[error.start]) & 0xFF:#04x} at "
            f"{error.start}; convert it"
        ) from None
    return text


def name_of(source: str) -> str:
    """The name of a source in messages."""
    return "standard input" if source == "-" else source


def read_batch(source: str, defaults: Mapping[str, object]) -> list[BatchLine]:
    """Lines of a batch file: a JSON string, or an object with "prompt", "tokens" or "messages" and
    sampling parameters, which override `defaults`. RequestError: the file is missing, empty, or has
    more than MAX_LINES."""
    text = _decode(_read(source), source)
    if (found := text.count("\n")) > MAX_LINES:
        raise RequestError(
            f"batch file {name_of(source)} has {found} lines; expected at most {MAX_LINES}: "
            "split it"
        )
    lines = text.split("\n")
    batch = [
        _batch_line(number, line, defaults)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not batch:
        raise RequestError(f"batch file {name_of(source)} is empty; expected JSON lines")
    return batch


def _batch_line(number: int, line: str, defaults: Mapping[str, object]) -> BatchLine:
    try:
        return _parsed(number, line, defaults)
    except RequestError as error:  # without what it was raised from, which holds the line
        return BatchLine(number, error=RequestError(str(error)))


def _parsed(number: int, line: str, defaults: Mapping[str, object]) -> BatchLine:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the line is not JSON: {error}") from None
    if isinstance(value, str):
        value = {"prompt": value}
    if not isinstance(value, dict):
        raise RequestError(f"the line holds a {type(value).__name__}; expected a string or object")
    given = [key for key in ("prompt", "tokens", "messages") if key in value]
    if len(given) != 1:
        found = " and ".join(given) or "no prompt"
        raise RequestError(f"the line has {found}; expected one of prompt, tokens, messages")
    content = _checked(given[0], value.pop(given[0]))
    params = params_from_mapping({**defaults, **value})
    if given[0] == "messages":
        return BatchLine(number, params, messages=content)
    return BatchLine(number, params, prompt=content)


def _checked(kind: str, content: object) -> Any:
    """A batch line's prompt, tokens or messages, with its type checked."""
    if not isinstance(content, str if kind == "prompt" else list):
        expected = "string" if kind == "prompt" else "list"
        raise RequestError(f"{kind} is {content!r:.60}; expected a {expected}")
    return content


def _read(source: str) -> bytes:
    if source == "-":
        if sys.stdin is None:
            raise RequestError("standard input is closed; expected the prompt there")
        data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    else:
        path = Path(source)
        if not path.exists():
            raise RequestError(f"prompt file {source} does not exist; expected a text file or -")
        if path.is_dir():
            raise RequestError(f"prompt file {source} is a folder; expected a text file")
        try:
            with path.open("rb") as file:
                data = file.read(MAX_PROMPT_BYTES + 1)
        except OSError as error:
            raise RequestError(f"prompt file {source} cannot be read: {error.strerror}") from None
    if len(data) > MAX_PROMPT_BYTES:
        raise RequestError(f"{name_of(source)} has more than {MAX_PROMPT_BYTES >> 20} MiB")
    return data


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{name_of(source)} is not UTF-8: byte {data[error.start]:#04x} at {error.start}; "
            "convert it, for instance with iconv -t utf-8"
        ) from None


def one_source(prompt: str | None, source: str | None, batch: str | None) -> str | None:
    """The source of the prompt: `source`, "-" for standard input if nothing is named and it is a
    pipe or a file, None for the others. RequestError unless there is exactly one source."""
    given: Sequence[str] = [
        name
        for name, value in (("-p", prompt), ("PROMPT_FILE", source), ("--batch", batch))
        if value is not None
    ]
    if not given and _is_piped():
        return "-"
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise RequestError(
            f"a prompt comes from one of PROMPT_FILE, -p, --batch, or a pipe; found {found}"
        )
    return source


def _is_piped() -> bool:
    """Whether standard input is a pipe, socket or file, not a terminal or another device."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or replaced by an object
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
