"""lm_head and the norm before it: 8 bits per output channel with INT8 inputs, or unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import family_of
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import head_input
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.layer import F32, full_name, head_module, read_parameters
from lora_sdk.quant.modules import Tensors, half, round_head
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.rounding import half_scale, input_scale
from lora_sdk.quant.smooth import choose, divided_gamma, divisors

NAME = "lm_head"
SAMPLE_ROWS, SAMPLE_OUTPUTS = 512, 4096  # on which strengths are compared
CHUNK = 8192  # outputs rounded at once


def head_tensors(
    checkpoint: Checkpoint, recipe: Recipe, streams: Sequence[F32]
) -> tuple[Tensors, dict[str, float]]:
    """The file's tensors of lm_head and of the final norm, and lm_head's relative error. `streams`:
    outputs of the last layer."""
    config = checkpoint.config
    sources = family_of(config).sources(config)
    norm = read_parameters(checkpoint, "final_norm").vectors
    found: Tensors = {}
    error: dict[str, float] = {}
    if recipe.head == "w8":
        operations = DenseOperations(checkpoint, rounded=False)
        operations.load(None)
        x = np.concatenate([head_input(x, config, operations) for x in streams])
        w = np.ascontiguousarray(checkpoint.matrix(NAME).T, np.float32)
        if recipe.smooth and norm and config.embed_dim == config.hidden:
            s = _divisor(x, w)
            x, w = x / s, w * s
            norm = {name: _divided(name, vector, s, config) for name, vector in norm.items()}
        module = head_module(config)
        tensors, error = _rounded(x, w, module)
        found |= tensors
        if not recipe.dynamic:
            scale = input_scale(x, np.square(w).sum(axis=0))
            found[f"{module}.input_scale"] = np.array([scale], np.float32)
    elif not config.tied:
        found[f"{head_module(config)}.weight"] = np.ascontiguousarray(checkpoint.matrix(NAME).T)
    if checkpoint.has(f"{NAME}.bias"):
        tensor = full_name(config, sources[f"{NAME}.bias"])
        found[tensor] = checkpoint.vector(f"{NAME}.bias")
    for name, vector in norm.items():
        tensor = full_name(config, sources[name])
        found[tensor] = half(tensor, vector)
    return found, error


def _divided(name: str, vector: F32, s: F32, config: ModelConfig) -> F32:
    """The final norm's gamma or beta with s folded in."""
    return divided_gamma(vector, s, config.one_plus and name.endswith(".gamma"))


def _divisor(x: F32, w: F32) -> F32:
    few = x[:: max(1, len(x) // SAMPLE_ROWS)]
    some = w[:: max(1, len(w) // SAMPLE_OUTPUTS)]
    top_x, top_w = np.abs(x).max(axis=0), np.abs(w).max(axis=0)
    exact = few @ some.T

    def loss(s: F32) -> float:
        scale = half_scale(np.abs(x / s).max() / np.float32(127))
        wide = some * s
        steps = half_scale(np.abs(wide).max(axis=1, keepdims=True) / np.float32(127))
        rounded = np.rint(few / s / scale) * scale @ (np.rint(wide / steps) * steps).T
        return float(np.square(rounded - exact).sum(dtype=np.float64))

    return choose(divisors(top_x, np.abs(x).mean(axis=0), top_w), x.shape[1], loss).divisor


def _rounded(x: F32, w: F32, module: str) -> tuple[Tensors, dict[str, float]]:
    importance = np.square(x).mean(axis=0)
    parts = [round_head(w[i : i + CHUNK], importance) for i in range(0, len(w), CHUNK)]
    chunks = [part.tensors(module) for part in parts]
    found: Tensors = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
    lost = sum(
        float((np.square(part.weights() - w[i * CHUNK : (i + 1) * CHUNK]) * importance).sum())
        for i, part in enumerate(parts)
    )
    whole = float((np.square(w) * importance).sum())
    return found, {NAME: float(np.sqrt(lost / max(whole, 1e-30)))}
