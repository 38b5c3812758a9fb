"""Fields and buffers of families of which some layers have no attention."""

from __future__ import annotations

from collections.abc import Mapping

from lora_host import abi
from lora_sdk.model.fields import Fields
from lora_sdk.model.operations import Buffer
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig, Recurrence

MAX_KERNEL: int = abi.MAX_CONVOLUTION
MIXED = Buffer("mixed", ("mixed",), gathered=True)
MIX: Mapping[Recurrence, Buffer] = {
    "short_conv": Buffer("mix", ("mixed_values", "mixed_values", "mixed")),
    "gated_delta": Buffer(
        "mix",
        ("mixed_keys", "mixed_keys", "mixed_values", "mixed_heads", "mixed_heads", "mixed"),
    ),
    "selective_scan": Buffer(
        "mix", ("mixed_keys", "mixed_keys", "mixed_values", "mixed_heads", "mixed")
    ),
}
MIX_PARTS: Mapping[Recurrence, str] = {
    "short_conv": "bxc", "gated_delta": "qkvabz", "selective_scan": "qkvaz",
}  # fmt: skip
"""Tensors of a recurrence's input: one letter for each of the buffer's axes."""


def read_layer_kinds(
    fields: Fields,
    layers: int,
    kind: str | tuple[str, ...],
    other: str | tuple[str, ...],
    names: str | tuple[str, ...] = "layer_types",
) -> frozenset[int]:
    """The layers that layer_types, by any of its `names`, calls `kind`; the rest it calls `other`.
    ModelError: another name, a list of another length."""
    name, kinds = fields.raw(names)
    wanted, others = ((one,) if isinstance(one, str) else one for one in (kind, other))
    known = isinstance(kinds, list) and all(one in (*wanted, *others) for one in kinds)
    if not known or len(kinds) != layers:
        raise fields.error(name, kinds, f"{layers} of {', '.join((*wanted, *others))}")
    return frozenset(layer for layer, one in enumerate(kinds) if one in wanted)


def without_attention(config: ModelConfig, found: dict[str, Source]) -> dict[str, Source]:
    """`found` without the attention's tensors of layers that have none."""
    names = ("q", "k", "v", "o", "q_norm.gamma", "k_norm.gamma")
    layers = config.recurrent.layers if config.recurrent is not None else frozenset()
    dropped = {f"layer.{layer}.{name}" for layer in layers for name in names}
    return {name: source for name, source in found.items() if name not in dropped}
