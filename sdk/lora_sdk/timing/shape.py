"""Sizes of a model that timing, capacity and resources need."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def block_weights(config: ModelConfig) -> int:
    """Weights of all decoder blocks' matrices."""
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    up = (2 if config.gated else 1) * config.hidden * config.ffn
    block = config.hidden * (queries + 2 * keys) + queries * config.hidden
    return config.layers * (block + up + config.ffn * config.hidden)


def head_weights(config: ModelConfig) -> int:
    """Weights of lm_head."""
    return config.embed_dim * config.vocabulary


def kv_elements(config: ModelConfig) -> int:
    """Elements of K and V of one position, all blocks."""
    return 2 * config.layers * config.kv_heads * config.head_dim
