"""GPUs beside the boards: times quoted for one model and one length, scaled to others.

A prompt's time is scaled by its operations, a new token's by the bytes that it reads: that is what
each is bound by (GLITCHES, Figure 2). Nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_host.yaml_file import read_yaml
from lora_lab.timing.facts import DATA
from lora_lab.timing.shape import block_weights, head_weights, kv_elements, read_weights
from lora_sdk.model.shapes import shape_config

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

QUOTED_MODEL, QUOTED_PROMPT, QUOTED_NEW = "llama2-7b", 1536, 512
_FP16 = 2  # bytes


@dataclass(frozen=True)
class Quoted:
    """One stage of inference on a GPU, as printed."""

    ms: float
    gigabytes: float
    watts: float


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU. Rates are peaks: FP16 operations and bytes per second."""

    name: str
    title: str
    peak_flops: float
    bytes_per_second: float
    capacity_bytes: int
    dollars: float
    prefill: Quoted
    decode: Quoted

    def prefill_seconds(self, config: ModelConfig, tokens: int) -> float:
        """A prompt alone on the GPU."""
        quoted = prefill_flops(shape_config(QUOTED_MODEL), QUOTED_PROMPT)
        return self.prefill.ms / 1e3 * prefill_flops(config, tokens) / quoted

    def token_seconds(self, config: ModelConfig, context: float) -> float:
        """A new token at a context, alone on the GPU."""
        quoted = token_bytes(shape_config(QUOTED_MODEL), QUOTED_PROMPT + QUOTED_NEW / 2)
        return self.decode.ms / 1e3 * token_bytes(config, context) / quoted

    def sequences(self, config: ModelConfig, positions: int) -> int:
        """How many sequences of so many positions fit beside the model in FP16."""
        free = self.capacity_bytes - weight_bytes(config)
        return max(0, int(free // (positions * kv_elements(config) * _FP16)))


def prefill_flops(config: ModelConfig, tokens: int) -> float:
    """Operations of a prompt: matmuls of the blocks, and attention over all pairs of positions."""
    attention = 4 * tokens**2 * config.layers * config.heads * config.head_dim
    return 2 * read_weights(config) * tokens + attention


def token_flops(config: ModelConfig, context: int) -> float:
    """Operations of a new token, lm_head included."""
    attention = 4 * context * config.layers * config.heads * config.head_dim
    return 2 * (read_weights(config) + head_weights(config)) + attention


def weight_bytes(config: ModelConfig) -> int:
    """The blocks and lm_head in FP16."""
    return _FP16 * (block_weights(config) + head_weights(config))


def token_bytes(config: ModelConfig, context: float) -> float:
    """What a new token reads in FP16."""
    weights = _FP16 * (read_weights(config) + head_weights(config))
    return weights + _FP16 * kv_elements(config) * context


@cache
def _gpus() -> Mapping[str, Gpu]:
    found = read_yaml(DATA / "gpus.yaml", RequestError)
    return {
        name: Gpu(
            name=name,
            **{**facts, "prefill": Quoted(**facts["prefill"]), "decode": Quoted(**facts["decode"])},
        )
        for name, facts in found.items()
    }


def gpu_names() -> tuple[str, ...]:
    """Names of known GPUs."""
    return tuple(_gpus())


def gpu(name: str) -> Gpu:
    """The GPU named `name`. RequestError, with the closest name, if there is none."""
    if name not in _gpus():
        raise RequestError(f"GPU {name!r} is not known; {did_you_mean(name, gpu_names())}")
    return _gpus()[name]
