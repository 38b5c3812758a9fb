"""Calibration text: the included one, and windows of tokens of any text."""

from __future__ import annotations

from pathlib import Path

from lora_host.errors import ModelError, RequestError
from lora_host.regular_file import read_regular
from lora_sdk.model.spec import ModelConfig
from lora_sdk.text.tokenizer import Tokenizer

WINDOW = 512
MIN_TOKENS = 32  # of a window
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


def windows_of(text: str, tokenizer: Tokenizer, config: ModelConfig, count: int) -> list[list[int]]:
    """At most `count` windows of equal length, spread over the text. Each starts with the BOS
    token, if any. RequestError: a bad count, or a text of fewer than 32 tokens."""
    if not 1 <= count <= 4096:
        raise RequestError(f"{count} calibration windows; expected 1..4096")
    begin = [*tokenizer.begins_with]
    length = min(WINDOW, config.positions) - len(begin)
    tokens = tokenizer.encode(text, special=False)
    if len(tokens) < MIN_TOKENS:
        raise RequestError(
            f"the calibration text has {len(tokens)} tokens; expected at least {MIN_TOKENS}"
        )
    length = min(length, len(tokens))
    count = min(count, len(tokens) // length)
    step = (len(tokens) - length) // max(1, count - 1) if count > 1 else 0
    return [begin + tokens[i * step : i * step + length] for i in range(count)]
