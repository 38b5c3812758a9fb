"""GPT-OSS: experts with biases and a clamped SwiGLU, sinks in attention, a window in every second
layer. All experts of a layer lie in one tensor, gate and up in turns."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from lora_sdk.model.decoder import Defaults, read_decoder
from lora_sdk.model.experts import read_experts
from lora_sdk.model.families import llama
from lora_sdk.model.families.llama import IGNORED, PREFIXES, PROBE
from lora_sdk.model.fields import Fields
from lora_sdk.model.source import Source, biased, vector
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.windows import read_periodic_windows

__all__ = ["IGNORED", "PREFIXES", "PROBE", "normalize", "sources"]

DEFAULTS = Defaults(
    layers=36, hidden=2880, heads=64, kv_heads=8, head_dim=64, ffn=2880, vocabulary=201088,
    positions=131072, eps=1e-5, theta=150000.0,
)  # fmt: skip
WINDOW = 128
ALPHA, LIMIT = 1.702, 7.0


def normalize(fields: Fields) -> ModelConfig:
    """The normalized configuration; ModelError names a field that is wrong or not supported."""
    if not any(fields.has(name) for name in ("rope_parameters", "rope_scaling")):
        raise fields.error("rope_scaling", None, "the rotary positions' parameters")
    config = read_decoder(fields, "gpt_oss", DEFAULTS)
    bias = fields.flag("attention_bias", True)
    experts = read_experts(
        fields, range(config.layers), True, ("num_local_experts", "num_experts"), 128, 4,
        "intermediate_size", DEFAULTS.ffn,
    )  # fmt: skip
    fields.raw("experts_per_token")  # the same as num_experts_per_tok
    fields.raw("initial_context_length")  # YaRN's original positions, which its parameters name
    limit, alpha = fields.number("swiglu_limit", LIMIT), fields.number("swiglu_alpha", ALPHA)
    return replace(
        config,
        qkv_bias=bias,
        o_bias=bias,
        windows=read_periodic_windows(fields, config, WINDOW, period=2)[0],
        experts=replace(experts, biased=True, limit=limit, alpha=alpha),
        sinks=True,
    )


def sources(config: ModelConfig) -> dict[str, Source]:
    """Canonical name -> where it lies in the files."""
    found, experts, d = llama.sources(config), config.experts, config.hidden
    assert experts is not None
    count, ffn = experts.count, experts.ffn
    for layer in range(config.layers):
        name, lead = f"layer.{layer}", f"layers.{layer}"
        found[f"{name}.sinks"] = vector(f"{lead}.self_attn.sinks", config.heads)
        found |= biased(f"{name}.router", f"{lead}.mlp.router", d, count, True)
        module = f"{lead}.mlp.experts"
        for number in range(count):
            for part, tensor, shape, outputs in (
                ("gate", "gate_up_proj", (d, 2 * ffn), _every_second(number, 2 * ffn, 0)),
                ("up", "gate_up_proj", (d, 2 * ffn), _every_second(number, 2 * ffn, 1)),
                ("down", "down_proj", (ffn, d), None),
            ):
                own, file = f"{name}.expert.{number}.{part}", f"{module}.{tensor}"
                columns = shape[1]
                place = number * columns, len(outputs or range(columns)), outputs
                found[own] = Source(file, "io", (count, *shape), *place)
                found[f"{own}.bias"] = Source(f"{file}_bias", "vector", (count, columns), *place)
    return found


@lru_cache(maxsize=2048)
def _every_second(number: int, columns: int, first: int) -> tuple[int, ...]:
    """Outputs of an expert, numbered through: those of gate (0) or of up (1)."""
    return tuple(range(number * columns + first, (number + 1) * columns, 2))
