"""Reading a folder's JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError

MAX_JSON_BYTES = 16 << 20


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of at most 16 MiB; ModelError names the file."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ModelError(f"{path}: larger than {MAX_JSON_BYTES >> 20} MiB, expected JSON")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path}: not found, expected a Hugging Face model folder") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: found a {type(value).__name__}, expected a JSON object")
    return value
