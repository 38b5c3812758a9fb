"""Variants with quantized matrices: random weights rounded to integers in every format, as boards
load them and as the oracle computes them. Scales are chosen so that some activations saturate."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lora_host.placing import PackPart
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import (
    ActivationScales,
    AttentionScales,
    MatrixFormat,
    Quantization,
)
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.stored import Stored
from tests.oracle.forward import load_weights
from tests.oracle.integer import Int4Matrix, Int8Matrix, KvScales, Matrix, Quantized, XScale
from tests.variant_tensors import normal


@dataclass(frozen=True)
class Scheme:
    """`kind` of the layers' matrices, `head` of lm_head ("int8": a scale per column), KV cache."""

    kind: str
    group: int | None = None
    head: str = "fp16"
    kv: KvKind = "fp16"
    symmetric: bool = True
    act_order: bool = False
    mixed: bool = False  # layer 1 stays FP16
    dynamic: bool = False  # a scale per row of INT8 inputs


SCHEMES = {
    "w8a8": Scheme("int8", head="int8", kv="int8"),
    "w8a8_heads": Scheme("int8", kv="int8-heads"),
    "w8a8_mixed": Scheme("int8", head="int8", mixed=True),
    "w4a8": Scheme("w4a8", 32, head="int8", symmetric=False, kv="int8-heads"),
    "w4a8_wide": Scheme("w4a8", 128, head="int8"),
    "w4a8_static": Scheme("w4a8", 128, head="int8", kv="int8"),
    "w4a8_order": Scheme("w4a8", 64, symmetric=False, act_order=True),
    "w8a8_dynamic": Scheme("int8", head="int8", dynamic=True),
    "w4a8_dynamic": Scheme("w4a8", 32, kv="int8-heads", dynamic=True),
    "w4a8_dynamic_order": Scheme("w4a8", 32, act_order=True, dynamic=True),
    "w4a16": Scheme("w4a16", 32, symmetric=False),
    "w4a16_order": Scheme("w4a16", 32, act_order=True, kv="int8-heads"),
    "kv_int8": Scheme("fp16", kv="int8"),
    "kv_heads": Scheme("fp16", kv="int8-heads"),
}
MATRICES = ("q", "k", "v", "q_gate", "o", "gate", "up", "down")
INPUT_SCALES = {"o": 0.002, "down": 0.0012}


def _fused(name: str, config: ModelConfig) -> str:
    """Matrices with the same input share its scale and order."""
    head, _, last = name.rpartition(".")
    if head.endswith(".mix") and last != "o":
        beside = config.recurrent is not None and config.recurrent.beside
        return f"{head.removesuffix('.mix') if beside else head}.q"
    mlp = "q" if config.residual == "parallel" else "up"
    return f"{head}.{ {'k': 'q', 'v': 'q', 'q_gate': 'q', 'gate': mlp, 'up': mlp}.get(last, last) }"


class QuantizedModel:
    """A checkpoint with a quantization scheme, for loading. `config` describes the scheme."""

    def __init__(self, folder: Path, scheme: Scheme) -> None:
        self.scheme = scheme
        self._base = Checkpoint.open(folder)
        self.weights = load_weights(self._base)
        formats = {
            name: found for name in self.weights if (found := self._format(name)).kind != "fp16"
        }
        ordered = (name for name, f in formats.items() if scheme.act_order and f.four_bit)
        order = frozenset(name for name in ordered if ".expert." not in name)
        quantization = Quantization("test", formats, scheme.kv, order)
        self.config: ModelConfig = replace(self._base.config, quantization=quantization)
        self.matrices: dict[str, Matrix] = {
            name: self._integers(name, found) for name, found in formats.items()
        }

    def _format(self, name: str) -> MatrixFormat:
        scheme, last = self.scheme, name.rpartition(".")[2]
        if name == "lm_head":
            return MatrixFormat(scheme.head, dynamic=scheme.dynamic and scheme.head == "int8")
        mixes = ".mix." in name and ".taps." not in name and self.weights[name].ndim == 2
        if not (mixes or (last in MATRICES and ".mix." not in name)) or (
            scheme.mixed and name.startswith("layer.1.")
        ):
            return MatrixFormat("fp16")
        k = len(self.weights[name])
        if scheme.group is not None and k % scheme.group:
            return MatrixFormat("fp16")
        return MatrixFormat(scheme.kind, scheme.group, scheme.dynamic)

    def _integers(self, name: str, found: MatrixFormat) -> Matrix:
        weights = self.weights[name].astype(np.float64)
        x_scale = np.float32(INPUT_SCALES.get(name.rpartition(".")[2], 0.021))
        layer = re.sub(r"\.expert\.\d+\.", ".expert.0.", _fused(name, self.config))
        x_scale *= np.float32(1 + len(layer) % 3 / 8)  # of all experts alike
        own: XScale = "row" if found.dynamic else x_scale
        if found.kind == "int8":
            largest = np.abs(weights).max(axis=0 if name == "lm_head" else None)
            scales = np.broadcast_to((largest / 127).astype(np.float32), weights.shape[1])
            values = np.clip(np.rint(weights / scales), -127, 127).astype(np.int64)
            return Int8Matrix(values, np.ascontiguousarray(scales), own)
        assert found.group is not None
        order = None
        if self.scheme.act_order and ".expert." not in name:
            order = np.argsort(
                normal(f"{_fused(name, self.config)}/order", len(weights)), kind="stable"
            )
            weights = weights[order]
        grouped = weights.reshape(-1, found.group, weights.shape[1])
        low, high = grouped.min(axis=1), grouped.max(axis=1)
        if self.scheme.symmetric:
            high = np.abs(grouped).max(axis=1)
            low = -high
        scales16 = ((high - low) / 15).astype(np.float16)
        zeros = np.clip(np.rint(-low / scales16), 0, 15).astype(np.int64)
        if self.scheme.symmetric:
            zeros[:] = 8
        values = np.rint(grouped / scales16[:, None]) + zeros[:, None]
        return Int4Matrix(
            np.clip(values, 0, 15).astype(np.int64).reshape(weights.shape),
            scales16,
            zeros,
            found.group,
            own if found.integer else None,
            order,
        )

    @cached_property
    def attention(self) -> tuple[KvScales, ...]:
        """Static scales of every layer, if attention is INT8."""
        if self.scheme.kv != "int8":
            return ()
        return tuple(
            KvScales(np.float32(0.004 + layer / 1000), np.float32(0.0045), np.float32(0.003))
            for layer in range(self.config.layers)
        )

    def oracle(self) -> Quantized:
        """The independent implementation of this model."""
        return Quantized(self.config, self.weights, self.matrices, self.scheme.kv, self.attention)

    # Methods of lora_sdk.model.checkpoint.Checkpoint.

    def stored(self, name: str) -> Stored:
        assert name not in self.matrices
        return self._base.stored(name)

    def vector(self, name: str) -> NDArray[np.float16]:
        return self._base.vector(name)

    def forget(self) -> None:
        self._base.forget()

    def columns(self, name: str, start: int, stop: int) -> Int8Columns | Int4Columns:
        found = self.matrices[name]
        if isinstance(found, Int8Matrix):
            eight = found.values[:, start:stop].T.astype(np.int8)
            return Int8Columns(np.ascontiguousarray(eight), found.scales[start:stop])
        values, scales, zeros = (
            np.ascontiguousarray(part[:, start:stop].T)
            for part in (found.values, found.scales, found.zeros)
        )
        return Int4Columns(values.astype(np.uint8), scales, zeros.astype(np.uint8))

    def part(self, name: str, start: int, stop: int) -> PackPart:
        return self.columns(name, start, stop).part(name)

    def column_scales(self, name: str, start: int, stop: int) -> NDArray[np.float32] | None:
        return self.columns(name, start, stop).column_scales

    def permutation(self, name: str) -> NDArray[np.uint32] | None:
        found = self.matrices[name]
        order = found.order if isinstance(found, Int4Matrix) else None
        return None if order is None else order.astype(np.uint32)

    def input_scale(self, name: str) -> np.float32:
        found = self.matrices[name].x_scale
        assert isinstance(found, np.float32)
        return found

    def activation_scales(self) -> ActivationScales:
        inputs = {
            name: found.x_scale
            for name, found in self.matrices.items()
            if isinstance(found.x_scale, np.float32)
        }
        attention = tuple(AttentionScales(s.q, s.k, s.v) for s in self.attention)
        return ActivationScales(inputs, attention)


def _x_scale(checkpoint: Checkpoint, name: str, form: MatrixFormat) -> XScale:
    return "row" if form.dynamic else checkpoint.input_scale(name)


def oracle_of(checkpoint: Checkpoint) -> Quantized:
    """The independent implementation of what a quantized checkpoint reads."""
    config, found = checkpoint.config, checkpoint.config.quantization
    assert found is not None
    matrices: dict[str, Matrix] = {}
    for name, form in found.formats.items():
        k, n = checkpoint.shape(name)
        if form.kind == "fp8":
            continue
        if form.kind == "int8":
            eight = checkpoint.columns(name, 0, n)
            assert eight.values.shape == (n, k)
            values = eight.values.T.astype(np.int64)
            matrices[name] = Int8Matrix(values, eight.scales, _x_scale(checkpoint, name, form))
            continue
        four, order = checkpoint.columns(name, 0, n), checkpoint.permutation(name)
        assert form.group is not None
        matrices[name] = Int4Matrix(
            four.values.T.astype(np.int64),
            four.scales.T,
            four.zeros.T.astype(np.int64),
            form.group,
            _x_scale(checkpoint, name, form) if form.integer else None,
            None if order is None else order.astype(np.int64),
        )
    layers = range(config.layers) if found.kv == "int8" else ()
    scales = tuple(checkpoint.attention_scales(layer) for layer in layers)
    eights = {name for name, form in found.formats.items() if form.kind == "fp8"}
    half = {name for name in checkpoint.names if name not in {*matrices, *eights}}
    weights = load_weights(checkpoint, half)
    for name in eights:
        weights[name] = checkpoint.columns(name).dense().T.astype(np.float16)
    return Quantized(
        config,
        weights,
        matrices,
        found.kv,
        tuple(KvScales(s.q, s.k, s.v) for s in scales),
    )
