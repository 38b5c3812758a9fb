"""Calibration text: the included one, and windows of tokens of any text."""

from __future__ import annotations

from pathlib import Path

from lora_host.errors import ModelError, RequestError
from lora_host.regular_file import read_regular
from lora_sdk.model.spec import ModelConfig
from lora_sdk.text.tokenizer import Tokenizer

WINDOW = 512
MIN_TOKENS = 32  # of a window
HELD_OUT = 6  # windows at the end of the text
MAX_BYTES = 64 << 20
_NAME = "calibration.txt"


def calibration_path() -> Path:
    """The included text: in lora_sdk/models if installed, or in models/ of a checkout. ModelError
    if both are missing."""
    package = Path(__file__).resolve().parents[1]
    paths = (package / "models" / _NAME, package.parents[1] / "models" / _NAME)
    for path in paths:
        if path.is_file():
            return path
    raise ModelError(
        f"the calibration text is not installed: neither {paths[0]} nor {paths[1]} exists; name"
        " one with --calibration"
    )


def read_text(path: Path) -> str:
    """The content of a UTF-8 file of at most 64 MiB. RequestError for any other file."""
    try:
        return read_regular(path, MAX_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise RequestError(f"calibration file {path} does not exist; expected UTF-8 text") from None
    except OSError as error:
        raise RequestError(f"calibration file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"calibration file {path} is not UTF-8 at byte {error.start}") from None


Windows = list[list[int]]


def windows_of(
    text: str, tokenizer: Tokenizer, config: ModelConfig, count: int
) -> tuple[Windows, Windows]:
    """At most `count` windows of equal length, spread over the text, and those of the text's end,
    at most HELD_OUT, which are held out. Each starts with the BOS token, if any. RequestError: a
    bad count, or a text of fewer than 64 tokens."""
    if not 1 <= count <= 4096:
        raise RequestError(f"{count} calibration windows; expected 1..4096")
    begin = [*tokenizer.begins_with]
    tokens = tokenizer.encode(text, special=False)
    if len(tokens) < 2 * MIN_TOKENS:
        raise RequestError(
            f"the calibration text has {len(tokens)} tokens; expected at least {2 * MIN_TOKENS}"
        )
    length = min(WINDOW, config.positions) - len(begin)
    kept = min(HELD_OUT * length, len(tokens) // 4) // MIN_TOKENS * MIN_TOKENS
    tokens, last = tokens[:-kept], tokens[-kept:]
    held = [begin + last[i : i + length] for i in range(0, kept, length)]
    length = min(length, len(tokens))
    count = min(count, len(tokens) // length)
    step = (len(tokens) - length) // max(1, count - 1) if count > 1 else 0
    return [begin + tokens[i * step : i * step + length] for i in range(count)], held


def scored_bytes(tokenizer: Tokenizer, window: list[int]) -> int:
    """Bytes of the text of a window but its first token."""
    return len(tokenizer.decode(window[1:]).encode())
