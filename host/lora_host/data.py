"""Folders of overlays and board files: in the installed package, or in the checkout."""

from __future__ import annotations

from pathlib import Path

_INSTALLED = {"overlays": "overlays", "boards": "boards_data"}


def data_folder(name: str) -> Path:
    """Folder of `name`: "overlays" or "boards". FileNotFoundError if it is not installed."""
    package = Path(__file__).resolve().parent
    for folder in (package / _INSTALLED[name], package.parents[1] / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}: not in the installed package nor the checkout; reinstall")
