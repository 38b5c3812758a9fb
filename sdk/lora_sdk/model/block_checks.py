"""What layers with experts, or without attention, cannot be combined with. Each is a ModelError."""

from __future__ import annotations

from lora_host.errors import ModelError
from lora_sdk.model.quantization import FP16, Quantization, kv_of
from lora_sdk.model.spec import ExpertConfig, ModelConfig, RecurrentConfig

MAX_NORM_GROUPS = 16
"""Each is a command (plan/control.py)."""


def check_recurrent(config: ModelConfig, recurrent: RecurrentConfig) -> None:
    """Boards share heads: each KV head and each query head has its part."""
    if kv_of(config).quantized:
        raise ModelError("layers without attention with an INT8 KV cache; expected FP16: open"
                         " the model with kv='fp16'")  # fmt: skip
    if config.residual != "sequential":
        raise ModelError("layers without attention with a parallel residual; expected sequential")
    groups = recurrent.key_heads
    shared = recurrent.kind == "selective_scan" and groups and config.kv_heads % groups == 0
    if recurrent.normed and (config.heads % groups or groups > MAX_NORM_GROUPS):
        raise ModelError(f"{groups} groups of a scan's norm; expected up to {MAX_NORM_GROUPS} that"
                         f" share {config.heads} query heads evenly")  # fmt: skip
    for count in (recurrent.values, 0 if shared else groups, recurrent.value_heads):
        if count % config.kv_heads:
            raise ModelError(f"{count} columns or heads of a layer without attention; expected"
                             f" a multiple of {config.kv_heads} KV heads")  # fmt: skip
    if recurrent.values % config.heads:
        raise ModelError(f"{recurrent.values} columns of a layer without attention; expected a"
                         f" multiple of {config.heads} query heads")  # fmt: skip


def check_experts(config: ModelConfig) -> None:
    """Experts are gated by SiLU, in layers one after the other. Routers are FP16, and no expert has
    its inputs in an order of its own."""
    if config.experts is None:
        return
    plain = config.gated and not config.mlp_bias and config.residual == "sequential"
    if not plain or config.activation != "silu":
        raise ModelError("experts with biases, without SwiGLU or with a parallel residual;"
                         " expected SwiGLU without biases, sequential")  # fmt: skip
    for layer in sorted(config.experts.layers):
        _check_formats(config, layer, config.experts)


def _check_formats(config: ModelConfig, layer: int, experts: ExpertConfig) -> None:
    found = config.quantization or Quantization("fp16")
    routers = (f"layer.{layer}.router", f"layer.{layer}.shared_gate")
    form = found.fused(routers[: 1 + experts.shared_gate])
    if form != FP16:
        raise ModelError(f"{routers[0]}: is {form}; expected a router in FP16, BF16 or FP32:"
                         " add it to ignore")  # fmt: skip
    first = f"layer.{layer}.expert.0.up"
    if first in found.act_order:
        raise ModelError(f"{first}: experts with their inputs in an order of their own"
                         " (act-order) are not supported; expected plain groups")  # fmt: skip
