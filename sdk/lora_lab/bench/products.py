"""Products of two numbers that a row of a model takes: its work in matmuls."""

from __future__ import annotations

from dataclasses import dataclass

from lora_sdk.model.operations import width
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.stage import describe_stage


@dataclass(frozen=True)
class RowProducts:
    """Products with weights: `layers` those of every row, `head` those of rows whose logits are
    wanted alone, which begin behind K and V of the last layer. Attention is left out."""

    layers: int
    head: int

    @property
    def all(self) -> int:
        """Those of a row whose logits are wanted."""
        return self.layers + self.head


def row_products(config: ModelConfig) -> RowProducts:
    """Of one row of a model without experts."""
    layers = head = 0
    for matmul in describe_stage(config, range(config.layers)).matmuls:
        count = matmul.k * sum(width(config, output.axis) for output in matmul.outputs)
        if matmul.selected:
            head += count
        else:
            layers += count
    return RowProducts(layers, head)
