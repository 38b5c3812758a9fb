"""`lora inspect` of a GGUF file: its keys, its tensors' types, and what boards make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError, OverlayError
from lora_host.overlay import Overlay
from lora_sdk.gguf.parts import open_gguf
from lora_sdk.gguf.values import Value, shown
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.quantization import MatrixFormat


def inspect_gguf(path: Path, overlay: Overlay | None) -> dict[str, Any]:
    """The file's facts; `refused` says why boards do not run it. ModelError: a damaged file."""
    if overlay is not None:
        raise OverlayError(f"{path}: is a model; --overlay compares containers only", usage=True)
    file = open_gguf(path)
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
        **on_boards(path),
    }


def on_boards(path: Path) -> dict[str, Any]:
    """What boards make of a model, or why they refuse it."""
    try:
        checkpoint = Checkpoint.open(path)
    except ModelError as error:
        return {"refused": str(error)}
    quantization = checkpoint.config.quantization
    return {
        "model_type": checkpoint.config.architecture,
        "bytes_on_boards": checkpoint.bytes,
        "matrices": {} if quantization is None else _counts(quantization.formats.values()),
    }


def gguf_table(facts: dict[str, Any]) -> str:
    """The facts as text."""
    lines = [f"{facts['file']}: GGUF, {facts['bytes'] / 1e6:.1f} MB"]
    lines += [f"  {key:<40} {shown(value)}" for key, value in facts["keys"].items()]
    return "\n".join([*lines, *boards_table(facts)])


def boards_table(facts: dict[str, Any]) -> list[str]:
    """Tensors by type, and what boards make of them, as text."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["types"].items())
    lines = [f"tensors         {kinds}"]
    if "refused" in facts:
        return [*lines, f"on the boards   no: {facts['refused']}"]
    return [
        *lines,
        f"on the boards   {facts['model_type']}, {facts['bytes_on_boards'] / 1e6:.1f} MB, "
        f"{_shown(facts['matrices'])}",
    ]


def _counts(formats: Iterable[MatrixFormat]) -> dict[str, int]:
    return dict(Counter(map(str, formats)))


def _shown(matrices: dict[str, int]) -> str:
    counts = [f"{count} matrices {form}" for form, count in matrices.items()]
    return ", ".join([*counts, "the others FP16"]) if counts else "all matrices FP16"


def _json(value: Value) -> object:
    return value if isinstance(value, int | float | str) else shown(value)
