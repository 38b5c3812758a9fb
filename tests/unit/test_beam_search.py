"""The rules of beam search on hand-made logits (docs/numbers.md, 8.7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError, RequestError
from lora_sdk.sampling import BeamSearchParams, Sampler
from lora_sdk.sampling.beam_search import Beam, BeamSearch
from tests.scripted import VOCABULARY, logits_of

PROMPT = [3, 1, 4]
END = 7


def search_of(max_new: int = 4, ends: Sequence[int] = (END,), **fields: Any) -> BeamSearch:
    params = BeamSearchParams(**fields)
    sampler = Sampler(params, VOCABULARY, seed=5, end_tokens=frozenset(ends))
    return BeamSearch(sampler, PROMPT, max_new)


def run(search: BeamSearch, logits: Callable[[Sequence[int]], Any] = logits_of) -> list[Beam]:
    while not search.ended:
        search.advance([logits([*PROMPT, *beam.tokens]) for beam in search.beams])
    return search.results()


def log_softmax(tokens: Sequence[int]) -> Any:
    """Log probabilities FP64 [V] of scripted tokens after the prompt and `tokens`."""
    logits = logits_of([*PROMPT, *tokens]).astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def table(*probabilities: dict[int, float]) -> Callable[[Sequence[int]], Any]:
    """Logits of the probabilities given for each length; other tokens share the rest."""

    def logits(tokens: Sequence[int]) -> Any:
        given = probabilities[len(tokens) - len(PROMPT)]
        rest = (1.0 - sum(given.values())) / (VOCABULARY - len(given))
        found = np.full(VOCABULARY, math.log(rest), np.float32)
        for token, probability in given.items():
            found[token] = math.log(probability)
        return found

    return logits


def test_wide_beams_find_the_best_of_all_texts() -> None:
    """With as many beams as texts the search is exhaustive."""
    found = run(search_of(2, ends=(), beam_width=VOCABULARY, n=9))
    first = log_softmax(())
    sums = np.stack([first[token] + log_softmax((token,)) for token in range(VOCABULARY)])
    best = [divmod(int(index), VOCABULARY) for index in np.argsort(-sums, axis=None)[:9]]
    assert [beam.tokens for beam in found] == best
    expected = [sums[text] / 2 for text in best]
    assert [float(beam.score) for beam in found] == pytest.approx(expected, abs=1e-6)


def test_a_hypothesis_counts_its_end_token_in_its_length() -> None:
    logits = table({END: 0.6, 9: 0.3}, {END: 0.5, 9: 0.4}, {9: 0.9})
    (best, *_) = run(search_of(3, beam_width=2, length_penalty=2.0, early_stopping=True), logits)
    assert best.tokens == (9, END)  # log(0.3*0.5)/4 is above log(0.6)/1
    assert float(best.score) == pytest.approx(math.log(0.3 * 0.5) / 4, abs=1e-6)


@pytest.mark.parametrize(
    ("early", "tokens"), [(True, (END,)), (False, (END,)), ("never", (8, 8, 8, 8))]
)
def test_early_stopping(early: bool | str, tokens: tuple[int, ...]) -> None:
    """One beam. At length 1 its best continuation log(0.4) is below the hypothesis log(0.45), but
    not below it once it is divided by the largest length squared."""
    logits = table({END: 0.45, 8: 0.4}, *[{8: 0.9}] * 3)
    search = search_of(4, beam_width=1, length_penalty=2.0, early_stopping=early)
    assert run(search, logits)[0].tokens == tokens


def test_never_without_a_positive_penalty_takes_the_present_length() -> None:
    logits = table({END: 0.45, 8: 0.4}, *[{8: 0.9}] * 3)
    search = search_of(4, beam_width=1, length_penalty=0.0, early_stopping="never")
    search.advance([logits(PROMPT)])
    assert search.ended


def test_never_takes_the_present_length_if_longer_texts_score_lower() -> None:
    """A penalty of -1 multiplies by the length: at length 2 the best beam is above the second
    hypothesis log(0.05), at length 4 it would not be."""
    logits = table({8: 0.9, END: 0.05}, {8: 0.5, END: 0.45})
    search = search_of(4, beam_width=2, length_penalty=-1.0, early_stopping="never")
    for _ in range(2):
        search.advance([logits([*PROMPT, *beam.tokens]) for beam in search.beams])
    assert [beam.tokens for beam in search.hypotheses] == [(8, END), (END,)]
    assert not search.ended


@pytest.mark.parametrize("filters", [{"top_p": 0.01}, {"top_k": 1}, {"min_p": 1.0}])
def test_filters_leave_one_token_more_than_there_are_end_tokens(filters: dict[str, Any]) -> None:
    logits = table({8: 0.5, 9: 0.3, 10: 0.15})
    for ends, left in (((), [8, 9]), ((END, 6), [8, 9, 10])):
        search = search_of(1, ends, beam_width=3, n=3, temperature=1.0, **filters)
        assert sorted(beam.tokens[0] for beam in run(search, logits)) == left


def test_equal_scores_go_to_the_earlier_beam_and_the_lower_token() -> None:
    search = search_of(2, ends=(), beam_width=3, n=3)
    found = run(search, lambda tokens: np.zeros(VOCABULARY, np.float32))
    assert [beam.tokens for beam in found] == [(0, 0), (0, 1), (0, 2)]


def test_only_the_first_candidates_end_and_the_others_keep_the_beams_running() -> None:
    """Two end tokens and one more fill the first ranks: width 2 takes the two best of all."""
    logits = table({END: 0.5, 8: 0.3, 6: 0.1, 9: 0.05})
    search = search_of(4, ends=(END, 6), beam_width=2)
    search.advance([logits(PROMPT)])
    assert [beam.tokens for beam in search.hypotheses] == [(END,)]  # 6 is third
    assert [beam.tokens for beam in search.beams] == [(8,), (9,)]


def test_parameters_act_on_log_probabilities() -> None:
    """A repetition penalty of 2 squares a probability: 0.6 becomes 0.36."""
    for other, chosen in ((0.38, 9), (0.34, PROMPT[0])):
        search = search_of(1, beam_width=1, repetition_penalty=2.0)
        assert run(search, table({PROMPT[0]: 0.6, 9: other}))[0].tokens == (chosen,)


def test_sampled_beams_depend_on_the_seed_alone_and_differ_from_the_best() -> None:
    def texts(seed: int) -> list[tuple[int, ...]]:
        params = BeamSearchParams(beam_width=3, n=3, temperature=1.5)
        sampler = Sampler(params, VOCABULARY, seed, end_tokens=frozenset((END,)))
        return [beam.tokens for beam in run(BeamSearch(sampler, PROMPT, 5))]

    assert texts(5) == texts(5) != texts(6)
    assert texts(5) != [beam.tokens for beam in run(search_of(5, beam_width=3, n=3))]


def test_sampled_candidates_are_distributed_as_their_weights() -> None:
    """The first of the drawn candidates of one beam: a chi-square test of 900 draws."""
    logits = table({8: 0.5, 9: 0.3, 10: 0.15})
    counts = dict.fromkeys((8, 9, 10), 0)
    for seed in range(900):
        params = BeamSearchParams(beam_width=1, temperature=1.0, top_k=3)
        search = BeamSearch(Sampler(params, VOCABULARY, seed), PROMPT, 1)
        search.advance([logits(PROMPT)])
        counts[search.results()[0].tokens[0]] += 1
    shares = {8: 0.5 / 0.95, 9: 0.3 / 0.95, 10: 0.15 / 0.95}
    assert sum((counts[t] - 900 * p) ** 2 / (900 * p) for t, p in shares.items()) < 13.8


def test_a_mask_may_leave_fewer_beams_and_hypotheses() -> None:
    def allowed(output: Sequence[int]) -> Any:
        mask = np.zeros(VOCABULARY, bool)
        mask[[8, 9] if not output else [END]] = True
        return mask

    found = run(search_of(4, beam_width=4, n=4, allowed_tokens=allowed))
    assert sorted(beam.tokens for beam in found) == [(8, END), (9, END)]


def test_what_cannot_be_continued_is_an_error() -> None:
    with pytest.raises(RequestError, match="every one is forbidden"):
        run(search_of(ends=range(VOCABULARY), min_tokens=1))
    bad = np.zeros(VOCABULARY, np.float32)
    bad[4] = np.nan
    with pytest.raises(ModelError, match="NaN"):
        search_of().advance([bad])
    bad[4] = np.inf
    with pytest.raises(ModelError, match="position 3 is inf"):
        search_of().advance([bad])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 5}, r"n is 5; expected at most beam_width \(4\)"),
        ({"beam_width": 0}, "beam_width is 0; expected an integer in 1..1024"),
        ({"length_penalty": 9.0}, "length_penalty is 9.0; expected a number from -5 to 5"),
        ({"early_stopping": "always"}, "early_stopping is 'always'; expected False, True or 'ne"),
        ({"early_stopping": 1}, "early_stopping is 1; expected False, True or 'never'"),
        ({"stop": "end"}, "see stop_token_ids"),
        ({"logprobs": 1}, "beam search returns scores"),
    ],
)
def test_parameters_out_of_range_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        BeamSearchParams(**fields)
