"""vLLM's adapters, by number and path, in the boards' table of adapters."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.exceptions import LoRAAdapterNotFoundError
from vllm.lora.utils import get_adapter_absolute_path

from lora_host.errors import AdapterError
from lora_sdk.adapters.weights import load_adapter_weights

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest

    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.model.config import ModelConfig

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class _Read:
    """An adapter under a name of its own. `stamp`: of its files when they were read."""

    name: str
    folder: str
    stamp: Stamp


class VllmAdapters:
    """Reads folders where they are new, or changed and vLLM loads them in place. Requests that run
    keep the weights that they began with. Not thread-safe."""

    def __init__(self, slots: AdapterSlots, config: ModelConfig, max_rank: int, room: int) -> None:
        """`room`: adapters to keep, whether requests use them or not."""
        self._slots, self._config = slots, config
        self._max_rank, self._room = max_rank, room
        self._read: dict[tuple[int, str], _Read] = {}  # the least recently used first
        self._replaced: list[str] = []
        self._pinned: set[int] = set()
        self._names = 0

    def name_of(self, asked: LoRARequest | None) -> str | None:
        """Its name in the table. LoRAAdapterNotFoundError: no such folder; AdapterError: what of it
        boards do not support; LoraError of the boards."""
        if asked is None:
            return None
        key = asked.lora_int_id, asked.lora_path
        found = self._read.get(key)
        if found is None or (asked.load_inplace and found.stamp != _stamp(found.folder)):
            new = self._load(asked)
            if found is not None:
                self._replaced.append(found.name)
            found = new
        self._read.pop(key, None)
        self._read[key] = found
        self._trim()
        return found.name

    def remove(self, number: int) -> None:
        """Forget an adapter. AdapterError while requests use it."""
        self._pinned.discard(number)
        for key in [key for key in self._read if key[0] == number]:
            self._slots.unload(self._read[key].name)
            del self._read[key]

    def pin(self, number: int) -> bool:
        """Keep an adapter until it is removed. False: it is not loaded."""
        if number in self.numbers():
            self._pinned.add(number)
        return number in self._pinned

    def numbers(self) -> set[int]:
        """Those that are loaded."""
        return {number for number, _ in self._read}

    def _load(self, asked: LoRARequest) -> _Read:
        folder = get_adapter_absolute_path(asked.lora_path)
        if not os.path.isdir(folder):
            raise LoRAAdapterNotFoundError(asked.lora_name, asked.lora_path)
        stamp = _stamp(folder)
        weights = load_adapter_weights(folder, self._config)
        if weights.rank > self._max_rank:
            raise AdapterError(
                f"rank {weights.rank}; vLLM was started with --max-lora-rank {self._max_rank}"
            )
        name = f"{asked.lora_int_id}.{self._names}"
        self._slots.add(name, weights)
        self._names += 1
        return _Read(name, folder, stamp)

    def _trim(self) -> None:
        """Forget what nobody uses: of the replaced ones all, of others the oldest beyond the
        room."""
        users = {info.name: info.users for info in self._slots.infos()}
        for name in [name for name in self._replaced if not users[name]]:
            self._slots.unload(name)
            self._replaced.remove(name)
        *others, _ = self._read
        for key in others:
            if len(self._read) <= self._room:
                return
            name = self._read[key].name
            if key[0] not in self._pinned and not users[name]:
                self._slots.unload(name)
                del self._read[key]


def _stamp(folder: str) -> Stamp:
    """Names, times and sizes of a folder's files."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries]
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))
