"""Variants quantized by the package, calibrated on random tokens: small folders as written by
`lora quantize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import Report, quantize
from lora_sdk.quant.recipe import Recipe
from tests.variants import variant, write_checkpoint


def random_windows(vocabulary: int, count: int = 4, length: int = 24) -> list[list[int]]:
    """`count` windows of tokens, the same every time."""
    draw = np.random.default_rng(5).integers(0, vocabulary, (count, length))
    found: list[list[int]] = draw.tolist()
    return found


def write_quantized(name: str, folder: Path, recipe: Recipe) -> Report:
    """The variant `name` in `folder`/plain and, quantized, in `folder`/quantized."""
    plain = write_checkpoint(variant(name), folder / "plain", "x3")
    windows = random_windows(load_config(plain).vocabulary)
    return quantize(plain, folder / "quantized", recipe, windows)
