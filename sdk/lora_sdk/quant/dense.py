"""Operations on whole float32 matrices of a checkpoint of any precision: the float reference, or
the result of its integers, rounded where boards round (with another order of sums)."""

from __future__ import annotations

import numpy as np

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.kv_formats import kv_format
from lora_sdk.model.quantization import FP16, AttentionScales, MatrixFormat, routes
from lora_sdk.quant.arithmetic import F32, attention, head_bias, sink_weight, softmax_times

LIMIT = np.float32(127)


def dequantized(checkpoint: Checkpoint, name: str) -> F32:
    """A whole matrix of any format as FP32 [K, N], in the order of its inputs."""
    form = _format(checkpoint, name)
    if form.weights.columns is None:
        return checkpoint.matrix(name).astype(np.float32)
    wide = checkpoint.columns(name).dense()
    if not form.integer:  # multiplied with FP16 inputs as FP16
        wide = wide.astype(np.float16).astype(np.float32)
    order = checkpoint.permutation(name)
    if order is not None:
        unordered = np.empty_like(wide)
        unordered[:, order] = wide
        wide = unordered
    return np.ascontiguousarray(wide.T)


def round_to(x: F32, scale: np.float32 | F32) -> F32:
    """INT8 values of x as FP32: clamp(rint(x/scale), -127, 127), 0 where the scale is 0."""
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0))
    steps: F32 = np.clip(np.rint(x * inverse), -LIMIT, LIMIT)
    return steps


def row_scales(x: F32) -> F32:
    """The INT8 scale of each of the rows x: [rows, 1]."""
    scales: F32 = np.abs(x).max(axis=1, keepdims=True) / LIMIT
    return scales


def round_rows(x: F32, whole: F32 | None = None) -> F32:
    """Rows x [rows, K] as read back from INT8 with a scale each, that of `whole` where they are
    parts of these."""
    scales = row_scales(x if whole is None else whole)
    read: F32 = round_to(x, scales) * scales
    return read


class DenseOperations:
    """Operations of one layer at a time, that of `load`. `rounded` False: float32
    throughout, with inputs and cache not quantized."""

    def __init__(self, checkpoint: Checkpoint, rounded: bool) -> None:
        self.checkpoint = checkpoint
        self.config = checkpoint.config
        self.rounded = rounded
        self._matrices: dict[str, F32] = {}

    def load(self, layer: int | None) -> None:
        """From now on those of a layer, or those outside of layers (None): the others' matrices are
        freed, its own are read when a product first needs them."""
        lead = None if layer is None else f"layer.{layer}."
        self._matrices = {
            name: matrix
            for name, matrix in self._matrices.items()
            if (name.startswith(lead) if lead else not name.startswith("layer."))
        }
        self.checkpoint.forget()

    def _matrix(self, name: str) -> F32:
        """[K, N], kept until another layer is loaded."""
        if name not in self._matrices:
            self._matrices[name] = dequantized(self.checkpoint, name)
        return self._matrices[name]

    def linear(self, x: F32, name: str, whole: F32 | None = None) -> F32:
        """x @ W + bias; with integer inputs, x is rounded first."""
        form = _format(self.checkpoint, name)
        if self.rounded and form.dynamic:
            scales = row_scales(x if whole is None else whole)
            y = (round_to(x, scales) @ self._matrix(name)) * scales
        elif self.rounded and form.integer:
            scale = self.checkpoint.input_scale(name)
            y = (round_to(x, scale) @ self._matrix(name)) * scale
        else:
            y = x @ self._matrix(name)
        bias = self.vector(f"{name}.bias")
        y = y if bias is None else y + bias
        return y if name == "lm_head" or routes(name) else self.store(y)  # in FP32

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Attention with the KV cache format of the configuration."""
        scale, bias = self.config.attention_scale(layer), head_bias(self.config, q.shape[1])
        window, sinks = self.config.window(layer), self.vector(f"layer.{layer}.sinks")
        found = self.config.quantization
        cached = kv_format(found.kv if found is not None and self.rounded else "fp16")
        if cached.static:
            scales = self.checkpoint.attention_scales(layer)
            cap = self.config.score_cap
            return integer_attention(
                q, k, v, scale, scales, bias=bias, window=window, cap=cap, sinks=sinks
            )
        if cached.by_head:
            k, v = by_head(k), by_head(v)
        cap = self.config.score_cap
        return attention(q, k, v, scale, softmax_times, bias, window, cap, sinks)

    def store(self, x: F32) -> F32:
        """FP16 if rounded."""
        return x.astype(np.float16).astype(np.float32) if self.rounded else x

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter or a bias in FP32."""
        if not self.checkpoint.has(name):
            return None
        return self.checkpoint.vector(name).astype(np.float32)


def by_head(x: F32) -> F32:
    """K or V [heads, T, head_dim] read back from INT8 with an FP16 scale per head and token."""
    top = np.abs(x).max(axis=2, keepdims=True)
    scale = (top / LIMIT).astype(np.float16).astype(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    values = np.clip(np.rint(x * inverse), -LIMIT, LIMIT) * scale
    read: F32 = values.astype(np.float16).astype(np.float32)
    return read


def integer_attention(
    q: F32,
    k: F32,
    v: F32,
    scale: np.float32,
    scales: AttentionScales,
    normalized: bool = False,
    bias: F32 | None = None,
    window: int = 0,
    cap: float = 0,
    sinks: F32 | None = None,
) -> F32:
    """INT8 attention [heads, T, head_dim], the last four as `attention` has them:
    weights rint(127*exp(s - m)) divided by their sum. Or, with `normalized`, SmoothQuant's form:
    probabilities in units of 1/127."""
    factor = np.float32(np.float64(scales.q) * np.float64(scales.k) * np.float64(scale))

    def by_sum(s: F32, values: F32, sink: np.float32 | None) -> F32:
        top = s.max(axis=1, keepdims=True)
        e8 = np.rint(LIMIT * np.exp(s - top))
        total = e8.sum(axis=1, keepdims=True) + LIMIT * sink_weight(sink, top)
        weighted: F32 = (e8 @ values) / total * scales.v
        return weighted

    def by_probability(s: F32, values: F32, sink: np.float32 | None) -> F32:
        top = s.max(axis=1, keepdims=True)
        e = np.exp(s - top)
        e8 = np.rint(LIMIT * (e / (e.sum(axis=1, keepdims=True) + sink_weight(sink, top))))
        weighted: F32 = (e8 @ values) * np.float32(scales.v / LIMIT)
        return weighted

    integers = round_to(q, scales.q), round_to(k, scales.k), round_to(v, scales.v)
    soft = by_probability if normalized else by_sum
    return attention(*integers, factor, soft, bias, window, cap, sinks)


def _format(checkpoint: Checkpoint, name: str) -> MatrixFormat:
    found = checkpoint.config.quantization
    return FP16 if found is None else found.format(name)
