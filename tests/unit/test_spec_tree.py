"""Shapes of drafted trees: closed under parents and ranks, and nothing else."""

from __future__ import annotations

import json

import pytest

from lora_host.errors import RequestError
from lora_sdk.step.tree_shape import MAX_NODES, TreeShape


def test_a_chain_is_one_child_after_another() -> None:
    chain = TreeShape.chain(4)
    assert chain.parents == (-1, 0, 1, 2)
    assert (chain.size, chain.depth, chain.width) == (4, 3, 1)


def test_size_one_is_no_speculation() -> None:
    assert TreeShape() == TreeShape.chain(1)
    assert (TreeShape().size, TreeShape().depth, TreeShape().width) == (1, 0, 0)


def test_widths_are_children_by_depth() -> None:
    tree = TreeShape.by_width((3, 2, 2, 1))
    assert tree.size == 34
    assert [len(level) for level in tree.levels] == [1, 3, 6, 12, 12]
    assert [tree.ranks[child] for child in tree.children(0)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("parents", "ranks", "found"),
    [
        ((), (), "0 parents"),
        ((-1, 0), (0,), "1 ranks"),
        ((0,), (0,), "parent 0"),
        ((-1,), (1,), "rank 1"),
        ((-1, 1), (0, 0), "parent 1"),
        ((-1, -1), (0, 0), "parent -1"),
        ((-1, 0, 0), (0, 0, 0), "rank 0 under node 0"),
        ((-1, 0, 0), (0, 1, 0), "rank 1 under node 0"),
        ((-1, 0), (0, 1), "rank 1 under node 0"),
        (tuple(range(-1, MAX_NODES)), (0,) * (MAX_NODES + 1), str(MAX_NODES + 1)),
    ],
)
def test_what_is_not_closed_is_refused(
    parents: tuple[int, ...], ranks: tuple[int, ...], found: str
) -> None:
    with pytest.raises(RequestError, match=found):
        TreeShape(parents, ranks)


def test_a_tree_survives_json() -> None:
    tree = TreeShape.by_width((2, 1))
    assert TreeShape.from_json(json.loads(json.dumps(tree.to_json()))) == tree


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"parents": [-1]},
        {"parents": [-1], "ranks": [True]},
        {"parents": -1, "ranks": 0},
    ],
)
def test_other_json_is_refused(value: object) -> None:
    with pytest.raises(RequestError):
        TreeShape.from_json(value)


def test_within_cuts_what_lies_deeper() -> None:
    tree = TreeShape.by_width((2, 2))
    assert tree.within(1) == TreeShape.by_width((2,))
    assert tree.within(0) == TreeShape()
    assert tree.within(2) is tree
