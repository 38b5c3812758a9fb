"""The shape of a draft tree, before its tokens are known.

Node 0 is the root row, the pending token. Any other node is the r-th most likely token that the
proposer gives after its parent. A shape is closed: it contains the parent of each node and the
siblings of lower rank, since a less likely sibling is never worth more than a likelier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lora_host.errors import RequestError

MAX_NODES = 256


@dataclass(frozen=True)
class TreeShape:
    """`parents[i]`: parent of node i, below i; -1 for the root. `ranks[i]`: its rank among the
    parent's children, 0 for the best.

    RequestError: the tree is not closed.
    """

    parents: tuple[int, ...] = (-1,)
    ranks: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        parents, ranks = self.parents, self.ranks
        if len(parents) != len(ranks) or not 1 <= len(parents) <= MAX_NODES:
            raise RequestError(
                f"a tree has as many parents as ranks, 1 to {MAX_NODES}; found {len(parents)} "
                f"parents and {len(ranks)} ranks"
            )
        if parents[0] != -1 or ranks[0] != 0:
            raise RequestError(
                f"node 0 of a tree is its root, parent -1 and rank 0; found parent {parents[0]} "
                f"and rank {ranks[0]}"
            )
        following = [0] * len(parents)  # rank that the next child of each node must have
        for node in range(1, len(parents)):
            parent, rank = parents[node], ranks[node]
            if not 0 <= parent < node:
                raise RequestError(
                    f"node {node} of a tree has parent {parent}; parents come before their "
                    f"children, 0 to {node - 1}"
                )
            if rank != following[parent]:
                raise RequestError(
                    f"node {node} of a tree has rank {rank} under node {parent}; the next free "
                    f"rank there is {following[parent]}"
                )
            following[parent] += 1

    @classmethod
    def chain(cls, size: int) -> TreeShape:
        """A chain of best candidates: `size` rows, the root included."""
        return cls(tuple(range(-1, size - 1)), (0,) * size)

    @classmethod
    def by_width(cls, widths: Sequence[int]) -> TreeShape:
        """`widths[d]` children under every node of depth d."""
        parents, ranks, level = [-1], [0], [0]
        for width in widths:
            below: list[int] = []
            for node in level:
                for rank in range(width):
                    below.append(len(parents))
                    parents.append(node)
                    ranks.append(rank)
            level = below
        return cls(tuple(parents), tuple(ranks))

    @property
    def size(self) -> int:
        """Rows of a verification, the root included."""
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; the root's is 0."""
        depths = [0] * self.size
        for node in range(1, self.size):
            depths[node] = depths[self.parents[node]] + 1
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Drafted tokens on the longest path."""
        return max(self.depths)

    @cached_property
    def _children(self) -> tuple[tuple[int, ...], ...]:
        below: list[list[int]] = [[] for _ in self.parents]
        for node in range(1, self.size):
            below[self.parents[node]].append(node)
        return tuple(map(tuple, below))

    def children(self, node: int) -> tuple[int, ...]:
        """Nodes whose parent is `node`, by rank."""
        return self._children[node]

    @cached_property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Nodes by depth, the root's first."""
        levels: list[list[int]] = [[] for _ in range(self.depth + 1)]
        for node, depth in enumerate(self.depths):
            levels[depth].append(node)
        return tuple(map(tuple, levels))

    @cached_property
    def width(self) -> int:
        """Max children of a node."""
        return max(len(children) for children in self._children)

    def first(self, count: int) -> TreeShape:
        """The tree of the first `count` nodes, at least one. It is closed, too."""
        if count >= self.size:
            return self
        return TreeShape(self.parents[:count], self.ranks[:count])

    def within(self, depth: int) -> TreeShape:
        """This tree without the nodes deeper than `depth`."""
        if depth >= self.depth:
            return self
        kept = [node for node in range(self.size) if self.depths[node] <= depth]
        kept_index = {node: index for index, node in enumerate(kept)}
        parents = tuple(kept_index[self.parents[node]] if node else -1 for node in kept)
        return TreeShape(parents, tuple(self.ranks[node] for node in kept))

    def to_json(self) -> dict[str, list[int]]:
        """`{"parents": [...], "ranks": [...]}`."""
        return {"parents": list(self.parents), "ranks": list(self.ranks)}

    @classmethod
    def from_json(cls, value: object) -> TreeShape:
        """The tree written by `to_json`. RequestError for anything else."""
        if not isinstance(value, dict) or value.keys() != {"parents", "ranks"}:
            raise RequestError(
                f"a tree is an object with parents and ranks; found {str(value)[:80]}"
            )
        return cls(_integers(value["parents"], "parents"), _integers(value["ranks"], "ranks"))


def _integers(value: object, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(entry) is not int for entry in value):
        raise RequestError(f"{name} of a tree must be a list of integers; found {str(value)[:80]}")
    return tuple(value)
