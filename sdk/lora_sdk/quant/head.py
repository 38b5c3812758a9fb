"""lm_head and the norm before it: 8 bits per output channel with INT8 inputs, or unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lora_sdk.model.config import family_of
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.arithmetic import head_input
from lora_sdk.quant.dense import LIMIT, round_rows, round_to
from lora_sdk.quant.layer import F32, Parameters, Weights, full_name, head_module, read_parameters
from lora_sdk.quant.modules import Rounded, Tensors, half
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.rounded import exact_operations
from lora_sdk.quant.rounding import half_scale, input_scale, int8_weights
from lora_sdk.quant.smooth import choose, divided_gamma, divisors

NAME = "lm_head"
SAMPLE_INPUTS = 4096
SAMPLE_ROWS, SAMPLE_OUTPUTS = 512, 4096  # on which strengths are compared
CHUNK = 8192  # outputs rounded at once


@dataclass
class HeadResult:
    """The file's tensors of lm_head and of the final norm, what boards will compute them with
    (matrices dequantized), the static scale of lm_head's input, and lm_head's relative error."""

    tensors: Tensors
    parameters: Parameters
    inputs: dict[str, np.float32] = field(default_factory=dict)
    error: dict[str, float] = field(default_factory=dict)


def head_parameters(checkpoint: Weights) -> Parameters:
    """What lies behind the layers: the final norm, project_out, lm_head."""
    return read_parameters(checkpoint, "final_norm", "project_out", NAME)


def round_head(checkpoint: Weights, recipe: Recipe, streams: Sequence[F32]) -> HeadResult:
    """lm_head and the final norm by `recipe`. `streams`: outputs of the last layer."""
    config = checkpoint.config
    sources = family_of(config).sources(config)
    parameters = head_parameters(checkpoint)
    found = HeadResult({}, parameters)
    module = head_module(config)
    if recipe.head == "w8":
        operations = exact_operations(config, parameters)
        every = max(1, sum(map(len, streams)) // SAMPLE_INPUTS)
        x = np.concatenate([head_input(x[::every], config, operations) for x in streams])
        w = np.ascontiguousarray(parameters.matrices[NAME].T)
        norm = {name for name in parameters.vectors if not name.startswith(NAME)}
        if recipe.smooth and norm and config.embed_dim == config.hidden:
            s = _divisor(x, w, recipe.dynamic)
            x, w = x / s, w * s
            for name in norm:
                parameters.vectors[name] = _divided(name, parameters.vectors[name], s, config)
        found.tensors, found.error, rounded = _rounded(x, w, module)
        parameters.matrices[NAME] = rounded.T
        if not recipe.dynamic:
            scale = input_scale(x, np.square(w).sum(axis=0))
            found.inputs[NAME] = scale
            found.tensors[f"{module}.input_scale"] = np.array([scale], np.float32)
    elif not config.tied:
        tensor = f"{module}.weight"
        found.tensors[tensor] = half(tensor, np.ascontiguousarray(checkpoint.matrix(NAME).T))
    for name, vector in parameters.vectors.items():
        tensor = full_name(config, sources[name])
        found.tensors[tensor] = half(tensor, vector)
    return found


def _divided(name: str, vector: F32, s: F32, config: ModelConfig) -> F32:
    """The final norm's gamma or beta with s folded in."""
    return divided_gamma(vector, s, config.one_plus and name.endswith(".gamma"))


def _divisor(x: F32, w: F32, dynamic: bool) -> F32:
    """The divisor [K] of inputs x [rows, K] to weights w [V, K], of every second row, judged on the
    others."""
    seen, unseen = x[::2], x[1::2]
    few, top_x = unseen[:: max(1, len(unseen) // SAMPLE_ROWS)], np.abs(seen).max(axis=0)
    some, top_w = w[:: max(1, len(w) // SAMPLE_OUTPUTS)], np.abs(w).max(axis=0)
    exact = few @ some.T

    def loss(s: F32) -> float:
        wide, narrow = some * s, few / s
        step = (top_x / s).max() / LIMIT
        rounded = round_rows(narrow) if dynamic else round_to(narrow, step) * step
        steps = half_scale(np.abs(wide).max(axis=1, keepdims=True) / LIMIT)
        off = rounded @ (np.rint(wide / steps) * steps).T - exact
        return float(np.square(off).sum(dtype=np.float64))

    return choose(divisors(top_x, np.abs(seen).mean(axis=0), top_w), x.shape[1], loss).divisor


def _rounded(x: F32, w: F32, module: str) -> tuple[Tensors, dict[str, float], F32]:
    """w [V, K] in chunks: the file's tensors, the error on inputs x, and what was rounded to."""
    importance, few = np.square(x).mean(axis=0), x[:: max(1, len(x) // SAMPLE_ROWS)]
    rounded, lost, whole = np.empty_like(w), 0.0, 0.0
    chunks = []
    for first in range(0, len(w), CHUNK):
        at = slice(first, first + CHUNK)
        part = Rounded(int8_weights(w[at], importance))
        chunks.append(part.tensors(module))
        rounded[at] = part.weights()
        lost += float(np.square(few @ (rounded[at] - w[at]).T).sum(dtype=np.float64))
        whole += float(np.square(few @ w[at].T).sum(dtype=np.float64))
    found: Tensors = {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}
    return found, {NAME: float(np.sqrt(lost / max(whole, 1e-30)))}, rounded
