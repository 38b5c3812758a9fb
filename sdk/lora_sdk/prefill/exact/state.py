"""Rows of a prompt on their way through the model, and the K and V before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.model.operations import Buffer, Operation
from lora_sdk.prefill.exact.adapter import Factors

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

TILE = abi.TILE_POSITIONS


@dataclass
class LayerKv:
    """K and V of one layer as boards store them, [KV heads, whole tiles of positions, head_dim],
    the scales of `int8-heads` [KV heads, positions], and what attention reads of these."""

    k: Tensor
    v: Tensor
    k_scales: Tensor | None = None
    v_scales: Tensor | None = None
    read_k: Tensor | None = None
    read_v: Tensor | None = None


@dataclass
class Prompt:
    """A prompt of `tokens` [positions]: K and V by layer, and its adapter's factors by tensor."""

    tokens: Tensor
    layers: dict[int, LayerKv] = field(default_factory=dict)
    factors: dict[str, Factors] = field(default_factory=dict)

    def empty(self, config: ModelConfig, kind: torch.dtype) -> Tensor:
        """Zeros for all positions, in whole tiles."""
        positions = -(-len(self.tokens) // TILE) * TILE
        shape = (config.kv_heads, positions, config.head_dim)
        return torch.zeros(shape, dtype=kind, device=self.tokens.device)


@dataclass
class Rows:
    """Rows `first` .. `stop`-1 of a prompt: the buffers of the block description by name, FP16
    [rows, columns] each. `q8`: INT8 queries of static scales."""

    prompt: Prompt
    first: int
    stop: int
    buffers: dict[str, Tensor] = field(default_factory=dict)
    q8: Tensor | None = None
    _bad: list[tuple[str, int | None, Tensor]] = field(default_factory=list)

    @property
    def tokens(self) -> Tensor:
        """Of these rows."""
        return self.prompt.tokens[self.first : self.stop]

    @property
    def last(self) -> bool:
        """Whether the prompt ends here."""
        return self.stop == len(self.prompt.tokens)

    def store(self, buffer: Buffer, values: Tensor, operation: Operation, what: str) -> None:
        """What an operation wrote; whether it is finite is looked at later, by `check`."""
        self.note(values, operation, what)
        self.buffers[buffer.name] = values

    def note(self, values: Tensor, operation: Operation, what: str) -> None:
        """Values that boards count if they are not finite (docs/numbers.md, 1.2)."""
        self._bad.append((what, operation.layer, (~torch.isfinite(values)).flatten(1).any(dim=1)))

    def check(self) -> None:
        """ModelError: the first operation, in the model's order, that wrote NaN or infinity."""
        noted, self._bad = self._bad, []
        if not noted or not torch.stack([bad.any() for _, _, bad in noted]).any():
            return
        for what, layer, bad in noted:
            if bad.any():
                row = self.first + int(bad.int().argmax())
                where = "" if layer is None else f"layer {layer}, "
                raise ModelError(
                    f"{what} wrote NaN or infinity, {where}position {row} of a prompt; expected "
                    "finite numbers; the model overflows FP16 here, take a checkpoint made for FP16"
                )
