"""Speculation inside the generation loop: drafted rows join a sequence's pending one.

Each decoding sequence may get a tree of rows instead of one; the generator verifies them with the
step that would have run anyway, and tokens stay those of plain decoding. The tree is chosen anew
for every step by the sequence's context. Where several sequences decode, they share the rows that
one alone would get.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lora_sdk.core.kvcache import KvCache
from lora_sdk.core.speculation_statistics import SpeculationStatistics
from lora_sdk.core.step import StepResult
from lora_sdk.core.verify import Tree
from lora_sdk.spec.proposer import Drafting, Hidden, Proposer
from lora_sdk.spec.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.engine.scheduler import Slice, Track

Choose = Callable[[int], TreeShape]
"""The tree to draft for a root that sees so many positions, itself included."""

_LOOK_AHEAD = 64  # tokens for which the boards' own loop may run before the choice is made again


@dataclass
class SequenceDraft:
    """The proposals of a running sequence, and how many of its committed tokens they know of."""

    drafting: Drafting
    known: int = 0
    hidden: list[Hidden] = field(default_factory=list)  # of the tokens from `known` on
    chosen: int = 1  # rows of the tree that was last chosen
    seconds: float = 0.0  # that the last proposal took, measured

    def fork(self) -> SequenceDraft:
        """The same for a sequence that shares the committed tokens."""
        return SequenceDraft(self.drafting.fork(), self.known, list(self.hidden))

    def close(self) -> None:
        """Give back what the proposer holds."""
        self.drafting.close()


class Speculation:
    """Drafts for the sequences of one engine."""

    def __init__(
        self, proposer: Proposer, choose: Choose, cache: KvCache, hidden_taps: Sequence[int] = ()
    ) -> None:
        """`hidden_taps`: layers whose inputs the boards return, the proposer's among them."""
        self.proposer = proposer
        self.statistics = SpeculationStatistics()
        self._choose = choose
        self._cache = cache
        self._taps = [list(hidden_taps).index(layer) for layer in proposer.hidden_layers]

    @property
    def wants_hidden(self) -> bool:
        """Whether every row must return hidden states."""
        return bool(self._taps)

    def join(self, track: Track) -> None:
        """Have proposals for a sequence from its first token on."""
        if track.draft is None:
            track.draft = SequenceDraft(self.proposer.open())

    def extend(self, slices: Sequence[Slice], room: int) -> list[Slice]:
        """The slices, with drafted trees where a sequence decodes; at most `room` rows in all."""
        spare = room - sum(chunk.count for chunk in slices)
        decoding = sum(chunk.decoding for chunk in slices)
        extended = []
        for chunk in slices:
            if chunk.decoding and chunk.track.draft is not None:
                tree = self._draft(chunk.track, chunk.track.draft, spare + 1, decoding)
                spare -= len(tree.tokens) - 1
                chunk = type(chunk)(chunk.track, chunk.count, tree)
            extended.append(chunk)
        return extended

    def plain_tokens(self, track: Track) -> int:
        """How many tokens the boards' own loop may decode before a tree is wanted."""
        if self.wants_hidden:
            return 0
        first = self._cache.length(track.sequence) + 1
        for later in range(min(_LOOK_AHEAD, track.sample.left)):
            if self._choose(first + later).size > 1:
                return later
        return min(_LOOK_AHEAD, track.sample.left)

    def note_hidden(self, track: Track, result: StepResult, rows: Sequence[int]) -> None:
        """`rows` of a step, by index, were committed: keep what the proposer wants of them."""
        if not self._taps or track.draft is None:
            return
        assert result.hidden is not None  # asked for by these rows
        indices = [result.hidden_rows.index(row) for row in rows]
        track.draft.hidden.append(result.hidden[np.ix_(self._taps, indices)])

    def count(self, track: Track, tree: Tree, emitted: int) -> None:
        """A verification emitted so many tokens."""
        request, draft = track.request, track.draft
        if request.speculation is None:
            request.speculation = SpeculationStatistics()
        for statistics in (self.statistics, request.speculation):
            if draft is None:
                statistics.add(1, tree.parents, emitted)
            else:
                statistics.add(draft.chosen, tree.parents, emitted, draft.seconds)

    def _draft(self, track: Track, draft: SequenceDraft, room: int, sharing: int) -> Tree:
        pending = track.pending
        context = self._cache.length(track.sequence) + 1
        wanted = self._choose(context)
        draft.chosen, draft.seconds = wanted.size, 0.0
        size = max(1, min(wanted.size // sharing, room))
        depth = min(track.sample.left - 1, self._cache.context - context)
        tree = wanted.first(size).within(depth)
        if tree.size == 1:
            return Tree.chain(pending)
        began = time.perf_counter()
        self._update(track, draft)
        proposed = draft.drafting.propose(pending, tree)
        draft.seconds = time.perf_counter() - began
        return named(tree, proposed)

    def _update(self, track: Track, draft: SequenceDraft) -> None:
        """Give the proposer what was committed since it was last asked."""
        tokens = self._cache.tokens(track.sequence, draft.known)
        hidden = np.concatenate(draft.hidden, axis=1) if draft.hidden else None
        draft.drafting.accept(tokens, hidden)
        draft.known += len(tokens)
        draft.hidden.clear()


def named(tree: TreeShape, tokens: Sequence[int | None]) -> Tree:
    """The nodes of a tree that have a token."""
    index: dict[int, int] = {-1: -1}
    kept: list[int] = []
    parents: list[int] = []
    for node, token in enumerate(tokens):
        if token is not None and tree.parents[node] in index:
            index[node] = len(kept)
            parents.append(index[tree.parents[node]])
            kept.append(token)
    return Tree(tuple(kept), tuple(parents))
