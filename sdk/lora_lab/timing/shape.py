"""Sizes of a model that timing, capacity and resources need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lora_sdk.model.block import describe
from lora_sdk.model.operations import ExpertMatmul, Matmul, width

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


def block_weights(config: ModelConfig) -> int:
    """Weights of all decoder blocks' matrices."""
    return sum(_weights(config, matmul) for matmul in _of_layers(config))


def read_weights(config: ModelConfig) -> int:
    """Those of them that one row reads: of experts, the chosen ones."""
    return sum(
        _weights(config, matmul) * matmul.chosen // matmul.experts
        if isinstance(matmul, ExpertMatmul)
        else _weights(config, matmul)
        for matmul in _of_layers(config)
    )


def _of_layers(config: ModelConfig) -> Iterator[Matmul]:
    return (matmul for matmul in describe(config).matmuls if matmul.layer is not None)


def _weights(config: ModelConfig, matmul: Matmul) -> int:
    return sum(matmul.k * width(config, output.axis) for output in matmul.outputs)


def head_weights(config: ModelConfig) -> int:
    """Weights of lm_head."""
    return config.embed_dim * config.vocabulary


def kv_elements(config: ModelConfig) -> int:
    """Elements of K and V of one position, all blocks."""
    return 2 * config.layers * config.kv_heads * config.head_dim
