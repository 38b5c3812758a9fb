"""config.json of a quantized folder: the model's fields and the `quantization_config` of
compressed-tensors."""

from __future__ import annotations

import re
from typing import Any

from lora_sdk.model.compressed_tensors import METHOD, ROTATED
from lora_sdk.model.config import family_of
from lora_sdk.model.quantization import routes
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.weight_formats import INT8, WeightFormat
from lora_sdk.quant.layer import full_name, head_module
from lora_sdk.quant.recipe import Recipe

_STATIC = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor", "dynamic": False}
_BY_TOKEN = {**_STATIC, "strategy": "token", "dynamic": True}


def quantized_config(values: dict[str, Any], config: ModelConfig, recipe: Recipe) -> dict[str, Any]:
    """The quantized folder's config.json, from `values` of the model's."""
    found = {name: value for name, value in values.items() if name != "torch_dtype"}
    found["dtype"] = "float16"
    if recipe.head == "w8" or recipe.rotate:
        found["tie_word_embeddings"] = False  # lm_head has its own numbers
    found["quantization_config"] = quantization_config(config, recipe)
    return found


def quantization_config(config: ModelConfig, recipe: Recipe) -> dict[str, Any]:
    """The quantization_config in compressed-tensors' format."""
    kind = "Conv1D" if _query(config).layout == "io" else "Linear"
    groups = {"group_0": _group([kind], _layer_weights(recipe), recipe.weights, recipe)}
    ignore = [] if config.embed_dim == config.hidden else _projections(config)
    ignore += _routers(config)
    if recipe.head == "w8":
        groups["group_1"] = _group(
            [f"re:{re.escape(head_module(config))}$"], _weights(INT8.bits, "channel"), INT8, recipe
        )
    else:
        ignore.append(head_module(config))
    formats = {group["format"] for group in groups.values()}
    if recipe.kv_format.static:
        groups[f"group_{len(groups)}"] = _attention(config)
    cache = _STATIC if recipe.kv_format.static else None
    if recipe.kv_format.by_head:
        cache = _BY_TOKEN
    return {
        "quant_method": METHOD,
        "format": formats.pop() if len(formats) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": ignore,
        "kv_cache_scheme": cache,
        **({ROTATED: True} if recipe.rotate else {}),
    }


def _layer_weights(recipe: Recipe) -> dict[str, Any]:
    bits = recipe.weights.bits
    if not recipe.four_bit:
        return _weights(bits, "channel")
    four = _weights(bits, "group")
    return {**four, "group_size": recipe.group, "symmetric": recipe.symmetric}


def _weights(bits: int, strategy: str) -> dict[str, Any]:
    return {**_STATIC, "num_bits": bits, "strategy": strategy}


def _group(
    targets: list[str], weights: dict[str, Any], form: WeightFormat, recipe: Recipe
) -> dict[str, Any]:
    inputs = dict(_BY_TOKEN if recipe.dynamic else _STATIC)
    return {
        "targets": targets,
        "weights": weights,
        "input_activations": inputs if form.integer else None,
        "output_activations": None,
        "format": form.compressed[0].format,
    }


def _attention(config: ModelConfig) -> dict[str, Any]:
    """kv_cache_scheme covers only k and v. A group without weights adds q's scale."""
    module = _query(config).tensor.split(".")[-3]
    return {
        "targets": [f"re:.*{module}$"],
        "weights": None,
        "input_activations": dict(_STATIC),
        "output_activations": None,
    }


def _query(config: ModelConfig) -> Source:
    return family_of(config).sources(config)["layer.0.q"]


def _projections(config: ModelConfig) -> list[str]:
    sources = family_of(config).sources(config)
    names = (full_name(config, sources[name]) for name in ("project_in", "project_out"))
    return [name.removesuffix(".weight") for name in names]


def _routers(config: ModelConfig) -> list[str]:
    sources = family_of(config).sources(config)
    names = (full_name(config, source) for name, source in sources.items() if routes(name))
    return [name.removesuffix(".weight") for name in names]
