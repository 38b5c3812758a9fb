"""Rows from tokens: positions from parents, scratch slots from the cache, checks before a step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lora_host.errors import RequestError
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.step.step import Row


def build_rows(
    cache: KvCache,
    sequence: int,
    tokens: Sequence[int],
    parents: Sequence[int] | None = None,
    *,
    after: int = -1,
    logits: Collection[int] = (),
    argmax: Collection[int] = (),
    hidden: Collection[int] = (),
    final: Collection[int] = (),
) -> list[Row]:
    """Rows of one sequence after its last committed position, or after the row in slot `after`.

    `parents[i]` is an index into `tokens` below i, or -1 for a root; None makes a chain. `logits`,
    `argmax`, `hidden` and `final` are indices of the rows that return them. Takes scratch
    slots: run the rows, or return the slots with `cache.release_slots`.
    """
    if parents is None:
        parents = range(-1, len(tokens) - 1)
    else:
        parents = list(parents)
        _check_tree(tokens, parents)
    first = cache.length(sequence)
    if after >= 0:
        cache.check_parent(sequence, after)
        known = cache.uncommitted(sequence)
        if after not in known:
            raise RequestError(f"slot {after} holds no uncommitted row of sequence {sequence}")
        first = known[after].position + 1
    positions: list[int] = []
    for parent in parents:
        positions.append(first if parent < 0 else positions[parent] + 1)
    if positions and max(positions) >= cache.context:
        raise RequestError(
            f"sequence {sequence} would reach position {max(positions)}; the context has "
            f"{cache.context} positions"
        )
    slots = cache.take_slots(len(tokens))
    return [
        Row(
            sequence,
            positions[i],
            int(token),
            slots[i],
            after if parents[i] < 0 else slots[parents[i]],
            want_logits=i in logits,
            want_argmax=i in argmax,
            want_hidden=i in hidden,
            want_final=i in final,
        )
        for i, token in enumerate(tokens)
    ]


def check_rows(cache: KvCache, rows: Sequence[Row], row_limit: int, vocabulary: int) -> None:
    """RequestError if a row's position, parent, slot or token contradicts the cache."""
    if len(rows) > row_limit:
        raise RequestError(f"{len(rows)} rows in a step; the overlay takes at most {row_limit}")
    positions: dict[tuple[int, int], int] = {}
    used: set[int] = set()
    for index, row in enumerate(rows):
        if not isinstance(row, Row):
            raise RequestError(f"row {index} is {row!r:.100}; expected a Row, as rows() returns")
        known = cache.uncommitted(row.sequence)
        key = (row.sequence, row.parent)
        if row.parent == -1:
            expected = cache.length(row.sequence)
        elif key in positions:
            expected = positions[key] + 1
        elif row.parent in known:
            expected = known[row.parent].position + 1
        else:
            cache.check_parent(row.sequence, row.parent)
            raise RequestError(
                f"row {index}: parent slot {row.parent} is no uncommitted row of sequence "
                f"{row.sequence} nor an earlier row of this step"
            )
        if row.position != expected or row.position >= cache.context:
            raise RequestError(
                f"row {index}: position {row.position}; expected {expected}, below {cache.context}"
            )
        if row.slot in used or not cache.is_taken(row.slot):
            raise RequestError(f"row {index}: slot {row.slot} was not taken for it")
        if row.vector is None and not 0 <= row.token < vocabulary:
            raise RequestError(f"row {index}: token {row.token}; expected 0..{vocabulary - 1}")
        used.add(row.slot)
        positions[(row.sequence, row.slot)] = row.position


def _check_tree(tokens: Sequence[int], parents: Sequence[int]) -> None:
    if len(tokens) != len(parents):
        raise RequestError(
            f"{len(tokens)} tokens and {len(parents)} parents; expected one per token"
        )
    for index, parent in enumerate(parents):
        if not -1 <= parent < index:
            raise RequestError(
                f"parent of node {index} is {parent}; expected -1 or a node before it"
            )
