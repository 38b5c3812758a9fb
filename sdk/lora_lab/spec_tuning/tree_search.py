"""The best tree of every size by scores of its nodes (tree-speculation paper, III.C).

A node's score is the number of rounds in which its token was accepted. A child's score is never
above its parent's, so the best nodes of a maximal tree form a tree. The paper counts the rounds of
decoding with the maximal tree. A smaller tree gives other rounds. So scores are also computed with
the maximal tree cut at every depth, and again with the tree found. The tree that emits most wins.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import Acceptance, Rounds, node_indices, rounds_of
from lora_lab.spec_tuning.comparison import gain
from lora_sdk.step.tree_shape import MAX_NODES, TreeShape

LEVELS = 12
"""Levels of the maximal tree. Its nodes are spread evenly over them."""

ROUNDS_OF_SCORING = 4
"""Max number of times that scores are computed again with the tree found."""

Scores = NDArray[np.int64]


@cache
def level_paths(levels: int, width: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Nodes of a tree of `width` nodes per level, as paths of ranks, by level. Of all children of
    the level above, those with the smallest product of (rank + 1) are used: without measurements, a
    lower rank is more likely."""
    found: list[tuple[tuple[int, ...], ...]] = []
    above: Sequence[tuple[int, ...]] = [()]
    for _ in range(levels):
        children = [(*path, rank) for path in above for rank in range(width)]
        children.sort(key=lambda path: (prod(rank + 1 for rank in path), path))
        found.append(tuple(children[:width]))
        above = found[-1]
    return tuple(found)


def tree_of(paths: Sequence[tuple[int, ...]]) -> TreeShape:
    """The tree with these nodes below the root. Parents and lower ranks must come first."""
    index: dict[tuple[int, ...], int] = {(): 0}
    parents, ranks = [-1], [0]
    for path in paths:
        index[path] = len(parents)
        parents.append(index[path[:-1]])
        ranks.append(path[-1])
    return TreeShape(tuple(parents), tuple(ranks))


def maximal_tree(levels: int = LEVELS, width: int = (MAX_NODES - 1) // LEVELS) -> TreeShape:
    """The tree that is scored, evenly spread over its levels. By default it has the max size of a
    tree."""
    return tree_of([path for level in level_paths(levels, width) for path in level])


def width_tree(size: int, levels: int, width: int) -> TreeShape:
    """`size` rows that fill an even tree level by level (the paper's width-based trees)."""
    paths = [path for level in level_paths(levels, width) for path in level]
    return tree_of(_first(paths, size))


def depth_tree(size: int, levels: int, width: int) -> TreeShape:
    """`size` rows that are added level by level in rotation (depth-based trees)."""
    even = level_paths(levels, width)
    return tree_of(_first([even[level][n] for n in range(width) for level in range(levels)], size))


def _first(paths: list[tuple[int, ...]], size: int) -> list[tuple[int, ...]]:
    if not 1 <= size <= len(paths) + 1:
        raise RequestError(f"a tree of {size} rows; this shape has 1 to {len(paths) + 1}")
    return paths[: size - 1]


def scores(found: Acceptance, counted: TreeShape) -> Scores:
    """Number of rounds in which each node of the maximal tree was accepted, over the rounds of
    decoding with `counted`: int64 [nodes]. The root's is the number of rounds."""
    maximal = found.maximal
    roots = rounds_of(counted, found).roots
    score = np.bincount(found.deepest[roots], minlength=maximal.size)
    for node in range(maximal.size - 1, 0, -1):  # a round that accepts a node accepts its parent
        score[maximal.parents[node]] += score[node]
    return score


def best_nodes(maximal: TreeShape, score: Scores, size: int) -> TreeShape:
    """The `size` nodes of `maximal` with the highest scores, including the root, closed under
    parents and siblings of lower rank. Ties: the earlier node."""
    if not 1 <= size <= maximal.size:
        raise RequestError(f"a tree of {size} rows; the maximal tree has {maximal.size}")
    kept = [0]
    waiting = [(-int(score[child]), child) for child in maximal.children(0)[:1]]
    while len(kept) < size:
        _, node = heapq.heappop(waiting)
        kept.append(node)
        siblings = maximal.children(maximal.parents[node])
        following = siblings[maximal.ranks[node] + 1 : maximal.ranks[node] + 2]
        for other in (*following, *maximal.children(node)[:1]):
            heapq.heappush(waiting, (-int(score[other]), other))
    indices = {node: index for index, node in enumerate(kept)}
    return TreeShape(
        tuple(indices[maximal.parents[node]] if node else -1 for node in kept),
        tuple(maximal.ranks[node] for node in kept),
    )


def search_trees(found: Acceptance, largest: int) -> dict[int, TreeShape]:
    """The best tree of every size from 1 to `largest` rows, by scores on these texts.

    RequestError: `largest` is beyond the maximal tree."""
    limits = [found.maximal.within(depth) for depth in range(1, found.maximal.depth + 1)]
    shared = [(limit, _shared(found, limit, largest)) for limit in limits]
    trees = {1: TreeShape()}
    for size in range(2, largest + 1):
        starts = [best_nodes(limit, score, size) for limit, score in shared if limit.size >= size]
        trees[size] = _best(found, size, largest, starts)
    return trees


def even_shape(largest: int) -> tuple[int, int]:
    """Levels and width of the square even tree that has a node for each of `largest` rows."""
    side = isqrt(max(largest - 1, 1))
    side += side * side < largest - 1
    return side, side


def plain_shapes(size: int, largest: int) -> tuple[TreeShape, TreeShape]:
    """The width-based and the depth-based tree of `size` rows."""
    shape = even_shape(largest)
    return width_tree(size, *shape), depth_tree(size, *shape)


def _shared(found: Acceptance, limit: TreeShape, largest: int) -> Scores:
    """Scores of the nodes of `limit`, a maximal tree cut in depth, over the rounds of decoding with
    its best tree of the largest size."""
    score = scores(found, limit)
    nodes = node_indices(limit, found.maximal)
    best = best_nodes(limit, score[nodes], min(largest, limit.size))
    return scores(found, best)[nodes]


def _best(found: Acceptance, size: int, largest: int, starts: Sequence[TreeShape]) -> TreeShape:
    """The searched tree that emits most. A plain shape if the gain over it is within the standard
    error, so that the choice is not left to chance."""
    plain = _emits_most(found, plain_shapes(size, largest))
    if not starts:
        return plain.tree
    searched = _refined(found, _emits_most(found, starts))
    more, error = gain(searched, plain, len(found.texts))
    return searched.tree if more > error else plain.tree


def _emits_most(found: Acceptance, trees: Sequence[TreeShape]) -> Rounds:
    return max((rounds_of(tree, found) for tree in dict.fromkeys(trees)), key=lambda r: r.aat)


def _refined(found: Acceptance, start: Rounds) -> Rounds:
    """`start`, or the tree of its size from the scores of its own rounds, repeatedly, whichever
    emits most."""
    best, tree = start, start.tree
    seen = {tree}
    for _ in range(ROUNDS_OF_SCORING):
        tree = best_nodes(found.maximal, scores(found, tree), start.tree.size)
        if tree in seen:
            break
        seen.add(tree)
        best = max(best, rounds_of(tree, found), key=lambda rounds: rounds.aat)
    return best
