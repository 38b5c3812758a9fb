"""Where the source of what is installed lies: some parts are made there, by `make`."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "lora-fpga"


def source_tree(package: Path | None = None) -> Path | None:
    """The checkout that `package` (None: lora_host) lies in, or that pip says it was installed
    from, if it is still there. None: neither."""
    package = package or Path(__file__).resolve().parents[1]
    found = [*package.parents[:3], *_installed_from()]
    return next((folder for folder in found if _is_tree(folder)), None)


def made_in_tree(command: str, package: Path | None = None) -> str:
    """The command with the folder that it is for."""
    tree = source_tree(package)
    if tree is not None:
        return f"cd {tree} && {command}"
    return f"in the source tree that this {DISTRIBUTION} was built from: {command}"


def _is_tree(folder: Path) -> bool:
    return (folder / "Makefile").is_file() and (folder / "csrc" / "include").is_dir()


def _installed_from() -> list[Path]:
    """What PEP 610 records of a folder that was installed."""
    try:
        text = distribution(DISTRIBUTION).read_text("direct_url.json")
        url = json.loads(text)["url"] if text else ""
    except (PackageNotFoundError, ValueError, KeyError, TypeError):
        return []
    parts = urlsplit(url) if isinstance(url, str) else None
    local = parts is not None and parts.scheme == "file"
    return [Path(unquote(parts.path))] if local and parts is not None else []
