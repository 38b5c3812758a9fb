"""A model of a published shape with few layers, whose weights repeat a pool of random values: for
measurements, without files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.block import describe
from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import (
    ActivationScales,
    AttentionScales,
    MatrixFormat,
    Quantization,
    format_of,
    unit_scales,
)
from lora_sdk.model.shapes import find_config
from lora_sdk.model.spec import ModelConfig

GROUP = 128
SCHEMES: dict[str, tuple[MatrixFormat, KvKind]] = {
    "w4a8": (MatrixFormat("w4a8", GROUP), "int8-heads"),
    "w8a8": (MatrixFormat("int8"), "int8"),
    "fp16": (MatrixFormat("fp16"), "fp16"),
}
INPUT = np.float32(0.03)


class RandomSource:
    """A Source (see lora_prefill/exact/weights.py); lm_head is FP16."""

    def __init__(self, shape: str, layers: int, scheme: str) -> None:
        form, kv = SCHEMES[scheme]
        config = replace(find_config(shape), layers=layers)
        names = [name for one in describe(config).matmuls for name in one.tensors]
        formats = {} if scheme == "fp16" else {n: form for n in names if n.startswith("layer.")}
        self.config: ModelConfig = replace(config, quantization=Quantization("random", formats, kv))
        self._shapes = dict(_shapes(config))
        self._pool = np.random.default_rng(3)

    def _drawn(
        self, draw: Callable[[np.random.Generator], NDArray[Any]], *shape: int
    ) -> NDArray[Any]:
        return np.resize(draw(self._pool), shape)

    def matrix(self, name: str) -> NDArray[np.float16]:
        return self._drawn(_halves, *self._shapes[name])

    def table(self, name: str) -> NDArray[np.float16]:
        return self._drawn(_halves, self.config.vocabulary, self.config.hidden)

    def vector(self, name: str) -> NDArray[np.float16]:
        return np.ones(self.config.hidden, np.float16)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def columns(self, name: str, start: int, stop: int) -> Int4Columns | Int8Columns:
        k = self._shapes[name][0]
        if format_of(self.config, [name]).four_bit:
            scales = np.full((stop - start, k // GROUP), 0.004, np.float16)
            values = self._drawn(
                lambda draw: draw.integers(0, 16, 999_983, np.uint8), stop - start, k
            )
            return Int4Columns(values, scales, np.full(scales.shape, 8, np.uint8))
        values = self._drawn(
            lambda draw: draw.integers(-127, 128, 999_983, np.int8), stop - start, k
        )
        return Int8Columns(values, np.full(stop - start, 0.0003, np.float32))

    def permutation(self, name: str) -> None:
        return None

    def activation_scales(self) -> ActivationScales:
        found = unit_scales(self.config)
        attention = AttentionScales(INPUT, INPUT, INPUT)
        inputs = dict.fromkeys(found.inputs, INPUT)
        return ActivationScales(inputs, (attention,) * len(found.attention))


def _halves(draw: np.random.Generator) -> NDArray[np.float16]:
    return (draw.standard_normal(999_983) * 0.02).astype(np.float16)


def _shapes(config: ModelConfig) -> list[tuple[str, tuple[int, int]]]:
    """[K, N] of each matrix of a LLaMA."""
    hidden, wide, found = (
        config.hidden,
        config.ffn,
        [("lm_head", (config.hidden, config.vocabulary))],
    )
    kv = config.kv_heads * config.head_dim
    for layer in range(config.layers):
        found += [(f"layer.{layer}.{name}", (hidden, hidden)) for name in "qo"]
        found += [(f"layer.{layer}.{name}", (hidden, kv)) for name in "kv"]
        found += [(f"layer.{layer}.{name}", (hidden, wide)) for name in ("gate", "up")]
        found.append((f"layer.{layer}.down", (wide, hidden)))
    return found
