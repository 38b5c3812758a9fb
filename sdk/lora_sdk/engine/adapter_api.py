"""The engine's methods for adapters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lora_sdk.adapters.slots import AdapterInfo, AdapterSlots

if TYPE_CHECKING:
    from lora_sdk.core.kvcache import KvCache
    from lora_sdk.engine.generator import Generator


class AdapterApi:
    """Part of Engine: load, unload and list adapters while it serves, sequences that use them."""

    _adapters: AdapterSlots
    _generator: Generator
    _cache: KvCache

    def load_adapter(self, name: str, path: str | Path, scale: float = 1.0) -> AdapterInfo:
        """Read a PEFT folder into host memory under `name`; `scale` multiplies the adapter's own.

        It is brought to the boards when a request first needs it. AdapterError where the folder is
        not this model's, not supported, beyond max_adapter_rank, or the name is taken.
        """
        with self._generator.lock:
            return self._adapters.load(name, path, scale)

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter; AdapterError while sequences use it."""
        with self._generator.lock:
            self._adapters.unload(name)

    def adapters(self) -> list[AdapterInfo]:
        """All loaded adapters, by name."""
        with self._generator.lock:
            return self._adapters.infos()

    def check_adapter(self, name: str) -> None:
        """AdapterError where no adapter of that name is loaded."""
        self._adapters.check(name)

    def open_sequence(self, adapter: str | None = None) -> int:
        """A new empty sequence whose rows use `adapter`; RequestError when all are open,
        AdapterError where no slot is free for it."""
        with self._generator.lock:
            sequence = self._cache.open()
            try:
                if adapter is not None:
                    self._adapters.attach(sequence, adapter)
            except BaseException:
                self._cache.close(sequence)
                raise
            return sequence
