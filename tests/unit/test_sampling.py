from __future__ import annotations

import math

import numpy as np
import pytest

from lora_host import numerics
from lora_host.errors import ModelError, RequestError
from lora_host.logits import top_tokens
from lora_sdk.sampling import Sampler, SamplingParams, philox
from lora_sdk.sampling.logprobs import max_and_log_sum, position_logprobs, rank_of
from lora_sdk.sampling.sampler import draw, weights_of


def logits(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def choose(
    values: np.ndarray, output: tuple[int, ...] = (), prompt: tuple[int, ...] = (), **fields: object
) -> int:
    ends = frozenset(fields.pop("end_tokens", ()))  # type: ignore[call-overload]
    words = tuple(fields.pop("words", ()))  # type: ignore[call-overload]
    sampler = Sampler(
        SamplingParams(**fields),  # type: ignore[arg-type]
        len(values),
        seed=1,
        end_tokens=ends,
        bad_words=words,
    )
    return sampler.choose(values, 5, prompt, output)[0]


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    assert choose(logits(1, 3, 3, 2)) == 1


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    values = logits(4, 3, -1, -1.5)
    assert choose(values, repetition_penalty=2.0, prompt=(0,)) == 1
    assert choose(values, repetition_penalty=2.0, output=(0,)) == 1
    only_negative = logits(-1, -1.5)
    assert choose(only_negative, repetition_penalty=2.0, prompt=(0,)) == 1


def test_presence_and_frequency_count_the_output_alone() -> None:
    values = logits(2.0, 1.0)
    assert choose(values, presence_penalty=1.5, prompt=(0, 0, 0)) == 0
    assert choose(values, presence_penalty=1.5, output=(0,)) == 1
    assert choose(values, frequency_penalty=0.4, output=(0, 0)) == 0
    assert choose(values, frequency_penalty=0.4, output=(0, 0, 0)) == 1


def test_bias_and_forbidden_words() -> None:
    values = logits(2.0, 1.0, 0.0)
    assert choose(values, logit_bias={2: 5.0}) == 2
    assert choose(values, words=((0,),)) == 1
    assert choose(values, words=((2, 0),)) == 0
    assert choose(values, words=((2, 0),), output=(2,)) == 1


def test_allowed_token_ids_forbid_the_others() -> None:
    values = logits(2.0, 1.0, 0.0)
    assert choose(values, allowed_token_ids=(1, 2)) == 1
    assert choose(values, allowed_token_ids=(1, 2), logit_bias={2: 5.0}) == 2
    with pytest.raises(RequestError, match="allowed_token_ids: token id 3 is outside"):
        choose(values, allowed_token_ids=(3,))


def test_min_tokens_forbids_the_end() -> None:
    values = logits(2.0, 1.0)
    assert choose(values, min_tokens=2, output=(1,), end_tokens=(0,)) == 1
    assert choose(values, min_tokens=2, output=(1, 1), end_tokens=(0,)) == 0


def test_mask_hook_sees_the_output_and_restricts() -> None:
    seen = []

    def hook(tokens: tuple[int, ...]) -> np.ndarray:
        seen.append(tokens)
        return np.array([False, True, True])

    assert choose(logits(9, 1, 2), allowed_tokens=hook, output=(2, 2)) == 2
    assert seen == [(2, 2)]
    with pytest.raises(RequestError, match="no token"):
        choose(logits(1, 2), allowed_tokens=lambda tokens: np.zeros(2, bool))
    with pytest.raises(RequestError, match="expected bool"):
        choose(logits(1, 2), allowed_tokens=lambda tokens: np.zeros(3, bool))


def test_nan_logits_are_a_model_error_before_any_choice() -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(ModelError, match="NaN"):
            choose(logits(1, math.nan, 2), temperature=temperature)


def test_top_k_breaks_ties_towards_the_lower_id() -> None:
    kept = weights_of(logits(1, 2, 2, 2, 3), 1.0, 3, 1.0, 0.0)
    assert np.flatnonzero(kept).tolist() == [1, 2, 4]


def test_top_p_keeps_the_shortest_run_and_the_lower_of_equal_ids() -> None:
    values = np.log(np.array([0.2, 0.4, 0.2, 0.2])).astype(np.float32)
    for top_p, kept in ((0.39, [1]), (0.5, [0, 1]), (0.7, [0, 1, 2])):
        assert np.flatnonzero(weights_of(values, 1.0, 0, top_p, 0.0)).tolist() == kept


def test_draw_takes_the_first_id_whose_running_sum_exceeds_u() -> None:
    equal = logits(1, 1, 1, 1)
    assert [draw(equal, u) for u in (0.0, 0.2499, 0.25, 0.99)] == [0, 0, 1, 3]
    assert draw(equal, 1 - 2.0**-53) == 3


def test_draw_never_takes_a_forbidden_token() -> None:
    weights = weights_of(logits(-np.inf, 0, -np.inf, 0, -np.inf), 1.0, 0, 1.0, 0.0)
    draws = {draw(weights, u) for u in np.linspace(0, 1, 50, endpoint=False)}
    assert draws == {1, 3}


def weights_by_the_rules(values: np.ndarray, top_k: int, top_p: float) -> np.ndarray:
    """All tokens looked at in every step: a stable sort for top-k, one for top-p."""
    weights = numerics.exp32(values).astype(np.float64)
    weights[np.argsort(-values, kind="stable")[top_k or values.size :]] = 0.0
    order = np.argsort(-weights, kind="stable")
    running = np.cumsum(weights[order])
    reached = np.searchsorted(running, top_p * np.cumsum(weights)[-1], side="left") + 1
    weights[order[reached:]] = 0.0
    return weights


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 0.9, 1 - 1e-12])
@pytest.mark.parametrize("top_k", [0, 1, 7, 50])
@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_fewer_candidates_change_no_weight_and_no_draw(
    top_k: int, top_p: float, spread: float
) -> None:
    generator = np.random.default_rng(top_k)
    for ties in (False, True):
        values = (generator.standard_normal(300) * spread).astype(np.float32)
        values = np.round(values) if ties else values
        values[generator.random(300) < 0.2] = -np.inf
        values -= values.max()
        wanted = weights_by_the_rules(values, top_k, top_p)
        found = weights_of(values, 1.0, top_k, top_p, 0.0)
        np.testing.assert_array_equal(found, wanted)
        running = np.cumsum(wanted)
        for u in (0.0, 0.31, 0.99, 1 - 2.0**-53):
            place = int(np.searchsorted(running, u * running[-1], side="right"))
            assert draw(found, u) == place


def test_min_p_is_measured_against_the_likeliest() -> None:
    values = np.log(np.array([1.0, 0.5, 0.05])).astype(np.float32)
    weights = weights_of(values, 1.0, 0, 1.0, 0.1)
    draws = {draw(weights, u) for u in np.linspace(0, 1, 200, endpoint=False)}
    assert draws == {0, 1}


def test_sampling_follows_the_tempered_distribution() -> None:
    values = logits(0.0, 1.0, 2.0)
    sampler = Sampler(SamplingParams(temperature=0.7), 3, seed=9)
    counts = np.bincount([sampler.choose(values, p, (), ())[0] for p in range(6000)], minlength=3)
    wanted = np.exp(np.array([0.0, 1.0, 2.0]) / 0.7)
    assert np.abs(counts / 6000 - wanted / wanted.sum()).max() < 0.02


def test_noise_is_keyed_by_seed_sample_and_position_alone() -> None:
    values = np.zeros(1000, dtype=np.float32)
    params = SamplingParams(temperature=1.0)

    def at(seed: int, sample: int, position: int) -> int:
        return Sampler(params, 1000, seed, sample).choose(values, position, (1,), (2, 3))[0]

    assert at(3, 1, 7) == int(philox.uniform(3, 1, 7) * 1000)
    assert len({at(3, 1, 7), at(4, 1, 7), at(3, 2, 7), at(3, 1, 8)}) == 4


def test_a_tiny_temperature_is_greedy() -> None:
    assert choose(logits(1, 2, 1.9), temperature=1e-300) == 1


def test_logprobs_equal_a_float64_softmax() -> None:
    values = np.random.default_rng(0).standard_normal(500).astype(np.float32) * 4
    exact = values.astype(np.float64) - np.log(np.exp(values.astype(np.float64)).sum())
    entry = position_logprobs(values, 17, 5)
    order = np.argsort(-exact, kind="stable")
    assert abs(entry.chosen.logprob - exact[17]) < 1e-6
    assert entry.chosen.rank == 1 + int(np.flatnonzero(order == 17)[0])
    assert [t.token for t in entry.top] == order[:5].tolist()
    assert all(abs(t.logprob - exact[t.token]) < 1e-6 for t in entry.top)
    assert [t.rank for t in entry.top] == [1, 2, 3, 4, 5]


def test_ranks_of_equal_logits_go_by_id() -> None:
    values = logits(1, 2, 2, 0)
    assert [rank_of(values, t) for t in range(4)] == [3, 1, 2, 4]
    assert top_tokens(values, 3) == [1, 2, 0] and top_tokens(values, 0) == []


def test_log_sum_of_one_token_is_zero() -> None:
    assert max_and_log_sum(logits(3.5)) == (3.5, 0.0)


def test_raw_and_processed_logprobs_differ_by_temperature() -> None:
    values = logits(0.0, 1.0)

    def shown(mode: str) -> float:
        params = SamplingParams(temperature=0.5, logprobs=1, logprobs_mode=mode)
        entry = Sampler(params, 2, seed=0).choose(values, 0, (), ())[1]
        assert entry is not None
        return entry.top[0].logprob

    assert shown("raw") == pytest.approx(-math.log(1 + math.exp(-1)), abs=1e-6)
    assert shown("processed") == pytest.approx(-math.log(1 + math.exp(-2)), abs=1e-6)


def test_a_token_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(RequestError, match="outside the vocabulary"):
        Sampler(SamplingParams(logit_bias={9: 1.0}), 9, seed=0)
