"""Pages that boards had to give up, kept by the host and found by the same digests.

What a page holds depends on its digest alone, so a copy stays valid whatever becomes of the boards.
A copy counts only once a later step has shown that the boards were in order when it was read.
"""

from __future__ import annotations

import logging
import zlib

from lora_sdk.kv.host_slots import Slots
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_statistics import HostUse
from lora_sdk.kv.page_form import PageForm
from lora_sdk.kv.prefix_index import Entry, PrefixIndex

_log = logging.getLogger("lora_sdk.kv_offload")


class HostPages:
    """At most `slots.count` pages. The one that was used longest ago makes room for another."""

    def __init__(self, slots: Slots, form: PageForm) -> None:
        self.index = PrefixIndex()
        self._slots = slots
        self._form = form
        self._free: list[int] = []  # given back
        self._used = 0  # slots from here on have never been taken
        self._sums: dict[int, int] = {}  # CRC-32 by slot; the first was used longest ago
        self._unproved: list[int] = []
        self._kept = self._found = self._damaged = 0

    @property
    def use(self) -> HostUse:
        """What the host holds, and what it has been used for."""
        return HostUse(
            total=self._slots.count,
            held=len(self._sums),
            bytes=len(self._sums) * self._form.page_bytes,
            kept=self._kept,
            found=self._found,
            damaged=self._damaged,
        )

    def knows(self, entry: Entry) -> bool:
        """Whether a page with this content is held. It counts as used now."""
        slot: int | None
        if entry.digest is not None:
            slot = self.index.find(entry.digest, entry.before, entry.tokens)
        else:
            slot, count = self.index.longest(entry.before, entry.tokens)
            slot = slot if count == len(entry.tokens) else None
        if slot is not None:
            self._touch(slot)
        return slot is not None

    def keep(self, entry: Entry, kv: KvArrays) -> None:
        """Store the page of an entry."""
        data = self._form.to_bytes(kv)
        slot = self._next_slot()
        try:
            self._slots.put(slot, data)
        except OSError as error:  # e.g. no space left
            _log.warning("a KV page was not kept: %s", error)
            self._free.append(slot)
            return
        self._sums[slot] = zlib.crc32(data)
        if entry.digest is None:
            self.index.add_partial(slot, entry.before, entry.tokens)
        else:
            self.index.add(slot, entry.before, entry.tokens, entry.digest)
        self._unproved.append(slot)
        self._kept += 1

    def _next_slot(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used < self._slots.count:
            self._used += 1
            return self._used - 1
        slot = next(iter(self._sums))
        self._forget(slot)
        return slot

    def load(self, slot: int, positions: int) -> KvArrays | None:
        """The page of a slot with so many positions; None if it is damaged, and then forgotten."""
        try:
            data = self._slots.get(slot)
            damaged = zlib.crc32(data) != self._sums[slot]
        except OSError as error:
            _log.warning("a KV page of the host cannot be read: %s", error)
            damaged = True
        if damaged:
            self._damaged += 1
            self.remove(slot)
            return None
        self._touch(slot)
        return self._form.from_bytes(data, positions)

    def count_found(self, pages: int) -> None:
        """So many pages were written back."""
        self._found += pages

    def remove(self, slot: int) -> None:
        """Forget a page."""
        self._forget(slot)
        self._free.append(slot)

    def prove(self) -> None:
        """A step has completed: the boards were in order when pages were read before it."""
        self._unproved.clear()

    def distrust(self) -> None:
        """The boards failed: forget what was read since the last step, perhaps from other memory
        than they had."""
        for slot in self._unproved:
            if slot in self._sums:
                self.remove(slot)
        self._unproved.clear()

    def clear(self) -> None:
        """Forget every page: what computed them was wrong."""
        for slot in list(self._sums):
            self.remove(slot)

    def _touch(self, slot: int) -> None:
        self._sums[slot] = self._sums.pop(slot)

    def _forget(self, slot: int) -> None:
        del self._sums[slot]
        if slot in self.index:
            self.index.remove(slot)
        if slot in self._unproved:
            self._unproved.remove(slot)
