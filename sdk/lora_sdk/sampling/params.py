"""SamplingParams: the options of one request, checked on construction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_sdk.arguments.option import (
    ArgumentError,
    check_options,
    documented,
    is_integer,
    is_real,
    named_arguments,
    option,
    options_of,
)
from lora_sdk.arguments.prefill_name import NAME

AllowedTokens = Callable[[Sequence[int]], "np.ndarray | None"]
"""Callback before sampling: tokens emitted so far -> bool mask [vocabulary], None to allow all."""

DEFAULT_MAX_TOKENS = 128
# Beyond these limits logits overflow FP32. At them sampling is already uniform or deterministic.
MAX_TEMPERATURE = 1e6
MAX_BIAS = 1e6
PENALTY_RANGE = (1e-6, 1e6)


@documented
@named_arguments
@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen. Greedy unless `temperature` is above 0.

    RequestError names the field whose value is out of range.
    """

    max_tokens: int | None = option(
        DEFAULT_MAX_TOKENS,
        help="max number of new tokens; None: until the context is full",
        flags=("-n", "--predict"),
        low=1,
    )
    min_tokens: int = option(
        0,
        help="min number of new tokens before end-of-text or a stop takes effect",
        flags=("--min-tokens",),
        low=0,
    )
    n: int = option(
        1, help="number of samples per prompt, each with its own random numbers", low=1, high=1024
    )
    temperature: float = option(
        0.0,
        help="0 takes the most likely token",
        flags=("--temp", "--temperature"),
        low=0.0,
        high=MAX_TEMPERATURE,
    )
    top_k: int = option(
        0, help="keep only the k most likely tokens; 0 or -1 keeps all", flags=("--top-k",), low=-1
    )
    top_p: float = option(
        1.0,
        help="keep the smallest set of most likely tokens whose probability reaches top_p",
        flags=("--top-p",),
        low=0.0,
        high=1.0,
        above=True,
    )
    min_p: float = option(
        0.0,
        help="keep tokens at least min_p times as likely as the most likely one",
        flags=("--min-p",),
        low=0.0,
        high=1.0,
    )
    repetition_penalty: float = option(
        1.0,
        help="divides (positive) or multiplies (negative) logits of tokens in prompt or output",
        flags=("--repeat-penalty", "--repetition-penalty"),
        low=PENALTY_RANGE[0],
        high=PENALTY_RANGE[1],
    )
    presence_penalty: float = option(
        0.0,
        help="subtracted once from the logits of tokens in the output",
        flags=("--presence-penalty",),
        low=-2.0,
        high=2.0,
    )
    frequency_penalty: float = option(
        0.0,
        help="subtracted from a token's logit once per occurrence in the output",
        flags=("--frequency-penalty",),
        low=-2.0,
        high=2.0,
    )
    logit_bias: Mapping[int, float] = option({}, help="added to the logits of these token ids")
    bad_words: str | Sequence[str] = option(
        (),
        help="words that are never generated: their last token is forbidden after the others",
    )
    seed: int | None = option(
        None,
        help="seed of the random numbers",
        unset="random; the result reports it",
        flags=("-s", "--seed"),
        low=0,
        high=2**64 - 1,
    )
    stop: str | Sequence[str] = option(
        (),
        help="strings that end generation; the text ends before them",
        flags=("-r", "--stop", "--reverse-prompt"),
        metavar="TEXT",
    )
    stop_token_ids: Sequence[int] = option(
        (), help="token ids that end generation, besides the model's end-of-text"
    )
    allowed_token_ids: Sequence[int] = option(
        (), help="each new token is one of these ids", unset="all"
    )
    ignore_eos: bool = option(
        False, help="continue after the model's end-of-text token", flags=("--ignore-eos",)
    )
    logprobs: int | None = option(
        None,
        help="return the log probability of each new token and of the N most likely tokens",
        flags=("--logprobs",),
        metavar="N",
        low=0,
        high=1000,
    )
    prompt_logprobs: int | None = option(
        None, help="the same for the tokens of the prompt, from the second on", low=0, high=1000
    )
    logprobs_mode: str = option(
        "raw",
        help="log probabilities of the model's logits, or after penalties, bias and temperature",
        choices=("raw", "processed"),
    )
    include_stop_str_in_output: bool = option(
        False, help="keep the stop string, or the stop token's text, in the text"
    )
    skip_special_tokens: bool = option(True, help="omit special tokens from the text")
    adapter: str | None = option(None, help="name of a loaded adapter", unset="the model alone")
    cache_salt: str | None = option(
        None,
        help="requests with another salt share no cached prefix",
        unset="shared with all that have none",
    )
    prefill_id: str | None = option(
        None,
        help="name under which a vLLM worker (prefill vllm:SOCKET) has the prompt",
        unset="the boards compute it",
    )
    allowed_tokens: AllowedTokens | None = option(
        None, help="callback before sampling that restricts the next token (grammars)"
    )

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words", "stop_token_ids", "allowed_token_ids"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        if not isinstance(self.logit_bias, Mapping):
            raise _refused("logit_bias", self.logit_bias, "a mapping of token ids to numbers")
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        check_options(self)
        _check(self)

    @property
    def stops(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return tuple(self.stop)

    @property
    def sequences(self) -> int:
        """How many sequences the request runs."""
        return self.n

    @cached_property
    def greedy(self) -> bool:
        """Whether the most likely token is taken without random numbers."""
        return self.temperature == 0.0

    @cached_property
    def needs_logits(self) -> bool:
        """Whether choosing a token takes more than the argmax of the model's logits."""
        return (
            not self.greedy
            or self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or bool(self.logit_bias)
            or bool(self.bad_words)
            or self.logprobs is not None
            or self.min_tokens > 0
            or bool(self.allowed_token_ids)
            or self.allowed_tokens is not None
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> SamplingParams:
        """Parameters from a JSON object; RequestError names an unknown field."""
        known = set(options_of(cls)) - {"allowed_tokens"}
        unknown = sorted(set(values) - known)
        if unknown:
            raise RequestError(
                f"sampling parameter {unknown[0]!r:.60} is unknown; "
                f"{did_you_mean(unknown[0], known)}"
            )
        given = dict(values)
        bias = given.get("logit_bias")
        if isinstance(bias, Mapping):  # JSON keys are strings
            given["logit_bias"] = {_token_key(key): value for key, value in bias.items()}
        return cls(**given)  # type: ignore[arg-type]


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    """A sequence parameter as a tuple. A string becomes its only entry."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise _refused(name, value, "a list")
    return tuple(value)


def _token_key(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _check(p: SamplingParams) -> None:
    """Checks beyond the ranges and types of single fields."""
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        expected = f"at most the max number of new tokens, {p.max_tokens}"
        raise _refused("min_tokens", p.min_tokens, expected)
    for name in ("stop_token_ids", "allowed_token_ids"):
        for token in getattr(p, name):
            if token < 0:
                raise _refused(name, token, "token ids, integers of at least 0")
    for token, bias in p.logit_bias.items():
        if not is_integer(token) or token < 0 or not is_real(bias) or abs(bias) > MAX_BIAS:
            expected = f"token ids with numbers from {-MAX_BIAS:g} to {MAX_BIAS:g}"
            raise _refused("logit_bias", {token: bias}, expected)
    for name in ("stop", "bad_words"):
        for text in getattr(p, name):
            if not isinstance(text, str) or not text:
                raise _refused(name, text, "strings that are not empty")
            if _has_surrogate(text):  # no token's text has one: it would never match
                raise _refused(name, text, "Unicode text; it has a byte that is not UTF-8")
    if p.prefill_id is not None and NAME.fullmatch(p.prefill_id) is None:
        raise _refused("prefill_id", p.prefill_id, "1 to 128 letters, digits and _ . : -")
    if p.allowed_tokens is not None and not callable(p.allowed_tokens):
        raise _refused("allowed_tokens", p.allowed_tokens, "a function of the emitted tokens")


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _refused(name: str, found: object, expected: str) -> RequestError:
    return ArgumentError(name, found, expected)
