"""Models of the Hugging Face hub by name, from the local cache. Nothing is downloaded."""

from __future__ import annotations

import re
from pathlib import Path

from lora_host.errors import ModelError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(text: str) -> bool:
    """Whether `text` has the form ORG/NAME."""
    return _NAME.fullmatch(text) is not None


def find_snapshot(name: str) -> Path:
    """The folder of the cached snapshot of ORG/NAME, of its main branch. ModelError with the
    command that downloads it if there is none."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError, ValueError):
        raise ModelError(
            f"model {name}: no such folder, and no snapshot in the cache "
            f"{constants.HF_HUB_CACHE}; download it with: hf download {name}",
            usage=True,
        ) from None
