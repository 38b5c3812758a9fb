"""Sizes of a model that timing, capacity and resources need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.model.block import describe
from lora_sdk.model.operations import width

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def block_weights(config: ModelConfig) -> int:
    """Weights of all decoder blocks' matrices."""
    return sum(
        matmul.k * width(config, output.axis)
        for matmul in describe(config).adapted
        for output in matmul.outputs
    )


def head_weights(config: ModelConfig) -> int:
    """Weights of lm_head."""
    return config.embed_dim * config.vocabulary


def kv_elements(config: ModelConfig) -> int:
    """Elements of K and V of one position, all blocks."""
    return 2 * config.layers * config.kv_heads * config.head_dim
