"""The loop on scripted boards: whatever is drafted, tokens are plain decoding's and steps fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.engine.generator import Generator
from lora_sdk.spec.loop import Speculation, named
from lora_sdk.step.speculation_statistics import SpeculationStatistics
from lora_sdk.step.step import Row
from lora_sdk.step.tree_shape import TreeShape
from tests.scripted import Bench, greedy_tokens, logits_of

PROMPT = list(range(40))


class Oracle:
    """Drafts the true tokens; its k-th proposal of each sequence is wrong from depth `wrong(k)`."""

    name = "oracle"
    hidden_layers: tuple[int, ...] = ()

    def __init__(self, wrong: Callable[[int], int]) -> None:
        self.wrong = wrong
        self.open_drafts = 0

    def open(self) -> OracleDrafting:
        self.open_drafts += 1
        return OracleDrafting(self)

    def close(self) -> None: ...


class OracleDrafting:
    def __init__(self, proposer: Oracle) -> None:
        self.proposer = proposer
        self.tokens: list[int] = []
        self.turn = 0

    def accept(self, tokens: Sequence[int], hidden: object = None) -> None:
        self.tokens.extend(tokens)

    def propose(self, pending: int, tree: TreeShape) -> list[int | None]:
        wrong = self.proposer.wrong(self.turn)
        self.turn += 1
        found: list[int | None] = [pending] + [None] * (tree.size - 1)
        paths = {0: [*self.tokens, pending]}
        for node in range(1, tree.size):
            path = paths[tree.parents[node]]
            order = np.argsort(-logits_of(path))
            rank = tree.ranks[node] + (tree.depths[node] >= wrong)
            found[node] = int(order[rank])
            paths[node] = [*path, int(order[rank])]
        return found

    def fork(self) -> OracleDrafting:
        other = self.proposer.open()
        other.tokens, other.turn = list(self.tokens), self.turn
        return other

    def close(self) -> None:
        self.proposer.open_drafts -= 1


class Driven(Bench):
    def __init__(
        self,
        tree: TreeShape | Callable[[int], TreeShape],
        wrong: Callable[[int], int] = lambda k: 99,
        row_limit: int = 64,
        loop: bool = False,
        **sizes: int,
    ) -> None:
        super().__init__(**sizes)
        choose = (lambda context: tree) if isinstance(tree, TreeShape) else tree
        self.oracle = Oracle(wrong)
        self.speculation = Speculation(self.oracle, choose, self.cache)
        self.generator = Generator(
            self.stepper, self.cache, row_limit, self.loop if loop else None,
            speculation=self.speculation,
        )  # fmt: skip


@pytest.mark.parametrize(
    "tree", [TreeShape.chain(4), TreeShape.by_width((3, 2, 1)), TreeShape.by_width((2, 2))]
)
@pytest.mark.parametrize("wrong", [1, 2, 3, 99])
def test_tokens_are_plain_decodings_and_steps_are_fewer(tree: TreeShape, wrong: int) -> None:
    driven = Driven(tree, lambda k: 1 + (wrong + k) % 4)
    request = driven.submit(PROMPT)
    driven.finish()
    assert list(request.result().token_ids) == greedy_tokens(PROMPT, 20)
    counts = request.speculation
    assert counts is not None and counts.emitted == 19
    assert len(driven.runner.steps) == 1 + counts.verifications
    assert counts.verifications < 19
    assert driven.oracle.open_drafts == 0


def test_a_right_chain_is_emitted_whole() -> None:
    driven = Driven(TreeShape.chain(5))
    request = driven.submit(PROMPT, max_tokens=16)
    driven.finish()
    assert [len(rows) for rows in driven.runner.steps if rows] == [40, 5, 5, 5]
    assert request.speculation is not None
    assert request.speculation.as_dict()["accepted"] == [3, 3, 3, 3]


def test_trees_end_with_the_text_and_the_context() -> None:
    driven = Driven(TreeShape.chain(8), context=50)
    request = driven.submit(PROMPT, max_tokens=None)
    driven.finish()
    assert list(request.result().token_ids) == greedy_tokens(PROMPT, 11)
    assert max(row.position for rows in driven.runner.steps for row in rows) == 49
    short = driven.submit(PROMPT[:20], max_tokens=4)
    driven.finish()
    assert len(driven.runner.steps[-1]) == 3  # the prompt gave one token, three rows give the rest
    assert list(short.result().token_ids) == greedy_tokens(PROMPT[:20], 4)


def test_several_sequences_share_the_rows_of_one_tree() -> None:
    driven = Driven(TreeShape.chain(8), lambda k: 1 + k % 3)
    prompts = [PROMPT[:5], PROMPT[3:9], PROMPT[7:12]]
    requests = [driven.submit(prompt, n=1 + (i == 1)) for i, prompt in enumerate(prompts)]
    driven.finish()
    for prompt, request in zip(prompts, requests, strict=True):
        for output in request.result().outputs:
            assert list(output.token_ids) == greedy_tokens(prompt, 20)
    assert max(len(rows) for rows in driven.runner.steps[2:]) == 8
    assert driven.oracle.open_drafts == 0


@pytest.mark.parametrize("row_limit, scratch", [(3, 128), (64, 6)])
def test_trees_are_cut_where_rows_or_slots_are_few(row_limit: int, scratch: int) -> None:
    driven = Driven(TreeShape.by_width((2, 2, 2)), row_limit=row_limit, scratch=scratch)
    request = driven.submit([1, 2, 3])
    driven.finish()
    assert list(request.result().token_ids) == greedy_tokens([1, 2, 3], 20)
    assert max(len(rows) for rows in driven.runner.steps) <= min(row_limit, scratch)


def test_the_choice_switches_while_decoding() -> None:
    """The boards' own loop runs where one row is best."""
    driven = Driven(lambda context: TreeShape.chain(4 if 45 < context < 54 else 1), loop=True)
    request = driven.submit(PROMPT, max_tokens=30)
    driven.finish(one_step=False)
    assert list(request.result().token_ids) == greedy_tokens(PROMPT, 30)
    sizes = {rows[0].position: len(rows) for rows in driven.runner.steps if rows}
    assert all((45 <= position < 53) == (sizes[position] > 1) for position in sizes if position)
    assert request.speculation is not None and request.speculation.verifications == 2


def test_a_value_that_is_not_finite_in_a_draft_ends_nothing() -> None:
    driven = Driven(TreeShape.chain(4))
    truth = greedy_tokens(PROMPT, 20)

    def refuse(rows: Sequence[Row]) -> None:
        if len(rows) == 4:
            raise ModelError("row 3 holds NaN", row=3)

    run = driven.runner.step

    def step(rows: Sequence[Row], *more: object) -> object:
        result = run(rows, *more)  # type: ignore[arg-type]
        refuse(rows)
        return result

    driven.runner.step = step  # type: ignore[method-assign, assignment]
    request = driven.submit(PROMPT)
    driven.finish()
    assert list(request.result().token_ids) == truth


def test_cancelling_inside_a_block_stops_there() -> None:
    driven = Driven(TreeShape.chain(6))
    request = driven.submit(PROMPT)
    received: list[int | None] = []

    def listen(delta: object) -> bool:
        received.append(getattr(delta, "token_id", None))
        return len(received) == 3

    request.on_delta = listen
    driven.finish()
    assert received == [*greedy_tokens(PROMPT, 3), None]
    assert request.result().finish_reason == "cancelled"


def test_nodes_without_a_token_take_their_branches_along() -> None:
    tree = TreeShape.by_width((2, 2))
    found = named(tree, [9, 1, None, 3, 4, 5, None])
    assert (found.tokens, found.parents) == ((9, 1, 3, 4), (-1, 0, 1, 1))


def test_statistics_count_positions() -> None:
    counts = SpeculationStatistics()
    counts.add(4, (-1, 0, 1, 2), 3)  # two of a chain of three
    counts.add(4, (-1, 0, 0, 1), 2)  # one of two siblings, one below
    counts.add(1, (-1,), 1)
    values = counts.as_dict()
    assert values["drafted"] == [2, 2, 1] and values["accepted"] == [2, 1, 0]
    assert values["drafted_rows"] == [3, 2, 1]
    assert values["lengths"] == {"1": 1, "4": 2} == values["chosen_lengths"]
    assert values["mean_emitted"] == 2.0 and values["mean_accepted"] == 1.0
    assert values["mean_rows"] == 3.0
    both = SpeculationStatistics()
    both.merge(counts)
    both.merge(counts)
    assert both.as_dict()["drafted"] == [4, 4, 2] and both.mean_emitted == 2.0
    assert "1: 100%, 2: 50%, 3: 0%" in both.lines()[1]
