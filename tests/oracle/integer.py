"""The integer paths, written only from docs/numbers.md, 6 with Python's and NumPy's integers: no
blocks, no float64 sums, no code of the package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.spec import ModelConfig
from tests.oracle.adapted import Adapted, Factors
from tests.oracle.arithmetic import (
    F32,
    exp,
    product,
    segments,
    soft_cap,
    store,
    tree,
    visible_to,
)
from tests.oracle.forward import Oracle

I64 = NDArray[np.int64]
XScale = np.float32 | Literal["row"]


@dataclass(frozen=True)
class Int8Matrix:
    """w = values * scales: int [K, N], FP32 [N]; x's static scale, or "row": one per row."""

    values: I64
    scales: F32
    x_scale: XScale


@dataclass(frozen=True)
class Int4Matrix:
    """w = (values - zeros) * scales in groups along K: int [K, N], FP16 and int [K/group, N]. With
    `x_scale` activations are INT8 ("row": by a scale per row), without they stay FP16. Row i of
    values belongs to input `order[i]`."""

    values: I64
    scales: NDArray[np.float16]
    zeros: I64
    group: int
    x_scale: XScale | None
    order: I64 | None


@dataclass(frozen=True)
class KvScales:
    """Static scales of q, k and v of one layer."""

    q: np.float32
    k: np.float32
    v: np.float32


Matrix = Int8Matrix | Int4Matrix


def quantize(x: F32, scale: np.float32) -> I64:
    """clamp(rint(x * FP32(1/scale)), -127, 127), half to even."""
    inverse = np.float32(1) / scale
    return np.clip(np.rint(x * inverse), -127, 127).astype(np.int64)


def quantize_rows(x: F32) -> tuple[I64, F32]:
    """Each row by the largest of its own magnitudes: the integers, and the scales [rows, 1]."""
    integers, scales = [], []
    for row in x:
        largest = np.abs(row).max()
        inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
        integers.append(np.clip(np.rint(row * inverse), -127, 127).astype(np.int64))
        scales.append([largest * (np.float32(1) / np.float32(127))])
    return np.array(integers), np.array(scales, np.float32)


def int8_product(x: F32, w: Int8Matrix, rows: tuple[I64, F32] | None = None) -> F32:
    """FP32(acc) * FP32(s_x*s_w), or (FP32(acc)*s_w)*s_x where each row has its own s_x; `rows`: the
    integers and scales of quantize_rows, if they are not x's alone."""
    if w.x_scale == "row":
        x8, own = rows or quantize_rows(x)
        by_column: F32 = (x8 @ w.values).astype(np.float32) * w.scales
        return by_column * own
    acc = quantize(x, w.x_scale) @ w.values
    assert np.abs(acc).max() < 1 << 31
    scaled: F32 = acc.astype(np.float32) * (w.x_scale * w.scales)
    return scaled


def int4_product(x: F32, w: Int4Matrix, rows: tuple[I64, F32] | None = None) -> F32:
    """Groups of INT8 sums, or a matmul with FP16 weights if activations are FP16."""
    if w.order is not None:
        x = x[:, w.order]
    if w.x_scale is None:
        return product(x, dequantized(w))
    if w.x_scale == "row":
        x8, own = rows or quantize_rows(x)
    else:
        x8, own = quantize(x, w.x_scale), np.full((len(x), 1), w.x_scale)
    sums = []
    for segment in segments(x.shape[1]):
        total = np.zeros((len(x), w.values.shape[1]), np.float32)
        for group in sorted({k // w.group for k in segment}):
            inside = [k for k in segment if k // w.group == group]
            part = x8[:, inside] @ w.values[inside]
            part = part - x8[:, inside].sum(axis=1)[:, None] * w.zeros[group]
            total = total + part.astype(np.float32) * w.scales[group].astype(np.float32)
        sums.append(total)
    joined: F32 = tree(sums, np.add)
    return joined * own


def integer_product(x: F32, w: Matrix, rows: tuple[I64, F32] | None = None) -> F32:
    """Of either kind of matrix."""
    return int8_product(x, w, rows) if isinstance(w, Int8Matrix) else int4_product(x, w, rows)


def dequantized(w: Int4Matrix) -> F32:
    """FP16((q - z) * s_w) [K, N], in the order of groups."""
    groups = np.arange(len(w.values)) // w.group
    integers = (w.values - w.zeros[groups]).astype(np.float32)
    return store(integers * w.scales[groups].astype(np.float32))


def attend_int8(
    q: F32,
    k: F32,
    v: F32,
    scales: KvScales,
    factor: float,
    bias: F32 | None = None,
    window: int = 0,
    cap: float = 0,
    sink: np.float32 | None = None,
) -> F32:
    """One head, causal, q, k and v [positions, head_dim] quantized by their static scales. The
    scores are capped if `cap` is not 0; then `bias` [rows, positions] is added to them. `sink`: a
    logit without a position."""
    q8, k8, v8 = quantize(q, scales.q), quantize(k, scales.k), quantize(v, scales.v)
    scale = np.float32(float(scales.q) * float(scales.k) * factor)
    rows = []
    for i, seen in enumerate(visible_to(len(q), window)):
        s = (k8[seen] @ q8[i]).astype(np.float32) * scale
        s = soft_cap(s, cap) if cap else s
        s = s if bias is None else s + bias[i, seen]
        e8 = np.rint(np.float32(127) * exp(s - s.max())).astype(np.int64)
        above = (e8 @ v8[seen]).astype(np.float32)
        below = np.float32(int(e8.sum()))
        if sink is not None:
            below = below + np.float32(127) * exp(sink - s.max())
        rows.append((above / below) * scales.v)
    return store(np.stack(rows))


def through_heads(x: F32) -> F32:
    """K or V of one head [positions, head_dim] as read from an INT8 cache with one scale per
    position: FP16(k8 * z), z = FP16(amax/127)."""
    z = store(np.abs(x).max(axis=1) / np.float32(127))[:, None]
    with np.errstate(divide="ignore"):
        inverse = np.where(z == 0, np.float32(0), np.float32(1) / z)
    k8 = np.clip(np.rint(x * inverse), -127, 127)
    return store(k8 * z)


class Quantized(Oracle):
    """An Oracle with some integer matrices; `kv` is "fp16", "int8" with `scales` by layer,
    or "int8-heads"."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, NDArray[np.float16]],
        matrices: Mapping[str, Matrix],
        kv: str,
        scales: tuple[KvScales, ...],
    ) -> None:
        super().__init__(config, weights)
        self.matrices, self.kv, self.scales = matrices, kv, scales

    def _product(self, x: F32, name: str) -> F32:
        found = self.matrices.get(name)
        return super()._product(x, name) if found is None else integer_product(x, found)

    def _downs(self, x: F32, names: Sequence[str]) -> Sequence[F32]:
        """By a row's own scale, what its experts have made is one row."""
        found = [self.matrices.get(name) for name in names]
        if found[0] is None or found[0].x_scale != "row":
            return super()._downs(x, names)
        x8, own = quantize_rows(x.reshape(1, -1))
        rows = x8.reshape(x.shape)[:, None]
        products = [
            integer_product(x[i : i + 1], w, (rows[i], own))[0] for i, w in enumerate(found)
        ]
        biases = [self.weights.get(f"{name}.bias") for name in names]
        return [y if b is None else y + b for y, b in zip(products, biases, strict=True)]

    def _attend(self, layer: int, head: int, q: F32, k: F32, v: F32) -> F32:
        if self.kv == "int8":
            factor = self.config.attention_factor(layer)
            added = self._bias(head, len(q)), self.config.window(layer), self.config.score_cap
            sink = self._sink(layer, head)
            return attend_int8(q, k, v, self.scales[layer], factor, *added, sink)
        if self.kv == "int8-heads":
            k, v = through_heads(k), through_heads(v)
        return super()._attend(layer, head, q, k, v)


class AdaptedQuantized(Adapted, Quantized):
    """An IntegerOracle with an adapter, which reads the FP16 activation."""

    def __init__(self, quantized: Quantized, factors: Factors) -> None:
        Quantized.__init__(
            self, quantized.config, {}, quantized.matrices, quantized.kv, quantized.scales
        )
        self.weights: Any = quantized.weights
        self.factors = factors
