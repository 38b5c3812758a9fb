"""The order of K's columns: boards rotate pairs c and c + head_dim/2, some families' files pair
others (docs/numbers.md, 3.7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.config import family_of
from lora_sdk.model.spec import ModelConfig


def file_columns(config: ModelConfig) -> NDArray[np.intp]:
    """[layers, head_dim]: column c of a head of K on the boards is the checkpoint's [layer][c]."""
    sources = family_of(config).sources(config)
    size = config.head_dim
    columns = np.empty((config.layers, size), np.intp)
    for layer in range(config.layers):
        outputs = sources[f"layer.{layer}.k"].outputs[:size]
        columns[layer] = outputs - outputs.min()
        assert sorted(columns[layer]) == list(range(size))  # a head's outputs lie together
    return columns


def board_columns(config: ModelConfig) -> NDArray[np.intp]:
    """The inverse: [layers, head_dim], the boards' column of each of the checkpoint's."""
    return np.argsort(file_columns(config), axis=1)
