"""`lora inspect` of a model folder: its tensors' types, and what boards make of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from lora_host.errors import OverlayError
from lora_host.overlay import Overlay
from lora_sdk.cli.inspect_gguf import boards_table, on_boards
from lora_sdk.model.model_files import model_files

LONGEST = 200  # of a field that is shown


def inspect_folder(path: Path, overlay: Overlay | None) -> dict[str, Any]:
    """The folder's facts; `refused` says why boards do not run it. ModelError: damaged files."""
    if overlay is not None:
        raise OverlayError(f"{path}: is a model; --overlay compares containers only", usage=True)
    files = model_files(path)
    tensors = {name: entry for name, (_, entry) in files.tensors().items()}
    return {
        "folder": str(path),
        "bytes": sum(entry.bytes for entry in tensors.values()),
        "config": files.config_values(),
        "tensors": {
            name: {"type": entry.kind, "shape": list(entry.shape)}
            for name, entry in tensors.items()
        },
        "types": dict(Counter(entry.kind for entry in tensors.values())),
        **on_boards(path),
    }


def folder_table(facts: dict[str, Any]) -> str:
    """The facts as text."""
    lines = [f"{facts['folder']}: model folder, {facts['bytes'] / 1e6:.1f} MB of tensors"]
    lines += [f"  {key:<40} {_short(value)}" for key, value in facts["config"].items()]
    return "\n".join([*lines, *boards_table(facts)])


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... (--json has all)"
