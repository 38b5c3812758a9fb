"""One layer's parameters in FP32 and which of its matrices the file keeps as one module."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.block import describe, matmuls
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import architecture_module
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class FileModule:
    """A module of the file: its full name and the canonical matrices that are its rows, in order
    (three for GPT-2's c_attn, else one)."""

    name: str
    parts: tuple[str, ...]


@dataclass
class Parameters:
    """Canonical name -> FP32: matrices [K, N], vectors [N]. Changed in place by folding."""

    matrices: dict[str, F32] = field(default_factory=dict)
    vectors: dict[str, F32] = field(default_factory=dict)


def roles(config: ModelConfig, layer: int) -> dict[str, tuple[str, ...]]:
    """The inputs of a layer's matmuls: canonical names of the matrices that read each, by the name
    within the layer of the first matmul that does."""
    described = describe(config)
    return {
        matmul.short: described.input_tensors(matmul)
        for matmul in matmuls(described.layers[layer])
        if matmul.gather
    }


def read_parameters(checkpoint: Checkpoint, lead: str) -> Parameters:
    """All matrices and vectors whose canonical name begins with `lead`."""
    found = Parameters()
    for name in checkpoint.names:
        if not name.startswith(lead):
            continue
        if len(checkpoint.shape(name)) == 2:
            found.matrices[name] = checkpoint.matrix(name).astype(np.float32)
        else:
            found.vectors[name] = checkpoint.vector(name).astype(np.float32)
    checkpoint.forget()
    return found


def full_name(config: ModelConfig, source: Source) -> str:
    """The name that the model's own library gives a tensor."""
    prefix = "" if source.tensor == "lm_head.weight" else architecture_module(config).PREFIXES[0]
    return str(prefix + source.tensor)


def file_modules(config: ModelConfig, lead: str) -> list[FileModule]:
    """The modules of the matrices whose canonical name begins with `lead`."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for name, source in architecture_module(config).sources(config).items():
        if name.startswith(lead) and source.layout in ("io", "oi"):
            module = full_name(config, source).removesuffix(".weight")
            parts.setdefault(module, []).append((source.first, name))
    return [
        FileModule(module, tuple(name for _, name in sorted(found)))
        for module, found in parts.items()
    ]
