"""Moves pages of the KV cache to the host when boards evict them, and back when they are found."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from lora_host.errors import LoraError
from lora_sdk.kv.host_pages import HostPages
from lora_sdk.kv.kv_arrays import KvArrays, joined_positions
from lora_sdk.kv.pages import PAGE_POSITIONS
from lora_sdk.kv.prefix_index import Entry

_log = logging.getLogger("lora_sdk.kv_offload")


class PageMover(Protocol):
    """See lora_sdk.kv.kv_transfer. Both compare checksums. LoraError of the boards."""

    def read_checked(self, pages: Sequence[int], positions: int) -> KvArrays:
        """K and V of the first `positions` positions in `pages`."""

    def place(self, pages: Sequence[int], kv: KvArrays) -> None:
        """Write them to pages."""


class KvOffload:
    """The host's pages of one engine's KV cache. Failures of boards are logged: the page is
    computed again, and the next step shows the failure."""

    def __init__(self, host: HostPages, mover: PageMover) -> None:
        self.host = host
        self._mover = mover

    def evicted(self, page: int, entry: Entry) -> None:
        """Keep a page of the boards whose content is about to change."""
        if self.host.knows(entry):
            return
        try:
            kv = self._mover.read_checked([page], len(entry.tokens))
        except LoraError as error:
            _log.warning("KV page %d was not kept: %s", page, error)
            return
        self.host.keep(entry, kv)

    def has(self, before: bytes, tokens: Sequence[int], digest: bytes) -> bool:
        """Whether the host has this full page."""
        return self.host.index.find(digest, before, tokens) is not None

    def load(self, before: bytes, tokens: Sequence[int], digest: bytes) -> KvArrays | None:
        """This full page; None if it is gone or damaged."""
        slot = self.host.index.find(digest, before, tokens)
        return None if slot is None else self.host.load(slot, PAGE_POSITIONS)

    def longest(self, before: bytes, tokens: Sequence[int]) -> int:
        """How many of `tokens` the best page after `before` begins with."""
        return self.host.index.longest(before, tokens)[1]

    def load_longest(self, before: bytes, tokens: Sequence[int]) -> KvArrays | None:
        """That page; None if it is damaged."""
        slot, _ = self.host.index.longest(before, tokens)
        return self.host.load(slot, len(self.host.index.entry(slot).tokens))

    def place(self, pages: Sequence[int], each: Sequence[KvArrays]) -> bool:
        """Write one page each to the boards. False: their content is unknown."""
        try:
            self._mover.place(pages, joined_positions(each))
        except LoraError as error:
            _log.warning("KV pages of the host were not written: %s", error)
            return False
        self.host.count_found(len(pages))
        return True
