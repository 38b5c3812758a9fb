"""A draft's acceptance on known texts: ranks, and the simulated rounds of any tree.

On the target's own text a draft's candidates depend only on the accepted tokens. So the rank of
every next token, measured once, gives the accepted path of each tree from each position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.step.tree_shape import TreeShape

MISSED = 255
"""Rank of a token that is not among the candidates."""

Ranks = NDArray[np.uint8]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class TextRanks:
    """Ranks along one text of the target. Token p + k + 1 is the `ranks[p, k]`-th candidate (0: the
    best, MISSED: none) of a draft that starts at the pending token p, after k accepted tokens.

    `ranks`: uint8 [roots, depth], one root per token of the target. `context`: number of positions
    that the first root attends to, including itself. `proposed`: bool [roots, nodes of the maximal
    tree], the nodes with a candidate of the draft, None for all."""

    context: int
    ranks: Ranks
    proposed: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.ranks.dtype != np.uint8 or self.ranks.ndim != 2 or not self.ranks.size:
            raise RequestError(
                f"ranks of a text are uint8 [roots, depth]; found {self.ranks.dtype} "
                f"{list(self.ranks.shape)}"
            )
        if self.proposed is not None and self.proposed.shape[:1] != self.ranks.shape[:1]:
            raise RequestError(
                f"{len(self.proposed)} rows of proposals for {len(self.ranks)} roots; expected as "
                "many"
            )
        if self.context < 1:
            raise RequestError(f"a text's first root sees {self.context} positions; expected 1 on")


def of_single_ranks(context: int, ranks: Sequence[int], depth: int) -> TextRanks:
    """Ranks of a draft whose candidates do not depend on the start of the round. `ranks[i]` is the
    rank of the i-th token after the first root. Roots with fewer than `depth` tokens after them are
    omitted."""
    clipped = np.minimum(np.asarray(ranks, dtype=np.int64), MISSED).astype(np.uint8)
    if len(clipped) < depth:
        raise RequestError(f"a text of {len(clipped)} tokens; expected at least {depth}")
    return TextRanks(context, np.lib.stride_tricks.sliding_window_view(clipped, depth).copy())


@dataclass(frozen=True)
class Acceptance:
    """The ranks of several texts for the nodes of a `maximal` tree. RequestError: no text, texts of
    different depth, or proposals for another number of nodes."""

    maximal: TreeShape
    texts: tuple[TextRanks, ...]

    def __post_init__(self) -> None:
        if not self.texts:
            raise RequestError("acceptance of no text; expected at least one")
        if len({text.ranks.shape[1] for text in self.texts}) > 1:
            raise RequestError("texts were ranked to different depths; expected the same for all")
        for text in self.texts:
            if (text.proposed is None) != (self.texts[0].proposed is None):
                raise RequestError("only some texts have proposals; expected all")
            if text.proposed is not None and text.proposed.shape[1] != self.maximal.size:
                raise RequestError(
                    f"proposals of {text.proposed.shape[1]} nodes; the maximal tree has "
                    f"{self.maximal.size}"
                )

    @cached_property
    def ranks(self) -> Ranks:
        """Ranks of all texts, concatenated: uint8 [roots, depth]."""
        return np.concatenate([text.ranks for text in self.texts])

    @cached_property
    def contexts(self) -> Integers:
        """Positions that each root attends to, including itself: int64 [roots]."""
        return np.concatenate([text.context + np.arange(len(text.ranks)) for text in self.texts])

    @cached_property
    def proposed(self) -> NDArray[np.bool_] | None:
        """Bool [roots, nodes of the maximal tree]; None if all were proposed."""
        found = [text.proposed for text in self.texts if text.proposed is not None]
        return np.concatenate(found) if found else None

    @cached_property
    def starts(self) -> Integers:
        """The first root of each text, then the total number of roots: int64 [texts + 1]."""
        return np.cumsum([0, *(len(text.ranks) for text in self.texts)])

    @cached_property
    def deepest(self) -> Integers:
        """The deepest node of the maximal tree that is accepted from each root: int64 [roots]."""
        return accepted_nodes(self.maximal, self.ranks)

    @cached_property
    def text_of(self) -> Integers:
        """The text that each root belongs to: int64 [roots]."""
        return np.repeat(np.arange(len(self.texts)), [len(text.ranks) for text in self.texts])


def accepted_nodes(tree: TreeShape, ranks: Ranks) -> Integers:
    """The deepest node accepted from each root of uint8 [roots, depth]: int64 [roots]. Nodes deeper
    than `depth` are never accepted."""
    below = np.full((tree.size, MISSED + 1), -1, dtype=np.int64)
    for node in range(1, tree.size):
        below[tree.parents[node], tree.ranks[node]] = node
    reached = np.zeros(len(ranks), dtype=np.int64)
    alive = np.arange(len(ranks))
    for column in ranks.T[: tree.depth]:
        following = below[reached[alive], column[alive]]
        alive = alive[following >= 0]
        reached[alive] = following[following >= 0]
    return reached


@dataclass(frozen=True)
class Rounds:
    """The rounds of decoding the texts with a tree, starting at each text's first root: root,
    deepest accepted node and text of each round, int64 [rounds]."""

    tree: TreeShape
    roots: Integers
    nodes: Integers
    texts: Integers

    @cached_property
    def emitted(self) -> Integers:
        """Tokens of each round, the accepted ones and the target's: int64 [rounds]."""
        return np.asarray(self.tree.depths, dtype=np.int64)[self.nodes] + 1

    @property
    def aat(self) -> float:
        """Mean tokens per round. RequestError: there is no round."""
        if not len(self.roots):
            raise RequestError("no round at these contexts; give more text")
        return float(self.emitted.mean())

    @property
    def leaf_share(self) -> float:
        """Share of rounds whose last accepted token is a leaf: the draft has not run it yet."""
        leaves = np.array([not self.tree.children(node) for node in range(self.tree.size)])
        return float(leaves[self.nodes].mean()) if len(self.nodes) else 0.0

    def only(self, chosen: NDArray[np.bool_]) -> Rounds:
        """The rounds selected by bool [rounds]."""
        return Rounds(self.tree, self.roots[chosen], self.nodes[chosen], self.texts[chosen])


def rounds_of(tree: TreeShape, found: Acceptance, contexts: range | None = None) -> Rounds:
    """Decode the texts with the tree. With `contexts`, only rounds whose root attends to a number
    of positions in that range are kept."""
    nodes = _accepted(tree, found)
    ahead = np.asarray(tree.depths, dtype=np.int64)[nodes] + 1
    at, stops = found.starts[:-1], found.starts[1:]
    visited = []
    while len(at):  # one round of every unfinished text
        visited.append(at)
        at = at + ahead[at]
        at, stops = at[at < stops], stops[at < stops]
    roots = np.sort(np.concatenate(visited))
    rounds = Rounds(tree, roots, nodes[roots], found.text_of[roots])
    if contexts is None:
        return rounds
    seen = found.contexts[roots]
    return rounds.only((seen >= contexts.start) & (seen < contexts.stop))


def _accepted(tree: TreeShape, found: Acceptance) -> Integers:
    """The deepest node of the tree that is accepted from each root. If the tree is part of the
    maximal tree, this is the deepest ancestor within it of the maximal tree's node."""
    maximal = found.maximal
    try:
        inside = node_indices(tree, maximal)
    except RequestError:
        return accepted_nodes(tree, found.ranks)
    ancestor = np.full(maximal.size, -1, dtype=np.int64)
    ancestor[inside] = np.arange(tree.size)
    for node in range(1, maximal.size):
        if ancestor[node] < 0:
            ancestor[node] = ancestor[maximal.parents[node]]
    return ancestor[found.deepest]


def lengths_of(rounds: Rounds, found: Acceptance) -> Counter[int]:
    """Rows of a verification, including the root -> number of rounds. A round has fewer rows than
    the tree if the draft has no candidate for some nodes."""
    if found.proposed is None:
        return Counter({rounds.tree.size: len(rounds.roots)})
    nodes = node_indices(rounds.tree, found.maximal)
    counts = found.proposed[rounds.roots][:, nodes].sum(axis=1)
    return Counter(counts.tolist())


def node_indices(tree: TreeShape, maximal: TreeShape) -> list[int]:
    """The index in the maximal tree of each of the tree's nodes. RequestError if there is none."""
    found = [0]
    for node in range(1, tree.size):
        siblings = maximal.children(found[tree.parents[node]])
        if tree.ranks[node] >= len(siblings):
            raise RequestError(
                f"node {node} of the tree is not in the maximal tree that was ranked"
            )
        found.append(siblings[tree.ranks[node]])
    return found
