"""Tensors of families whose q and k are matrices of their own, rotated in halves of a part of each
head."""

from __future__ import annotations

from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, biased, reordered
from lora_sdk.model.spec import ModelConfig


def separate_qkv(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """Canonical q, k and v of layer `name` in modules `tensor`.q_proj, .k_proj and .v_proj, q and k
    in the order in which boards rotate them."""
    width = config.rope.width if config.rope is not None else 0
    order = head_order(config.head_dim, width, interleaved=False) if width else None
    found: dict[str, Source] = {}
    for part, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
        outputs = heads * config.head_dim
        own = biased(
            f"{name}.{part}", f"{tensor}.{part}_proj", config.hidden, outputs, config.qkv_bias
        )
        if order is not None and part != "v":
            own = {key: reordered(source, order) for key, source in own.items()}
        found |= own
    return found
