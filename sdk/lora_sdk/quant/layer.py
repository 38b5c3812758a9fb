"""One layer's parameters in FP32 and which of its matrices the file keeps as one module."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.block import describe, matmuls
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import family_of
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class FileModule:
    """A module of the file: its full name and the canonical matrices that are its rows (three for
    GPT-2's c_attn, else one). `order`: which output of the parts, one behind the other, each row
    is."""

    name: str
    parts: tuple[str, ...]
    order: NDArray[np.intp]


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
    return source.full_name(family_of(config).PREFIXES[0])


def file_modules(config: ModelConfig, lead: str) -> list[FileModule]:
    """The modules of the matrices whose canonical name begins with `lead`."""
    parts: dict[str, dict[str, Source]] = {}
    for name, source in family_of(config).sources(config).items():
        if name.startswith(lead) and source.layout in ("io", "oi"):
            module = full_name(config, source).removesuffix(".weight")
            parts.setdefault(module, {})[name] = source
    return [
        FileModule(
            module,
            tuple(found),
            np.argsort(np.concatenate([source.outputs for source in found.values()])),
        )
        for module, found in parts.items()
    ]
