from __future__ import annotations

from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_sdk.sampling import SamplingParams


def test_default_is_greedy_and_needs_no_logits() -> None:
    params = SamplingParams()
    assert params.greedy and not params.needs_logits and params.max_tokens == 128


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_tokens", 0),
        ("max_tokens", 2.5),
        ("max_tokens", True),
        ("min_tokens", -1),
        ("min_tokens", 129),
        ("n", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", "hot"),
        ("top_k", -2),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", 1.5),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("seed", 2**64),
        ("seed", -1),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: float("inf")}),
        ("stop", [""]),
        ("stop", [3]),
        ("bad_words", [""]),
        ("bad_words", 5),
        ("stop", b"x"),
        ("stop_token_ids", 5),
        ("stop", {"x": 1}),
        ("logit_bias", [5]),
        ("logit_bias", {5: 1e39}),
        ("repetition_penalty", 1e-300),
        ("repetition_penalty", 1e300),
        ("temperature", 1e300),
        ("temperature", 10**400),
        ("stop_token_ids", [-4]),
        ("allowed_token_ids", [-4]),
        ("allowed_token_ids", 5),
        ("logprobs", -1),
        ("prompt_logprobs", 1001),
        ("logprobs_mode", "cooked"),
        ("ignore_eos", 1),
        ("allowed_tokens", [1, 2]),
    ],
)
def test_a_bad_value_is_named(field: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(**{field: value})
    assert field in str(caught.value) and "expected" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "field, value",
    [
        ("temperature", 0.5),
        ("repetition_penalty", 1.1),
        ("presence_penalty", 0.1),
        ("frequency_penalty", 0.1),
        ("logit_bias", {3: 1.0}),
        ("bad_words", ["x"]),
        ("logprobs", 0),
        ("min_tokens", 2),
        ("allowed_token_ids", [7]),
        ("allowed_tokens", lambda tokens: None),
    ],
)
def test_what_changes_the_choice_needs_logits(field: str, value: Any) -> None:
    assert SamplingParams(**{field: value}).needs_logits


def test_from_mapping_names_unknown_fields_and_reads_json_keys() -> None:
    params = SamplingParams.from_mapping({"logit_bias": {"7": 2}, "stop": "a"})
    assert params.logit_bias == {7: 2} and params.stops == ("a",)
    with pytest.raises(RequestError, match="'temprature' is unknown"):
        SamplingParams.from_mapping({"temprature": 1})
