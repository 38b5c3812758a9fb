"""Look-up proposes what followed before: longest n-gram first, then the latest."""

from __future__ import annotations

import pytest

from lora_host.errors import RequestError
from lora_sdk.spec.lookup import Lookup
from lora_sdk.step.tree_shape import TreeShape


def proposed(tokens: list[int], tree: TreeShape) -> list[int | None]:
    drafting = Lookup().open()
    drafting.accept(tokens[:-1])
    return drafting.propose(tokens[-1], tree)


def test_a_chain_goes_on_as_the_text_did() -> None:
    found = proposed([1, 2, 3, 4, 5, 6, 9, 2, 3], TreeShape.chain(5))
    assert found == [3, 4, 5, 6, 9]


def test_a_branch_is_at_most_twice_as_deep_as_the_match() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for match in range(1, 4):
        found = proposed([*text, 0, *text[3 - match : 3]], TreeShape.chain(9))
        assert sum(token is not None for token in found) == 1 + min(2 * match, 7)


def test_a_repetition_goes_on_beyond_the_end() -> None:
    assert proposed([7, 8, 9, 7, 8, 9, 7, 8], TreeShape.chain(6)) == [8, 9, 7, 8, 9, 7]


def test_nothing_is_proposed_where_nothing_repeats() -> None:
    assert proposed([1, 2, 3, 4], TreeShape.chain(3)) == [4, None, None]
    assert proposed([1], TreeShape.chain(3)) == [1, None, None]


def test_candidates_are_of_the_longest_n_gram_first_and_then_the_latest() -> None:
    #  after (1, 2): 5; after (2,) alone: 5, 6, 7 in this order, so 7 is the latest
    text = [1, 2, 5, 3, 2, 6, 4, 2, 7, 8, 1, 2]
    assert proposed(text, TreeShape.by_width((4,))) == [2, 5, 7, 6, None]


def test_siblings_grow_their_own_branches() -> None:
    text = [1, 2, 5, 50, 1, 2, 6, 60, 1, 2]
    tree = TreeShape((-1, 0, 0, 1, 2), (0, 0, 1, 0, 0))
    assert proposed(text, tree) == [2, 6, 5, 60, 50]


def test_tokens_accepted_one_by_one_or_together_are_the_same() -> None:
    text = [i * i % 7 for i in range(60)]
    whole, single = Lookup(3).open(), Lookup(3).open()
    whole.accept(text[:-1])
    for token in text[:-1]:
        single.accept([token])
    tree = TreeShape.by_width((3, 2, 1))
    assert whole.propose(text[-1], tree) == single.propose(text[-1], tree)
    forked = single.fork()
    forked.accept([text[-1], 6, 6, 6])
    assert whole.propose(text[-1], tree) == single.propose(text[-1], tree)


@pytest.mark.parametrize("longest", [0, 65])
def test_lengths_that_mean_nothing_are_refused(longest: int) -> None:
    with pytest.raises(RequestError, match="1 to 64"):
        Lookup(longest)
