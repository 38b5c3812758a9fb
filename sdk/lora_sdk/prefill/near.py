"""Parts of K and V in other arithmetic than the boards'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_sdk.kv.key_columns import file_columns
from lora_sdk.kv.kv_store import stored
from lora_sdk.model.quantization import AttentionScales, kv_of
from lora_sdk.model.spec import ModelConfig
from lora_sdk.prefill.job import Part

GROUP = 2  # layers that are handed over at once


class NearParts:
    """Makes parts for a model's boards from K and V as its files order them."""

    def __init__(self, config: ModelConfig, scales: Sequence[AttentionScales]) -> None:
        """`scales`: static ones of the boards."""
        self._kind = kv_of(config).name
        self._layers = config.layers
        self._scales = scales
        self._columns = file_columns(config)

    def ends_group(self, layer: int) -> bool:
        """Whether `layer` is the last of those that are handed over together."""
        return layer % GROUP == GROUP - 1 or layer == self._layers - 1

    def part(self, last: int, first_position: int, pairs: Sequence[tuple[Any, Any]]) -> Part:
        """Layers up to `last`, of each K and V, FP32 [KV heads, positions, head_dim]. ModelError:
        FP16 cannot hold a value."""
        layers = range(last + 1 - len(pairs), last + 1)
        k = np.stack(
            [pair[0][..., self._columns[at]] for at, pair in zip(layers, pairs, strict=True)]
        )
        v: NDArray[np.float32] = np.stack([pair[1] for pair in pairs])
        scales = self._scales[layers.start : layers.stop]
        return Part(layers.start, first_position, stored(self._kind, k, v, scales))
