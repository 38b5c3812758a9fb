"""Operations of one layer with its rounded matrices, inputs and cache, as boards compute it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lora_sdk.model.kv_formats import KvFormat, kv_format
from lora_sdk.model.quantization import AttentionScales, routes
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import F32, attention, head_bias, softmax_times
from lora_sdk.quant.dense import by_head, integer_attention, round_rows, round_to
from lora_sdk.quant.layer import Parameters


def exact_operations(config: ModelConfig, parameters: Parameters) -> RoundedOperations:
    """Operations that round nothing."""
    return RoundedOperations(config, parameters, False, {}, kv_format("fp16"))


class RoundedOperations:
    """`parameters`: with the dequantized matrices. Inputs are rounded by row where `by_row`, except
    those of matrices in `inputs`, which have a static scale. `kv`: the cache's format, `scales`
    those of attention if it has static ones."""

    def __init__(
        self,
        config: ModelConfig,
        parameters: Parameters,
        by_row: bool,
        inputs: Mapping[str, np.float32],
        kv: KvFormat,
        scales: AttentionScales | None = None,
    ) -> None:
        self.config = config
        self._parameters = parameters
        self._by_row = by_row
        self._inputs = inputs
        self._kv = kv
        self._scales = scales

    def linear(self, x: F32, name: str, whole: F32 | None = None) -> F32:
        """x, rounded but for routers and project_out, @ W + bias."""
        if name in self._inputs:
            x = round_to(x, self._inputs[name]) * self._inputs[name]
        elif self._by_row and not routes(name) and name != "project_out":
            x = round_rows(x, whole)
        y: F32 = x @ self._parameters.matrices[name]
        bias = self._parameters.vectors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Attention over K and V as the cache holds them."""
        scale, bias = self.config.attention_scale(layer), head_bias(self.config, q.shape[1])
        window, cap = self.config.window(layer), self.config.score_cap
        sinks = self.vector(f"layer.{layer}.sinks")
        if self._scales is not None:
            return integer_attention(
                q, k, v, scale, self._scales, bias=bias, window=window, cap=cap, sinks=sinks
            )
        if self._kv.by_head:
            k, v = by_head(k), by_head(v)
        return attention(q, k, v, scale, softmax_times, bias, window, cap, sinks)

    def store(self, x: F32) -> F32:
        """Unchanged: FP16's steps are far finer than those of the integers."""
        return x

    def vector(self, name: str) -> F32 | None:
        """A norm's parameter."""
        return self._parameters.vectors.get(name)
