"""Rows of a prompt on their way through the model, and the K and V before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lora_host import abi
from lora_host.errors import ModelError
from lora_prefill.exact.adapter import Factors
from lora_prefill.exact.functions import largest
from lora_sdk.model.operations import Buffer, Operation

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


class Note(NamedTuple):
    """What an operation wrote: the largest of each row, NaN where it has one."""

    what: str
    layer: int | None
    largest: Tensor


@dataclass(frozen=True)
class Notes:
    """Of rows `first` and on, in the model's order."""

    first: int
    notes: list[Note]

    def refuse(self) -> None:
        """ModelError: the first operation that wrote NaN or infinity."""
        for what, layer, found in self.notes:
            bad = ~torch.isfinite(found)
            if bad.any():
                row = self.first + int(bad.int().argmax())
                where = "" if layer is None else f"layer {layer}, "
                raise ModelError(
                    f"{what} wrote NaN or infinity, {where}position {row} of a prompt; expected "
                    "finite numbers; the model overflows FP16 here, take a checkpoint made for FP16"
                )


@dataclass
class Rows:
    """Rows `first` .. `stop`-1 of a prompt: the buffers of the block description by name, FP16
    [rows, columns] each. `q8`: INT8 queries of static scales."""

    prompt: Prompt
    first: int
    stop: int
    buffers: dict[str, Tensor] = field(default_factory=dict)
    q8: Tensor | None = None
    _notes: list[Note] = field(default_factory=list)

    @property
    def tokens(self) -> Tensor:
        """Of these rows."""
        return self.prompt.tokens[self.first : self.stop]

    @property
    def last(self) -> bool:
        """Whether the prompt ends here."""
        return self.stop == len(self.prompt.tokens)

    def store(self, buffer: Buffer, values: Tensor, operation: Operation, what: str) -> None:
        """What an operation wrote; whether it is finite is looked at later: `taken`."""
        self.note(values, operation, what)
        self.buffers[buffer.name] = values

    def note(self, values: Tensor, operation: Operation, what: str) -> None:
        """Values that boards count if they are not finite (docs/numbers.md, 1.2)."""
        self._notes.append(Note(what, operation.layer, largest(values)))

    def taken(self) -> Notes:
        """What was noted since the last time."""
        notes, self._notes = self._notes, []
        return Notes(self.first, notes)
