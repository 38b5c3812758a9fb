"""`lora inspect` of a GGUF file: its keys, its tensors' types, and what boards make of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from lora_host.errors import OverlayError
from lora_host.overlay import Overlay
from lora_sdk.gguf.file import GgufFile
from lora_sdk.gguf.values import Value, shown
from lora_sdk.model.checkpoint import Checkpoint


def inspect_gguf(path: Path, overlay: Overlay | None) -> dict[str, Any]:
    """The file's facts. ModelError: a damaged file, or a model that is not supported."""
    if overlay is not None:
        raise OverlayError(f"{path}: is a model; --overlay compares containers only", usage=True)
    file = GgufFile(path)
    checkpoint = Checkpoint.open(path)
    formats = (
        [] if checkpoint.config.quantization is None else checkpoint.config.quantization.formats
    )
    counts = Counter(tensor.type.name for tensor in file.tensors.values())
    return {
        "file": str(path),
        "bytes": file.bytes,
        "keys": {key: _json(value) for key, value in file.metadata.values.items()},
        "tensors": {
            tensor.name: {"type": tensor.type.name, "shape": list(tensor.shape)}
            for tensor in file.tensors.values()
        },
        "types": dict(counts),
        "model_type": checkpoint.config.architecture,
        "bytes_on_boards": checkpoint.bytes,
        "w4a16_matrices": len(formats),
    }


def gguf_table(facts: dict[str, Any]) -> str:
    """The facts as text."""
    lines = [f"{facts['file']}: GGUF, {facts['bytes'] / 1e6:.1f} MB"]
    lines += [f"  {key:<40} {shown(value)}" for key, value in facts["keys"].items()]
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["types"].items())
    lines.append(f"tensors         {kinds}")
    lines.append(
        f"on the boards   {facts['model_type']}, {facts['bytes_on_boards'] / 1e6:.1f} MB, "
        f"{facts['w4a16_matrices']} matrices W4A16, the others FP16"
    )
    return "\n".join(lines)


def _json(value: Value) -> object:
    return value if isinstance(value, int | float | str) else shown(value)
