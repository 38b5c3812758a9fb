"""Models of the Hugging Face hub by name, from the local cache. Nothing is downloaded."""

from __future__ import annotations

import re
from pathlib import Path

from lora_host.errors import ModelError
from lora_host.regular_file import names_no_file, read_regular

_COMMIT = re.compile(r"[0-9A-Za-z]{1,64}")
_LONGEST = 128  # bytes of a file that names a commit
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(text: str) -> bool:
    """Whether `text` has the form ORG/NAME."""
    return _NAME.fullmatch(text) is not None


def find_snapshot(name: str) -> Path:
    """The folder of the cached snapshot of ORG/NAME, of its main branch. ModelError: with the
    command that downloads it if there is none, or what is wrong with the branch's file."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE).expanduser() / f"models--{name.replace('/', '--')}"
    reference = folder / "refs" / "main"
    try:
        commit = read_regular(reference, _LONGEST).decode("ascii", "replace").strip()
    except OSError as error:
        if not names_no_file(error) or reference.is_dir():
            raise ModelError(f"{reference}: {error.strerror or error}") from None
        commit = ""
    if commit and not _COMMIT.fullmatch(commit):
        raise ModelError(f"{reference}: holds {commit!r:.60}; expected the name of a commit")
    snapshot = folder / "snapshots" / commit
    if not commit or not snapshot.is_dir():
        raise ModelError(
            f"model {name}: no such folder, and no snapshot in the cache "
            f"{constants.HF_HUB_CACHE}; download it with: hf download {name}",
            usage=True,
        )
    return snapshot
