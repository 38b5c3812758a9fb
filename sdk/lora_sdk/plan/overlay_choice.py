"""Chooses the overlay of a model: each supports some formats of weights and of the KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_host.errors import PlacementError
from lora_host.overlay import load_overlay, overlay_names
from lora_sdk.model.block import describe
from lora_sdk.model.quantization import kv_of
from lora_sdk.model.spec import without_blocks
from lora_sdk.model.weight_formats import GGUF
from lora_sdk.plan.formats import check_matmuls, matmul_format

if TYPE_CHECKING:
    from lora_host.overlay import Overlay
    from lora_sdk.model.spec import ModelConfig

PREFERENCE = ("lora_f", "lora_q", "lora_w4a8", "lora_gguf")  # simplest first


def fits(config: ModelConfig, overlay: Overlay) -> bool:
    """Whether the overlay's units compute every format of the model."""
    return _refused(config, overlay) is None


def check_overlay(config: ModelConfig, overlay: Overlay) -> None:
    """PlacementError names what the overlay does not compute and an overlay that does. ModelError
    names a format that its matrix cannot have."""
    check_matmuls(config)
    refused = _refused(config, overlay)
    if refused is None:
        return
    other = overlay_for(config, overlay.board.name)
    hint = f"take overlay {other}" if other else "no overlay that ships takes all of the model"
    raise PlacementError(
        f"{refused}, which overlay {overlay.name} does not compute; {hint}", usage=True
    )


def held_by(config: ModelConfig, overlay: Overlay) -> ModelConfig:
    """The model as boards with this overlay hold it: matrices in blocks of GGUF files are FP16
    where it lists no such blocks."""
    return config if GGUF in overlay.weights else without_blocks(config)


def overlay_for(config: ModelConfig, board: str) -> str | None:
    """The first shipped overlay for boards of this kind that computes the model; None if there is
    none."""
    shipped = overlay_names()
    for name in (f"{family}_{board}" for family in PREFERENCE):
        if name in shipped and fits(config, load_overlay(name)):
            return name
    return None


def choose_overlay(config: ModelConfig, board: str) -> str:
    """The default overlay of a model: LORA-F unless the model needs another."""
    return overlay_for(config, board) or f"{PREFERENCE[0]}_{board}"


def _refused(config: ModelConfig, overlay: Overlay) -> str | None:
    """The first part of the model that the overlay does not compute, for a message."""
    for matmul in describe(config).matmuls:
        chosen = matmul_format(config, matmul)
        if chosen.weights.overlay_weights not in overlay.weights:
            return f"{matmul.name} is {chosen}"
    kv = kv_of(config).name
    if kv not in overlay.kv:
        return f"the KV cache is {kv}"
    return None
