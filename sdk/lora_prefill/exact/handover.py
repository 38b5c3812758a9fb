"""From a device to the host: K and V of groups of layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lora_prefill.exact.functions import largest
from lora_prefill.exact.state import LayerKv, Notes
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.prefill.job import Part

if TYPE_CHECKING:
    from lora_sdk.model.kv_formats import KvKind

GROUP = 2  # layers that are handed over at once
Arrays = Callable[[], list[NDArray[Any]]]
FIELDS = ("k", "v", "k_scales", "v_scales")


@dataclass(frozen=True)
class _Group:
    """A group on its way: the part's first layer and position, what its layers noted, and what
    waits for its arrays, the last of which is the largest of all that was noted."""

    layer: int
    position: int
    notes: list[Notes]
    arrays: Arrays


class Handover:
    """Gives the parts of a prompt in order. On a GPU a group is given once the device has the work
    of the next one, so that it never waits for the host."""

    def __init__(
        self, layers: int, kind: KvKind, device: torch.device, give: Callable[[Part], None]
    ) -> None:
        """`kind`: of the KV cache."""
        self._layers, self._kind, self._give = layers, kind, give
        self._copy = _Copies(device).start if device.type == "cuda" else _copied
        self._behind = 1 if device.type == "cuda" else 0  # groups that wait
        self._found: list[tuple[LayerKv, Notes]] = []
        self._waiting: list[_Group] = []

    def add(self, positions: range, layer: int, kv: LayerKv, notes: Notes) -> None:
        """A layer's K and V at some positions. ModelError: a value of a group that is given now is
        NaN or infinite."""
        self._found.append((kv, notes))
        if layer % GROUP == GROUP - 1 or layer == self._layers - 1:
            self._waiting.append(self._group(layer - layer % GROUP, positions))
            self._found = []
            self._give_all_but(self._behind)

    def finish(self) -> None:
        """Gives what waits. ModelError as `add`."""
        self._give_all_but(0)

    def _group(self, first: int, positions: range) -> _Group:
        chosen = slice(positions.start, positions.stop)
        found = []
        for name in FIELDS:
            each = [getattr(kv, name) for kv, _ in self._found]
            if each[0] is not None:
                found.append(torch.stack([one[:, chosen] for one in each]))
        notes = [notes for _, notes in self._found]
        noted = torch.cat([note.largest for one in notes for note in one.notes])
        arrays = self._copy([*found, largest(noted[None])])
        return _Group(first, positions.start, notes, arrays)

    def _give_all_but(self, count: int) -> None:
        while len(self._waiting) > count:
            group = self._waiting.pop(0)
            k, v, *scales, found = group.arrays()
            if not np.isfinite(found).all():
                for notes in group.notes:
                    notes.refuse()
            k_scales, v_scales = scales or (None, None)
            kv = KvArrays(self._kind, k, v, k_scales, v_scales)
            self._give(Part(group.layer, group.position, kv))


def _copied(tensors: list[Tensor]) -> Arrays:
    arrays = [tensor.cpu().numpy() for tensor in tensors]
    return lambda: arrays


class _Copies:
    """Copies from a GPU beside its work, to memory that it writes directly."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)

    def start(self, tensors: list[Tensor]) -> Arrays:
        """Begins copies of what the present stream makes; calling the result waits for them."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            host = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in tensors]
            for to, one in zip(host, tensors, strict=True):
                to.copy_(one, non_blocking=True)
            done = self._stream.record_event()

        def arrays() -> list[NDArray[Any]]:
            done.synchronize()
            tensors.clear()  # kept until here: another stream's memory
            found = [one.numpy().copy() for one in host]
            host.clear()  # pages that the card writes are few: the next group takes them again
            return found

        return arrays
