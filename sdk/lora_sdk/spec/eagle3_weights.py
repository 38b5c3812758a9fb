"""Weights of an EAGLE-3 head under their published names, all checked before the head runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from lora_host.errors import ModelError
from lora_sdk.model.container import RAW_TYPES, Elements
from lora_sdk.model.folder import Tensors, find_tensors
from lora_sdk.model.half import widen
from lora_sdk.spec.eagle3_config import HeadConfig

Floats = NDArray[np.float32]

_LAYER_NAMES = ("midlayer", "layers.0")


@dataclass(frozen=True)
class Embedding:
    """A memory-mapped token embedding in the file's type. Rows are converted when read."""

    raw: Elements
    kind: str

    def rows(self, tokens: NDArray[np.int64]) -> Floats:
        """FP32 [len(tokens), hidden]."""
        found: Floats = widen(self.raw[tokens], self.kind).astype(np.float32)
        return found


@dataclass(frozen=True)
class HeadWeights:
    """Matrices FP32 [inputs, outputs], norms FP32 [hidden], offsets int64 [draft vocabulary]."""

    fuse: Floats
    norm: Floats
    head: Floats
    hidden_norm: Floats
    input_norm: Floats
    mlp_norm: Floats
    qkv: Floats
    out: Floats
    gate_up: Floats
    down: Floats
    offsets: NDArray[np.int64]
    embedding: Embedding


class _File:
    """The head's tensors, each looked up under its published name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors: Tensors = find_tensors(folder)
        self.layer = next(
            (n for n in _LAYER_NAMES if f"{n}.hidden_norm.weight" in self.tensors), _LAYER_NAMES[0]
        )

    def raw(self, name: str, *shape: int) -> tuple[NDArray[Any], str]:
        """A tensor's elements in the file's type, and that type."""
        if name not in self.tensors:
            raise ModelError(
                f"{self.folder}: {name} is missing; expected the tensors of an EAGLE-3 head"
            )
        container, entry = self.tensors[name]
        if entry.shape != shape or entry.kind not in RAW_TYPES:
            raise ModelError(
                f"{self.folder}: {name} is {entry.kind} {list(entry.shape)}; expected F16, BF16 or "
                f"F32 {list(shape)}"
            )
        return container.array(entry), entry.kind

    def vector(self, name: str, size: int) -> Floats:
        return self._checked(name, *self.raw(name, size))

    def matrix(self, name: str, inputs: int, outputs: int) -> Floats:
        """A Linear's weight, transposed to [inputs, outputs]."""
        transposed: Floats = self._checked(name, *self.raw(name, outputs, inputs)).T
        return transposed

    def _checked(self, name: str, raw: NDArray[Any], kind: str) -> Floats:
        values: Floats = widen(raw, kind).astype(np.float32)
        if not np.isfinite(values).all():
            raise ModelError(f"{self.folder}: {name} holds NaN or infinity; expected numbers")
        return values


def load_head(
    folder: Path, config: HeadConfig, auxiliary: int, target_embedding: Embedding
) -> HeadWeights:
    """Read the head in `folder`, which combines `auxiliary` hidden states. `target_embedding` is
    used if the file has none. ModelError names a tensor that is missing, non-finite or of the wrong
    shape."""
    file, layer = _File(folder), config.layer
    hidden, ffn = layer.hidden, layer.ffn
    queries, keys = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    attention, mlp = f"{file.layer}.self_attn", f"{file.layer}.mlp"
    qkv = [
        file.matrix(f"{attention}.{part}_proj.weight", 2 * hidden, outputs)
        for part, outputs in (("q", queries), ("k", keys), ("v", keys))
    ]
    gate_up = [file.matrix(f"{mlp}.{part}_proj.weight", hidden, ffn) for part in ("gate", "up")]
    norms = [
        file.vector(f"{file.layer}.{name}.weight", hidden)
        for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    ]
    return HeadWeights(
        fuse=_contiguous(file.matrix("fc.weight", auxiliary * config.target_hidden, hidden)),
        norm=file.vector("norm.weight", hidden),
        head=_contiguous(file.matrix("lm_head.weight", hidden, config.draft_vocabulary)),
        hidden_norm=norms[0],
        input_norm=norms[1],
        mlp_norm=norms[2],
        qkv=_contiguous(np.concatenate(qkv, axis=1)),
        out=_contiguous(file.matrix(f"{attention}.o_proj.weight", queries, hidden)),
        gate_up=_contiguous(np.concatenate(gate_up, axis=1)),
        down=_contiguous(file.matrix(f"{mlp}.down_proj.weight", ffn, hidden)),
        offsets=_offsets(file, config),
        embedding=_embedding(file, config, target_embedding),
    )


def _contiguous(matrix: Floats) -> Floats:
    return np.ascontiguousarray(matrix)


def _embedding(file: _File, config: HeadConfig, target: Embedding) -> Embedding:
    expected = (config.layer.vocabulary, config.layer.hidden)
    if "embed_tokens.weight" in file.tensors:
        return Embedding(*file.raw("embed_tokens.weight", *expected))
    if target.raw.shape != expected:
        raise ModelError(
            f"{file.folder}: a head of {list(expected)} tokens and columns without an embedding, "
            f"the model's is {list(target.raw.shape)}; expected a head made for this model"
        )
    return target


def _offsets(file: _File, config: HeadConfig) -> NDArray[np.int64]:
    """d2t: offset from each draft token's id to the target's id; 0 if the file has no d2t."""
    count, vocabulary = config.draft_vocabulary, config.layer.vocabulary
    if "d2t" not in file.tensors:
        if count != vocabulary:
            raise ModelError(
                f"{file.folder}: d2t is missing; expected it with {count} of {vocabulary} tokens"
            )
        return np.zeros(count, np.int64)
    path = file.tensors["d2t"][0].path
    try:
        with safe_open(path, "numpy") as opened:
            offsets = np.asarray(opened.get_tensor("d2t"))
    except SafetensorError as error:
        raise ModelError(f"{path}: d2t: {str(error).splitlines()[0]}") from None
    if offsets.dtype != np.int64 or offsets.shape != (count,):
        raise ModelError(
            f"{path}: d2t is {offsets.dtype} {list(offsets.shape)}; expected int64 [{count}]"
        )
    # Compared before the addition: a sum with hostile offsets could overflow.
    ids = np.arange(count)
    if ((offsets < -ids) | (offsets >= vocabulary - ids)).any():
        raise ModelError(f"{path}: d2t points outside the {vocabulary} tokens of the model")
    if len(np.unique(ids + offsets)) != count:
        raise ModelError(f"{path}: d2t gives two draft tokens the same token of the model")
    return offsets
