"""Reading a folder's JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError
from lora_host.regular_file import read_regular

MAX_JSON_BYTES = 16 << 20


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of at most 16 MiB; ModelError names the file."""
    try:
        value = json.loads(read_regular(path, MAX_JSON_BYTES).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(
            f"{path}: not found, expected a Hugging Face model folder", usage=True
        ) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path}: found a {type(value).__name__}, expected a JSON object")
    return value
