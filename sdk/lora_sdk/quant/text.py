"""Calibration text: what ships, and windows of tokens cut from any."""

from __future__ import annotations

from pathlib import Path

from lora_host.errors import ModelError, RequestError
from lora_sdk.model.spec import ModelConfig
from lora_sdk.text.tokenizer import Tokenizer

WINDOW = 512
LEAST = 32  # tokens that a window has at least
MAX_BYTES = 64 << 20
_NAME = "calibration.txt"


def calibration_path() -> Path:
    """The text that ships: in lora_sdk/models where installed, in models/ of a checkout.
    ModelError where neither is there."""
    package = Path(__file__).resolve().parents[1]
    places = (package / "models" / _NAME, package.parents[1] / "models" / _NAME)
    for path in places:
        if path.is_file():
            return path
    raise ModelError(
        f"the calibration text is not installed: neither {places[0]} nor {places[1]} is there; name"
        " one with --calibration"
    )


def read_text(path: Path) -> str:
    """A UTF-8 file of at most 64 MiB; RequestError says what is wrong with it."""
    if not path.is_file():
        raise RequestError(f"calibration file {path} is not there; expected UTF-8 text")
    if path.stat().st_size > MAX_BYTES:
        raise RequestError(f"calibration file {path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"calibration file {path} is not UTF-8 at byte {error.start}") from None


def windows_of(text: str, tokenizer: Tokenizer, config: ModelConfig, count: int) -> list[list[int]]:
    """At most `count` windows of equal length, spread over the text, each behind the tokenizer's
    own beginning. RequestError: a bad count, or a text of fewer than 32 tokens."""
    if not 1 <= count <= 4096:
        raise RequestError(f"{count} calibration windows; expected 1..4096")
    begin = [*tokenizer.begins_with]
    length = min(WINDOW, config.positions) - len(begin)
    tokens = tokenizer.encode(text, special=False)
    if len(tokens) < LEAST:
        raise RequestError(
            f"the calibration text has {len(tokens)} tokens; expected at least {LEAST}"
        )
    length = min(length, len(tokens))
    count = min(count, len(tokens) // length)
    step = (len(tokens) - length) // max(1, count - 1) if count > 1 else 0
    return [begin + tokens[i * step : i * step + length] for i in range(count)]
