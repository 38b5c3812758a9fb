"""Sequences that continue other ones, all at once, as a step of a beam search does."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lora_sdk.kv.header_queue import HeaderQueue, KvOp
from lora_sdk.kv.pages import PAGE_POSITIONS, KvSequence, PagePool, PageTables, held, pages_for


def reorder(
    tables: PageTables, pool: PagePool, queue: HeaderQueue, parents: Mapping[int, int]
) -> None:
    """See KvCache.reorder."""
    copied = copies(tables, parents)
    if not has_pages(tables, pool, copied):
        raise tables.exhausted()
    continued = {}
    for child, parent in parents.items():
        if child == parent:
            continue
        source = tables.get(parent)
        tokens = source.tokens
        pages = source.pages[: pages_for(len(tokens))]
        if child in copied:
            last, pages[-1] = pages[-1], tables.take(child)
            queue.add(KvOp.copy(last, pages[-1], len(tokens) % PAGE_POSITIONS))
        for page in held(pages[: -1 if child in copied else None]):
            pool.share(page)
        continued[child] = KvSequence(
            pages,
            list(tokens),
            digests=None if source.digests is None else list(source.digests),
            vectors=dict(source.vectors),
            imported=source.imported,
            lost=list(source.lost),
        )
    for child, continuation in continued.items():
        tables.replace(child, continuation)


def has_pages(tables: PageTables, pool: PagePool, copied: Collection[int]) -> bool:
    """Whether each of these sequences can take a page now."""
    unreserved = sum(not tables.get(child).reserved for child in copied)
    return unreserved <= max(0, tables.free_pages) and len(copied) <= pool.available


def copies(tables: PageTables, parents: Mapping[int, int]) -> set[int]:
    """The sequences that need a copy of their new parent's last page: it is partial, and the parent
    itself or another of its continuations keeps it."""
    kept = {sequence for sequence in parents.values() if parents.get(sequence) == sequence}
    kept |= set(parents.values()) - set(parents)
    copied = set()
    for child, parent in parents.items():
        if child == parent or not len(tables.get(parent).tokens) % PAGE_POSITIONS:
            continue
        if parent in kept:
            copied.add(child)
        kept.add(parent)
    return copied
