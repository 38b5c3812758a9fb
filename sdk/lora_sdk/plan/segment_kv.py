"""Memory of a KV cache under beam search: the standard policy and the segment policy, which keeps a
prompt once for all its beams (equations 1 to 3 of the segment KV cache paper), beside this engine's
pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_sdk.plan.kv import tiles

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan

MAX_LOAD = 1 << 20  # of each number
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
        if max(self.batch, self.beams, self.prompt, self.response) > MAX_LOAD:
            raise RequestError(f"batch, beams, prompt or response is above {MAX_LOAD}")


def token_bytes(layers: int, kv_heads: int, head_dim: int, element_bytes: int = 2) -> int:
    """K and V of one position (equation 1)."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def config_token_bytes(config: ModelConfig, element_bytes: int = 2) -> int:
    """K and V of one position of a model."""
    return token_bytes(config.all_planes, config.kv_heads, config.head_dim, element_bytes)


def standard_bytes(load: BeamLoad, token: int) -> int:
    """Prompt and response of every beam in one buffer (equation 2)."""
    return load.batch * load.beams * (load.prompt + load.response) * token


def fragmented_bytes(load: BeamLoad, token: int) -> int:
    """The standard policy's worst case: every step allocates a larger buffer, and none of the
    smaller ones is used again. The sum over the response's steps of equation 2."""
    positions = load.response * load.prompt + load.response * (load.response + 1) // 2
    return load.batch * load.beams * positions * token


def segment_bytes(load: BeamLoad, token: int, step: int = RESPONSE_STEP) -> int:
    """A prompt once, responses in buffers that grow by `step` positions (equation 3)."""
    if step < 1:
        raise RequestError(f"step is {step}; expected at least 1")
    grown = -(-load.response // step) * step
    return load.batch * (load.prompt + load.beams * grown) * token


def beam_pages(load: BeamLoad) -> int:
    """Pages of 32 positions of this engine at the last step, where the beams of a prompt share its
    full pages and nothing else: each has a copy of the prompt's last page if that is partial. The
    last token is never run, so a response of one token needs the prompt's pages alone."""
    if load.response <= 1:
        return load.batch * tiles(load.prompt)
    shared = load.prompt // abi.TILE_POSITIONS
    each = tiles(load.prompt + load.response - 1)
    return load.batch * (shared + load.beams * (each - shared))


def largest_batch(load: BeamLoad, capacity: int, size: Callable[[BeamLoad], int]) -> int:
    """The largest batch whose `size` is at most `capacity`. All sizes are multiples of one
    prompt's."""
    return capacity // size(replace(load, batch=1))


def beam_memory(plan: Plan, load: BeamLoad) -> dict[str, Any]:
    """The KV cache of a beam search and the largest batches on the planned boards.

    Bytes by the standard policy, in its worst case of fragments and by the segment policy, all with
    elements as planned, without scales; pages of 32 as this engine allocates them, and their bytes
    on all boards. `batch`: by policy, what fits in the memory for KV pages. `sequences`: of a batch
    as requested, `max_sequences` of the overlay."""
    config, page = plan.config, page_bytes(plan)
    token = config_token_bytes(config, plan.boards[0].kv.format.element_bytes)
    capacity = plan.page_room * page
    sizes: dict[str, Callable[[BeamLoad], int]] = {
        "standard": lambda one: standard_bytes(one, token),
        "segment": lambda one: segment_bytes(one, token),
        "pages": lambda one: beam_pages(one) * page,
    }
    return {
        "batch": load.batch,
        "beams": load.beams,
        "prompt": load.prompt,
        "response": load.response,
        "token_bytes": token,
        "standard_bytes": standard_bytes(load, token),
        "standard_fragmented_bytes": fragmented_bytes(load, token),
        "segment_bytes": segment_bytes(load, token),
        "pages": beam_pages(load),
        "pages_bytes": beam_pages(load) * page,
        "capacity_pages": plan.page_room,
        "capacity_bytes": capacity,
        "largest_batch": {name: largest_batch(load, capacity, of) for name, of in sizes.items()},
        "sequences": load.batch * load.beams,
        "max_sequences": plan.overlay.max_sequences,
    }


def page_bytes(plan: Plan) -> int:
    """Bytes of one page of KV on all boards, replicated heads and scales included."""
    return sum(board.kv.page_bytes for board in plan.boards)


def beam_lines(found: dict[str, Any]) -> list[str]:
    """The same as text."""
    standard = found["standard_bytes"]

    def size(name: str) -> str:
        return f"{found[name] / 1e9:.2f} GB ({found[name] / standard:.1%})"

    largest = found["largest_batch"]
    return [
        f"beam search: batch {found['batch']}, {found['beams']} beams, {found['prompt']} prompt "
        f"and {found['response']} response tokens",
        f"  KV cache: {standard / 1e9:.2f} GB by the standard policy, "
        f"{found['standard_fragmented_bytes'] / 1e9:.2f} GB if no freed memory is used again, "
        f"{size('segment_bytes')} by the segment policy, "
        f"{size('pages_bytes')} in {found['pages']} pages of 32",
        f"  largest batch in {found['capacity_bytes'] / 1e9:.2f} GB for KV: "
        f"{largest['standard']} by the standard policy, {largest['segment']} by the segment "
        f"policy, {largest['pages']} in pages of 32; the overlay has {found['max_sequences']} "
        "sequences, one for each beam",
    ]
