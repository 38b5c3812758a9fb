"""The adapters that every replica has, also one that is started again."""

from __future__ import annotations

import threading

from lora_cluster.replicas.actor import Adapter
from lora_host.errors import AdapterError
from lora_host.naming import did_you_mean


class AdapterRegistry:
    """Names, folders and scales of loaded adapters. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def all(self) -> list[Adapter]:
        """(name, folder, scale) of all, in the order of loading."""
        with self._lock:
            return [(name, path, scale) for name, (path, scale) in self._known.items()]

    def add(self, name: str, path: str, scale: float) -> None:
        """A replica has loaded it."""
        with self._lock:
            self._known[name] = (path, scale)

    def remove(self, name: str) -> None:
        """It is to be loaded nowhere."""
        with self._lock:
            self._known.pop(name, None)

    def check(self, name: str) -> None:
        """AdapterError if no adapter of that name is loaded."""
        with self._lock:
            known = sorted(self._known)
        if name not in known:
            hint = did_you_mean(name, known) if known else "none is loaded"
            raise AdapterError(f"adapter {name!r} is not loaded; {hint}")
