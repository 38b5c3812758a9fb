"""Tensors of families whose q and k are matrices of their own, rotated in halves of a part of each
head."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.model.rope import head_order
from lora_sdk.model.source import Source, biased, reordered, vector
from lora_sdk.model.spec import ModelConfig


def head_norms(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """gamma of q and k, one for all heads, in the same order; none where q and k have no norms."""
    order = _order(config)
    found = {}
    for part in "qk" if config.head_norms == "heads" else "":
        gamma = vector(f"{tensor}.{part}_norm.weight", config.head_dim)
        found[f"{name}.{part}_norm.gamma"] = reordered(gamma, order) if order else gamma
    return found


def _order(config: ModelConfig) -> Sequence[int] | None:
    """The file's column of each of a head; None where they are the same."""
    width = config.rope.width if config.rope is not None else 0
    return head_order(config.head_dim, width, interleaved=False) if width else None


def separate_qkv(config: ModelConfig, name: str, tensor: str) -> dict[str, Source]:
    """Canonical q, k and v of layer `name` in modules `tensor`.q_proj, .k_proj and .v_proj, q and k
    in the order in which boards rotate them."""
    order = _order(config)
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
