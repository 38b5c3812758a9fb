"""One layer's parameters in FP32, and the modules of the file that hold its matrices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.block import describe
from lora_sdk.model.config import family_of
from lora_sdk.model.operations import matmuls
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

F32 = NDArray[np.float32]


class Weights(Protocol):
    """What is rounded: a checkpoint of FP16, or one whose matrices were changed first, in FP32."""

    @property
    def config(self) -> ModelConfig: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    def has(self, name: str) -> bool: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def matrix(self, name: str) -> NDArray[Any]: ...
    def vector(self, name: str) -> NDArray[Any]: ...
    def table(self, name: str) -> NDArray[np.float16]: ...
    def forget(self) -> None: ...


@dataclass(frozen=True)
class FileModule:
    """A module of the file: its full name, and the canonical matrices that form its rows (three for
    GPT-2's c_attn, else one). `order`: for each row, the index of its output in the concatenated
    parts."""

    name: str
    parts: tuple[str, ...]
    order: NDArray[np.intp]


@dataclass
class Parameters:
    """Canonical name -> FP32: matrices [K, N], vectors [N]. Changed in place by folding."""

    matrices: dict[str, F32] = field(default_factory=dict)
    vectors: dict[str, F32] = field(default_factory=dict)


def roles(config: ModelConfig, layer: int) -> dict[str, tuple[str, ...]]:
    """The inputs of a layer's matmuls. Key: name within the layer of the first matmul that reads
    the input. Value: canonical names of all matrices that read it."""
    described = describe(config)
    return {
        matmul.short: described.input_tensors(matmul)
        for matmul in matmuls(described.layers[layer])
        if matmul.gather
    }


def read_parameters(checkpoint: Weights, *leads: str) -> Parameters:
    """All matrices and vectors whose canonical name begins with one of `leads`."""
    found = Parameters()
    for name in checkpoint.names:
        if not name.startswith(leads):
            continue
        if len(checkpoint.shape(name)) == 2:
            found.matrices[name] = checkpoint.matrix(name).astype(np.float32)
        else:
            found.vectors[name] = checkpoint.vector(name).astype(np.float32)
    checkpoint.forget()
    return found


def full_name(config: ModelConfig, source: Source) -> str:
    """The name of a tensor in the model's original library."""
    return source.full_name(family_of(config).PREFIXES[0])


def head_module(config: ModelConfig) -> str:
    """lm_head's name in the model's original library, also where it is tied."""
    sources = family_of(config).sources(replace(config, tied=False))
    return full_name(config, sources["lm_head"]).removesuffix(".weight")


def file_modules(config: ModelConfig, lead: str) -> list[FileModule]:
    """The modules of all matrices whose canonical name begins with `lead`."""
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
