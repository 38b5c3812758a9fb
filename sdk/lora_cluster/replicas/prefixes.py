"""What a replica's cache of common prefixes holds, as far as a server can know: the pages of the
requests that it sent there, the latest ones."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from lora_sdk.kv.pages import PAGE_POSITIONS


def page_names(tokens: Sequence[int], adapter: str | None, salt: str | None) -> list[bytes]:
    """A name for each full page of a prompt, of all tokens up to its end."""
    name = hashlib.blake2b(repr((adapter, salt)).encode(), digest_size=16).digest()
    names = []
    for start in range(0, len(tokens) - PAGE_POSITIONS + 1, PAGE_POSITIONS):
        page = array("q", tokens[start : start + PAGE_POSITIONS]).tobytes()
        name = hashlib.blake2b(name + page, digest_size=16).digest()
        names.append(name)
    return names


class PrefixMemory:
    """Names of the pages that were used last, as many as the replica has. Thread-safe."""

    def __init__(self, pages: int) -> None:
        self._most = pages
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, names: Iterable[bytes]) -> None:
        """These pages were used now. Later pages of a prompt are forgotten before earlier ones."""
        with self._lock:
            for name in reversed(list(names)):
                self._known[name] = None
                self._known.move_to_end(name)
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    def longest(self, names: Sequence[bytes]) -> int:
        """How many of a prompt's first pages are held."""
        with self._lock:
            for count, name in enumerate(names):
                if name not in self._known:
                    return count
        return len(names)
