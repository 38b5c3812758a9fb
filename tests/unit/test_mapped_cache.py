"""A KV cache whose pages the caller names: what boards hold there, and what they have lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from lora_host import abi
from lora_host.errors import LoraError, PlacementError, RequestError
from lora_sdk.kv.mapped_cache import MappedKvCache
from lora_sdk.opening.opening import OpenedModel, open_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.step.step import build_rows
from lora_sdk.step.stepper import Stepper, argmax_of

PROMPT = tuple(range(40, 110))  # three pages


@dataclass
class Boards:
    opened: OpenedModel
    cache: MappedKvCache
    stepper: Stepper

    def run(self, sequence: int, tokens: Sequence[int]) -> int:
        """Compute and commit tokens; the token that the last one expects."""
        found = -1
        for start in range(0, len(tokens), 60):
            part = tokens[start : start + 60]
            rows = build_rows(self.cache, sequence, part, argmax=[len(part) - 1])
            found = argmax_of(self.stepper.run(rows), len(part) - 1)
            self.cache.commit(sequence, [row.slot for row in rows])
        return found


@pytest.fixture
def boards() -> Iterator[Boards]:
    opened = open_model(EngineOptions(boards=2, max_sequences=4, context=256))
    plan = opened.plan
    cache = MappedKvCache(
        plan.page_count, plan.max_sequences, plan.overlay.max_scratch, plan.context, abi.MAX_KV_OPS
    )
    with opened.stack:
        yield Boards(opened, cache, Stepper(opened.runner, cache))


def pages(boards: Boards, *offsets: int) -> list[int]:
    return [boards.cache.first_page + offset for offset in offsets]


def test_pages_in_any_order_and_shared_by_sequences(boards: Boards) -> None:
    alone = boards.run(boards.cache.start((), pages(boards, 0, 1, 2)), PROMPT)
    first = boards.cache.start((), pages(boards, 9, 4, 7))
    assert boards.run(first, PROMPT) == alone
    second = boards.cache.start(PROMPT[:64], pages(boards, 9, 4, 11))
    assert boards.run(second, PROMPT[64:]) == alone
    boards.cache.close(first)
    third = boards.cache.start(PROMPT[:64], pages(boards, 9, 4))
    boards.cache.map(third, pages(boards, 7))
    assert boards.run(third, PROMPT[64:]) == alone
    assert boards.cache.found == 128


def test_what_boards_have_lost_is_computed_again_before_it_is_read(boards: Boards) -> None:
    alone = boards.run(boards.cache.start((), pages(boards, 0, 1, 2)), PROMPT)
    running = boards.cache.start((), pages(boards, 3, 4, 5))
    boards.run(running, PROMPT[:65])
    boards.opened.cluster.reset()
    from collections import Counter

    boards.opened.runner.restore(Counter())
    assert boards.cache.lose() == len(PROMPT) + 65
    before = boards.stepper.rows
    assert boards.run(running, PROMPT[65:]) == alone
    assert boards.stepper.rows - before == len(PROMPT)
    held = boards.cache.start(PROMPT[:64], pages(boards, 3, 4, 20))  # written again by `running`
    assert not boards.cache.lost(held)
    kept = boards.cache.start(PROMPT[:32], pages(boards, 0, 21, 22))  # by none that has run since
    assert len(boards.cache.lost(kept)) == 32
    assert boards.run(kept, PROMPT[32:]) == boards.run(held, PROMPT[64:]) == alone


def test_fewer_pages_than_were_promised_are_refused(boards: Boards) -> None:
    end = boards.opened.plan.page_count
    with pytest.raises(PlacementError, match=f"{end - 1} KV pages remain of {end}"):
        boards.cache.lose(end - 1)
    boards.cache.lose(end + 5)


@pytest.mark.parametrize(
    ("tokens", "offsets", "line"),
    [
        ((), (-1,), "page 3 of sequence"),
        ((), (10**6,), "page 1000004 of sequence"),
        (PROMPT, (0, 1), "70 positions in 2 pages; expected 3"),
        ((), tuple(range(9)), "would have 9 pages; the context of 256 positions has 8"),
    ],
)
def test_a_wrong_table_is_refused_and_leaves_no_sequence(
    boards: Boards, tokens: Sequence[int], offsets: Sequence[int], line: str
) -> None:
    with pytest.raises(RequestError, match=line):
        boards.cache.start(tokens, pages(boards, *offsets))
    assert boards.cache.free_sequences == 4


def test_no_page_is_taken_that_the_caller_did_not_name(boards: Boards) -> None:
    sequence = boards.cache.start((), pages(boards, 0))
    with pytest.raises(LoraError, match="KV pages are exhausted"):
        boards.run(sequence, PROMPT[:33])
