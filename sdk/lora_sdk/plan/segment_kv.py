"""Memory of a KV cache under beam search: the standard policy and the segment policy, which keeps a
prompt once for all its beams (equations 1 to 3 of the segment KV cache paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import RequestError

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

RESPONSE_STEP = 16  # positions by which the paper's response buffers grow


@dataclass(frozen=True)
class BeamLoad:
    """`batch` prompts of `prompt` positions, `beams` beams each of `response` positions."""

    batch: int
    beams: int
    prompt: int
    response: int

    def __post_init__(self) -> None:
        for name in ("batch", "beams", "prompt"):
            if getattr(self, name) < 1:
                raise RequestError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.response < 0:
            raise RequestError(f"response is {self.response}; expected at least 0")


def token_bytes(layers: int, kv_heads: int, head_dim: int, element_bytes: int = 2) -> int:
    """K and V of one position (equation 1)."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def config_token_bytes(config: ModelConfig, element_bytes: int = 2) -> int:
    """K and V of one position of a model."""
    return token_bytes(config.layers, config.kv_heads, config.head_dim, element_bytes)


def standard_bytes(load: BeamLoad, token: int) -> int:
    """Prompt and response of every beam in one buffer (equation 2)."""
    return load.batch * load.beams * (load.prompt + load.response) * token


def segment_bytes(load: BeamLoad, token: int, step: int = RESPONSE_STEP) -> int:
    """A prompt once, responses in buffers that grow by `step` positions (equation 3). Forked
    sequences of this engine are this policy with a step of 32, the KV block."""
    if step < 1:
        raise RequestError(f"step is {step}; expected at least 1")
    grown = -(-load.response // step) * step
    return load.batch * (load.prompt + load.beams * grown) * token


def beam_memory(config: ModelConfig, load: BeamLoad) -> dict[str, int]:
    """Bytes of the whole KV cache of a beam search on FP16 K and V: with the standard policy, with
    the segment policy as in the paper, and with this engine's forked pages of 32 positions."""
    token = config_token_bytes(config)
    return {
        "standard_bytes": standard_bytes(load, token),
        "segment_bytes": segment_bytes(load, token),
        "forked_pages_bytes": segment_bytes(load, token, abi.TILE_POSITIONS),
    }


def beam_line(found: dict[str, int]) -> str:
    """The same as text."""
    standard, segment = found["standard_bytes"], found["segment_bytes"]
    return (
        f"beam search: KV cache of {standard / 1e9:.2f} GB by the standard policy, "
        f"{segment / 1e9:.2f} GB by the segment policy ({segment / standard:.0%}), "
        f"{found['forked_pages_bytes'] / 1e9:.2f} GB in pages of 32"
    )
