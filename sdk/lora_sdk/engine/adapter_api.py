"""Adapters of an engine while it serves: load, unload, list."""

from __future__ import annotations

from pathlib import Path

from lora_sdk.adapters.slots import AdapterInfo, AdapterSlots
from lora_sdk.engine.fair_lock import FairLock


class AdapterApi:
    """The adapters of one engine. Any thread may call; each call waits for at most one step."""

    def __init__(self, lock: FairLock, adapters: AdapterSlots) -> None:
        self._lock = lock
        self._adapters = adapters

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """Read a PEFT folder into host memory under `name`; `scale` multiplies the adapter's own.

        It is brought to the boards when a request first needs it. AdapterError where the folder is
        not this model's, not supported, beyond max_adapter_rank, or the name is taken.
        """
        with self._lock:
            return self._adapters.load(name, path, scale)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter; AdapterError while sequences use it."""
        with self._lock:
            self._adapters.unload(name)

    def adapters(self) -> list[AdapterInfo]:
        """All loaded adapters, by name."""
        with self._lock:
            return self._adapters.infos()

    def check_adapter(self, name: str) -> None:
        """AdapterError where no adapter of that name is loaded. Waits for nothing."""
        self._adapters.check(name)
