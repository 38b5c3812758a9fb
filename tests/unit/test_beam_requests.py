"""Beam search in the generation loop on scripted boards: rows, sequences and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_sdk.engine.requests import Request
from lora_sdk.kv.kvcache import pages_for
from lora_sdk.step.results import Delta
from tests.scripted import VOCABULARY, greedy_tokens
from tests.searches import alone, found, search
from tests.unit.test_scheduler import Driven

PROMPTS = [[1], [2, 3, 4], list(range(50)), [9] * 31, list(range(20, 60))]


class Beams(Driven):
    """A bench that also takes beam searches."""

    def search(self, tokens: Sequence[int], on_delta: Any = None, **fields: Any) -> Request:
        return search(self, tokens, on_delta, **fields)


@pytest.mark.parametrize(("row_limit", "temperature"), [(1, 0.0), (3, 1.2), (64, 0.0)])
def test_searches_side_by_side_find_what_each_finds_alone(
    row_limit: int, temperature: float
) -> None:
    """Also where the rows of a group need several steps. Other requests are not affected."""
    driven = Beams(row_limit=row_limit, sequences=8, pages=60)
    requests = []
    for index, prompt in enumerate(PROMPTS):
        fields = {"beam_width": 2 + index % 3, "n": 2, "max_tokens": 3 + 5 * index}
        fields["temperature"] = temperature
        requests.append((driven.search(prompt, **fields), prompt, fields))
        requests.append((driven.submit(prompt, max_tokens=6), prompt, {}))
    driven.finish()
    for request, prompt, fields in requests:
        if fields:
            assert found(request) == alone(prompt, **fields)
        else:
            assert list(request.result().token_ids) == greedy_tokens(prompt, 6)
    assert max(len(rows) for rows in driven.runner.steps) <= row_limit
    driven.stepper.flush()
    assert driven.cache.free_pages == driven.cache.total_pages
    assert driven.cache.free_sequences == 8


@pytest.mark.parametrize("prompt", PROMPTS[2:])
def test_a_search_ends_in_exactly_the_pages_that_it_may_need(prompt: list[int]) -> None:
    """Each beam has its own pages and one for a copy; the prompt's full pages are shared."""
    width, new = 4, 70
    each, shared = pages_for(len(prompt) + new - 1) + 1, len(prompt) // 32
    need = each + (width - 1) * (each - shared)
    driven = Beams(pages=4 + need, sequences=width, row_limit=64)
    request = driven.search(prompt, beam_width=width, max_tokens=new, length_penalty=3.0)
    driven.finish()
    assert found(request) == alone(prompt, beam_width=width, max_tokens=new, length_penalty=3.0)
    less = Beams(pages=4 + need - 1, sequences=width, row_limit=64)
    refused = less.search(prompt, beam_width=width, max_tokens=new, length_penalty=3.0)
    less.finish()
    with pytest.raises(RequestError, match=f"may need {need} KV pages"):
        refused.result()


def test_other_requests_and_a_search_make_way_for_each_other() -> None:
    """Drawn beams fork often. The others hold every page that the search does not."""
    prompt, fields = list(range(40)), {"beam_width": 4, "max_tokens": 60, "temperature": 1.5}
    driven = Beams(pages=4 + 17 + 8, sequences=16, row_limit=64)
    request = driven.search(prompt, **fields)
    others = [driven.submit([i], max_tokens=40) for i in range(30)]
    driven.finish()
    assert found(request) == alone(prompt, **fields)
    assert all(list(o.result().token_ids) == greedy_tokens([i], 40) for i, o in enumerate(others))


def test_more_beams_than_sequences_are_refused() -> None:
    driven = Beams(sequences=3)
    request = driven.search([1], beam_width=4, max_tokens=3)
    driven.finish()
    with pytest.raises(RequestError, match="beam_width is 4; the boards have 3 sequences"):
        request.result()


def test_deltas_come_at_the_end_best_hypothesis_first_and_a_callback_may_cancel() -> None:
    driven = Beams()
    deltas: list[Delta] = []
    request = driven.search([1, 2], deltas.append, beam_width=3, n=2, max_tokens=4)
    driven.finish()
    expected = alone([1, 2], beam_width=3, n=2, max_tokens=4)
    for index, (tokens, _) in enumerate(expected):
        assert tuple(d.token_id for d in deltas if d.index == index) == tokens
    assert [d.index for d in deltas] == sorted(d.index for d in deltas)
    assert request.result().score == expected[0][1]
    cancelled = driven.search([1, 2], lambda delta: True, beam_width=3, n=2, max_tokens=4)
    driven.finish()
    assert [o.finish_reason for o in cancelled.result().outputs] == ["cancelled"] * 2


def test_a_cancelled_or_failing_search_frees_what_it_held() -> None:
    driven = Beams(row_limit=64)
    request = driven.search([1, 2, 3], beam_width=4, max_tokens=9)
    for _ in range(3):
        driven.generator.advance()
    request.cancel()
    failing = driven.search(
        [5], beam_width=4, max_tokens=9,
        allowed_tokens=lambda tokens: np.full(VOCABULARY, len(tokens) < 2),
    )  # fmt: skip
    driven.finish()
    assert request.result().finish_reason == "cancelled"
    with pytest.raises(RequestError, match="allows no token"):
        failing.result()
    driven.stepper.flush()
    assert driven.cache.free_sequences == 4 and driven.cache.free_slots == 128
    assert driven.cache.free_pages == driven.cache.total_pages


def test_a_reorder_copies_at_most_one_page_a_beam_and_step() -> None:
    from lora_host import abi

    driven = Beams(row_limit=64, pages=200, sequences=8, context=900)
    driven.search(list(range(60)) * 6, beam_width=6, max_tokens=40, temperature=1.5)
    driven.finish()
    kinds = [[op.kind for op in header] for header in driven.runner.headers]
    assert max(header.count(abi.KV_COPY) for header in kinds) <= 5
    tables = [header.count(abi.KV_TABLE) for header in kinds]
    assert sorted(tables)[len(tables) // 2] <= 6  # not the 11 tiles of each beam
