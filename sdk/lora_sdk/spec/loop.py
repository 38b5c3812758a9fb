"""Speculation in the generation loop: adds drafted rows to a sequence's pending row.

Each decoding sequence may get a tree of rows instead of one row. The generator verifies them in the
step that would run anyway, and the tokens stay those of plain decoding. The tree is chosen for each
step by the sequence's context. If several sequences decode, they share the rows of one tree.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from lora_host.errors import (
    CommandError,
    LinkError,
    PlacementError,
    RowsLostError,
    TransportError,
)
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.opening.speculation_options import Choose
from lora_sdk.spec.proposer import Drafting, Hidden, Proposer
from lora_sdk.step.speculation_statistics import SpeculationStatistics
from lora_sdk.step.step import StepResult
from lora_sdk.step.tree_shape import TreeShape
from lora_sdk.step.verify import Tree

if TYPE_CHECKING:
    from lora_sdk.spec.draft_model import DraftBoard

_log = logging.getLogger("lora_sdk.recovery")

_MAX_PLAIN = 64  # tokens that the boards' own loop may decode before the tree is chosen again


@dataclass
class SequenceDraft:
    """Draft state of a running sequence. `known`: its committed tokens passed to `drafting`."""

    drafting: Drafting
    known: int = 0
    hidden: list[Hidden] = field(default_factory=list)  # of the tokens from `known` on
    chosen: int = 1  # rows of the last chosen tree
    seconds: float = 0.0  # duration of the last proposal, measured

    def fork(self) -> SequenceDraft:
        """The draft state of a forked sequence."""
        return SequenceDraft(self.drafting.fork(), self.known, list(self.hidden))

    def close(self) -> None:
        """Release the proposer's resources."""
        self.drafting.close()


class DraftedRequest(Protocol):
    """A request: what is counted of its drafts."""

    speculation: SpeculationStatistics | None


class DraftedSample(Protocol):
    """`left`: tokens that may still come."""

    @property
    def left(self) -> int: ...


class DraftedSequence(Protocol):
    """A running sequence, as drafts see it. `pending`: its last token, not yet on the boards."""

    draft: SequenceDraft | None

    @property
    def request(self) -> DraftedRequest: ...
    @property
    def sample(self) -> DraftedSample: ...
    @property
    def sequence(self) -> int: ...
    @property
    def pending(self) -> int: ...


class DraftedChunk(Protocol):
    """Rows of a sequence in the next step. `decoding`: its pending token alone."""

    @property
    def track(self) -> DraftedSequence: ...
    @property
    def count(self) -> int: ...
    @property
    def decoding(self) -> bool: ...
    def with_tree(self: Chunk, tree: Tree) -> Chunk:
        """The same, with drafts behind the pending token."""


Chunk = TypeVar("Chunk", bound=DraftedChunk)


class Speculation:
    """Drafts for the sequences of one engine."""

    def __init__(
        self, proposer: Proposer, choose: Choose, cache: KvCache, hidden_taps: Sequence[int] = ()
    ) -> None:
        """`hidden_taps`: layers whose inputs the boards return. They include the proposer's."""
        self.proposer = proposer
        self.statistics = SpeculationStatistics()
        self._choose = choose
        self._ended = False  # the proposer's own board is lost
        self._cache = cache
        self._taps = [list(hidden_taps).index(layer) for layer in proposer.hidden_layers]

    @property
    def wants_hidden(self) -> bool:
        """Whether every row must return hidden states."""
        return bool(self._taps)

    @property
    def draft_board(self) -> DraftBoard | None:
        """The board of a draft model, None for other proposers."""
        found: DraftBoard | None = getattr(self.proposer, "board", None)
        return found

    def join(self, track: DraftedSequence) -> None:
        """Create the draft state of a sequence, before its first token is committed."""
        if track.draft is None:
            track.draft = SequenceDraft(self.proposer.open())

    def extend(self, slices: Sequence[Chunk], max_rows: int) -> list[Chunk]:
        """The slices, with drafted trees for decoding sequences; at most `max_rows` rows in all."""
        spare = max_rows - sum(chunk.count for chunk in slices)
        decoding = sum(chunk.decoding for chunk in slices)
        extended = []
        for chunk in slices:
            if chunk.decoding and chunk.track.draft is not None:
                tree = self._draft(chunk.track, chunk.track.draft, spare + 1, decoding)
                spare -= len(tree.tokens) - 1
                chunk = chunk.with_tree(tree)
            extended.append(chunk)
        return extended

    def plain_tokens(self, track: DraftedSequence) -> int:
        """Number of tokens that the boards' own loop may decode before a tree is due."""
        if self.wants_hidden:
            return 0
        if self._ended:
            return track.sample.left
        first = self._cache.length(track.sequence) + 1
        for later in range(min(_MAX_PLAIN, track.sample.left)):
            if self._choose(first + later).size > 1:
                return later
        return min(_MAX_PLAIN, track.sample.left)

    def note_hidden(self, track: DraftedSequence, result: StepResult, rows: Sequence[int]) -> None:
        """Keep the hidden states that the proposer needs of `rows`, indices of committed rows."""
        if not self._taps or track.draft is None:
            return
        assert result.hidden is not None  # requested by these rows
        indices = [result.hidden_rows.index(row) for row in rows]
        track.draft.hidden.append(result.hidden[np.ix_(self._taps, indices)])

    def count(self, track: DraftedSequence, tree: Tree, emitted: int) -> None:
        """Count a verification that emitted `emitted` tokens."""
        request, draft = track.request, track.draft
        if request.speculation is None:
            request.speculation = SpeculationStatistics()
        for statistics in (self.statistics, request.speculation):
            if draft is None:
                statistics.add(1, tree.parents, emitted)
            else:
                statistics.add(draft.chosen, tree.parents, emitted, draft.seconds)

    def _draft(
        self, track: DraftedSequence, draft: SequenceDraft, max_rows: int, sharing: int
    ) -> Tree:
        pending = track.pending
        if self._ended:
            return Tree.chain(pending)
        context = self._cache.length(track.sequence) + 1
        shape = self._choose(context)
        draft.chosen, draft.seconds = shape.size, 0.0
        size = max(1, min(shape.size // sharing, max_rows))
        depth = min(track.sample.left - 1, self._cache.context - context)
        tree = shape.first(size).within(depth)
        if tree.size == 1:
            return Tree.chain(pending)
        began = time.perf_counter()
        try:
            self._update(track, draft)
            proposed = draft.drafting.propose(pending, tree)
        except RowsLostError:  # the next proposal begins anew
            return Tree.chain(pending)
        except (CommandError, LinkError, PlacementError, TransportError) as error:
            self._ended = True
            _log.warning("the draft's board failed, plain decoding from now on: %s", error)
            return Tree.chain(pending)
        draft.seconds = time.perf_counter() - began
        return named(tree, proposed)

    def _update(self, track: DraftedSequence, draft: SequenceDraft) -> None:
        """Pass the tokens committed since the last proposal to the proposer."""
        tokens = self._cache.tokens(track.sequence, draft.known)
        hidden = np.concatenate(draft.hidden, axis=1) if draft.hidden else None
        draft.drafting.accept(tokens, hidden)
        draft.known += len(tokens)
        draft.hidden.clear()


def named(tree: TreeShape, tokens: Sequence[int | None]) -> Tree:
    """The tree of the nodes that have a token."""
    index: dict[int, int] = {-1: -1}
    kept: list[int] = []
    parents: list[int] = []
    for node, token in enumerate(tokens):
        if token is not None and tree.parents[node] in index:
            index[node] = len(kept)
            parents.append(index[tree.parents[node]])
            kept.append(token)
    return Tree(tuple(kept), tuple(parents))
