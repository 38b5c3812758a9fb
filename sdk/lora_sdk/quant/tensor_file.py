"""Writes a safetensors file, with errors as of any other file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from lora_host.writing import writing

_NUMBER = re.compile(r"\(os error (\d+)\)", re.ASCII)  # as Rust ends an error of the system


def save_tensors(
    tensors: Mapping[str, NDArray[Any]], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """OSError names the file if it cannot be written."""
    try:
        with writing(path):
            save_file(dict(tensors), path, metadata=metadata)
    except SafetensorError as error:
        raise _of_system(str(error), path) from None


def _of_system(text: str, path: Path) -> OSError:
    found = _NUMBER.search(text)
    if found is None:
        return OSError(errno.EIO, text, str(path))
    return OSError(int(found[1]), os.strerror(int(found[1])), str(path))
