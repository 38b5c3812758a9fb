"""Loads, unloads and lists adapters while the engine runs."""

from __future__ import annotations

from pathlib import Path

from lora_sdk.adapters.slots import AdapterInfo, AdapterSlots
from lora_sdk.engine.turns import FairLock


class AdapterApi:
    """The adapters of one engine. Thread-safe; each call waits for at most one step."""

    def __init__(self, lock: FairLock, adapters: AdapterSlots) -> None:
        self._lock = lock
        self._adapters = adapters

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """Read a PEFT folder into host memory as `name`. `scale` multiplies the adapter's scale.

        The adapter is written to the boards when a request first needs it. AdapterError: the folder
        is for another model, is not supported or exceeds max_adapter_rank, or the name is taken.
        """
        with self._lock:
            return self._adapters.load(name, path, scale)

    def unload_adapter(self, name: str) -> None:
        """Remove an adapter. AdapterError while sequences use it."""
        with self._lock:
            self._adapters.unload(name)

    def adapters(self) -> list[AdapterInfo]:
        """All loaded adapters, by name."""
        with self._lock:
            return self._adapters.infos()

    def check_adapter(self, name: str) -> None:
        """AdapterError if no adapter of that name is loaded. Does not wait."""
        self._adapters.check(name)
