"""Finds KV pages again by the tokens in them.

A page's digest covers its tokens and the digest of the page before it, so it names the whole
prefix. The first page follows a root, which covers all else that K and V depend on: the adapter,
the type and the origin of the KV cache, and a salt that separates callers.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

_TAILS = 16  # pages compared for the last, partial match: those added last


def root_digest(*parts: bytes) -> bytes:
    """The digest before a sequence's first page. Different lists of parts give different ones."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def page_digest(before: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of the page with these tokens after the page with digest `before`."""
    return sha256(before + array("I", tokens).tobytes()).digest()


def page_digests(root: bytes, tokens: Sequence[int], page_positions: int) -> list[bytes]:
    """The digests of the full pages of `tokens`, the root first."""
    digests = [root]
    for start in range(0, len(tokens) - page_positions + 1, page_positions):
        digests.append(page_digest(digests[-1], tokens[start : start + page_positions]))
    return digests


@dataclass(frozen=True)
class Entry:
    """What a page holds: `tokens` after the page with digest `before`."""

    before: bytes
    tokens: tuple[int, ...]
    digest: bytes | None  # None: the page is partial


class PrefixIndex:
    """Pages by digest. Whether a page is in use is known to its owner, lora_sdk.kv.pages."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget every page."""
        self._pages: dict[bytes, int] = {}
        self._entries: dict[int, Entry] = {}
        self._after: dict[bytes, dict[int, None]] = {}  # digest -> pages that follow, in order

    def __contains__(self, page: int) -> bool:
        return page in self._entries

    def entry(self, page: int) -> Entry:
        """What a known page holds."""
        return self._entries[page]

    def add(self, page: int, before: bytes, tokens: Sequence[int], digest: bytes) -> None:
        """Enter a full page, unless one with its digest is known."""
        if digest not in self._pages:
            self._pages[digest] = page
            self._enter(page, Entry(before, tuple(tokens), digest))

    def add_partial(self, page: int, before: bytes, tokens: Sequence[int]) -> None:
        """Enter a partial page that no sequence will extend, unless its tokens are known."""
        if self.longest(before, tokens)[1] < len(tokens):
            self._enter(page, Entry(before, tuple(tokens), None))

    def remove(self, page: int) -> None:
        """Forget a page, whose content is about to change."""
        entry = self._entries.pop(page)
        if entry.digest is not None:
            del self._pages[entry.digest]
        after = self._after[entry.before]
        del after[page]
        if not after:
            del self._after[entry.before]

    def find(self, digest: bytes, before: bytes, tokens: Sequence[int]) -> int | None:
        """The full page with this digest, if it follows `before` and holds these very tokens."""
        page = self._pages.get(digest)
        if page is None:
            return None
        entry = self._entries[page]
        return page if entry.before == before and entry.tokens == tuple(tokens) else None

    def longest(self, before: bytes, tokens: Sequence[int]) -> tuple[int, int]:
        """The page after `before` that begins with most of `tokens`, and how many; (-1, 0) if none
        does."""
        best = (-1, 0)
        for page in islice(reversed(self._after.get(before, {})), _TAILS):
            count = _common(self._entries[page].tokens, tokens)
            if count > best[1]:
                best = (page, count)
        return best

    def _enter(self, page: int, entry: Entry) -> None:
        self._entries[page] = entry
        self._after.setdefault(entry.before, {})[page] = None


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of equal tokens at the beginning of both."""
    count = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        count += 1
    return count
