"""Trees searched by scores, on what the demo model's own draft gets right on held-out prompts."""

from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_lab.spec_tuning.aat import choose_curve, fit_sizes
from lora_lab.spec_tuning.acceptance import Acceptance, TextRanks, rounds_of
from lora_lab.spec_tuning.acceptance_file import Measured, load_measured
from lora_lab.spec_tuning.tree_search import (
    best_nodes,
    depth_tree,
    even_shape,
    maximal_tree,
    plain_shapes,
    scores,
    search_trees,
    width_tree,
)
from lora_sdk.step.tree_shape import TreeShape
from tests.bootstrap import bootstrap_gain

LARGEST = 64
MEASURED = Path(__file__).parents[1] / "data" / "spec_demo_draft.npz"
"""`lora lab spec collect` of the demo model with its draft: 348 prompts, 348 held out."""


@pytest.fixture(scope="module")
def measured() -> Measured:
    return load_measured(MEASURED)


@pytest.fixture(scope="module")
def searched(measured: Measured) -> dict[int, TreeShape]:
    return search_trees(measured.search, LARGEST)


def test_plain_shapes() -> None:
    assert even_shape(64) == (8, 8) and even_shape(10) == (3, 3) and even_shape(11) == (4, 4)
    assert width_tree(4, 3, 3) == TreeShape.by_width((3,))
    assert depth_tree(4, 3, 3) == TreeShape.chain(4)
    assert depth_tree(7, 3, 3).depth == 3 and depth_tree(7, 3, 3).width == 2
    for tree in plain_shapes(64, 64):
        assert [len(level) for level in tree.levels] == [1, *[8] * 7, 7]
    with pytest.raises(RequestError, match="1 to 10"):
        width_tree(11, 3, 3)


def test_the_maximal_tree_is_even() -> None:
    tree = maximal_tree()
    assert [len(level) for level in tree.levels[1:]] == [21] * 12


def test_scores_count_accepted_nodes() -> None:
    ranks = np.array([[0, 0], [1, 0], [0, 1], [0, 0], [9, 9]], np.uint8)
    found = Acceptance(TreeShape.by_width((2, 2)), (TextRanks(1, ranks),))
    # Plain decoding visits every root: three begin with rank 0, one with rank 1.
    score = scores(found, TreeShape())
    tree = found.maximal
    assert score[0] == 5
    assert [score[node] for node in tree.children(0)] == [3, 1]
    assert [score[node] for node in tree.children(tree.children(0)[0])] == [2, 1]
    assert [score[node] for node in tree.children(tree.children(0)[1])] == [1, 0]
    # A chain of three is at root 3 behind the first round, then at the last.
    assert scores(found, TreeShape.chain(3)).tolist() == [2, 2, 0, 2, 0, 0, 0]


def test_the_best_nodes_are_a_closed_tree_of_the_highest_scores() -> None:
    maximal = TreeShape.by_width((3, 3))
    score = np.zeros(maximal.size, np.int64)
    first, second, third = maximal.children(0)
    score[[0, first, second, third]] = [100, 60, 30, 5]
    score[list(maximal.children(first))] = [20, 40, 1]  # the second looks better by chance
    score[list(maximal.children(second))] = [10, 2, 1]
    assert best_nodes(maximal, score, 1) == TreeShape()
    assert best_nodes(maximal, score, 3) == TreeShape.by_width((2,))
    five = best_nodes(maximal, score, 5)  # rank 0 is taken first, then rank 1 below it
    assert five == TreeShape((-1, 0, 0, 1, 1), (0, 0, 1, 0, 1))
    assert best_nodes(maximal, score, maximal.size).size == maximal.size
    with pytest.raises(RequestError, match="maximal tree has 13"):
        best_nodes(maximal, score, 14)


def test_every_size_is_searched(searched: dict[int, TreeShape]) -> None:
    assert [tree.size for tree in searched.values()] == list(range(1, LARGEST + 1))


@pytest.mark.slow
def test_searched_trees_are_better_on_held_out_text(
    measured: Measured, searched: dict[int, TreeShape]
) -> None:
    """III.C and figure 6: at no size worse than width- or depth-based trees, and better on average
    over sizes 4 to 64, by paired differences."""
    held_out = measured.held_out
    ours = {size: rounds_of(searched[size], held_out) for size in range(2, LARGEST + 1)}
    for shape in (0, 1):
        theirs = {size: rounds_of(plain_shapes(size, LARGEST)[shape], held_out) for size in ours}
        for size in ours:
            assert ours[size].aat >= theirs[size].aat, (size, shape)
        pairs = range(4, LARGEST + 1)
        interval = bootstrap_gain(
            [ours[size] for size in pairs], [theirs[size] for size in pairs], len(held_out.texts)
        )
        assert interval.low > 0.1, interval


def test_a_logarithm_describes_aat(measured: Measured, searched: dict[int, TreeShape]) -> None:
    """Equation 3, fitted to five sizes on the searched prompts, tested on 58 others on held-out
    ones."""
    sizes = range(2, LARGEST + 1)
    fitted = {s: rounds_of(searched[s], measured.search).aat for s in fit_sizes(LARGEST)}
    held_out = {s: rounds_of(searched[s], measured.held_out).aat for s in sizes}
    chosen = choose_curve(fitted, held_out)
    assert chosen.used == "fit" and chosen.r2 >= 0.98
    assert len(chosen.fitted) == 5 and len(chosen.tested) == 58
