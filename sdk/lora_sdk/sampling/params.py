"""SamplingParams: what a user may ask of one request, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from lora_host.errors import RequestError

AllowedTokens = Callable[[Sequence[int]], "np.ndarray | None"]
"""Hook before sampling: the tokens emitted so far -> a bool mask [vocabulary], None for all."""

DEFAULT_MAX_TOKENS = 128
# Beyond these, logits leave FP32's range; within them sampling is already uniform, or certain.
MAX_TEMPERATURE = 1e6
MAX_BIAS = 1e6
PENALTY_RANGE = (1e-6, 1e6)


@dataclass(frozen=True)
class SamplingParams:
    """How one request is continued. Greedy unless `temperature` is above 0.

    Raises RequestError, naming the field, when a value is out of range.
    """

    max_tokens: int | None = DEFAULT_MAX_TOKENS
    """At most so many new tokens; None: until the context is full."""
    min_tokens: int = 0
    """Neither end-of-text nor a stop takes effect before so many new tokens."""
    n: int = 1
    """Samples of one prompt; sample i draws with noise of its own."""
    temperature: float = 0.0
    """0 takes the most likely token."""
    top_k: int = 0
    """Keep the k most likely tokens; 0 or -1 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of likeliest tokens whose probability reaches top_p."""
    min_p: float = 0.0
    """Keep tokens at least min_p times as likely as the likeliest."""
    repetition_penalty: float = 1.0
    """Divides (positive) or multiplies (negative) logits of tokens in prompt or output."""
    presence_penalty: float = 0.0
    """Subtracted once from the logit of a token that the output holds."""
    frequency_penalty: float = 0.0
    """Subtracted from a token's logit once for each time that the output holds it."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these token ids."""
    bad_words: str | Sequence[str] = ()
    """Words that are not produced: the last token of each is forbidden after the ones before it."""
    seed: int | None = None
    """0..2**64-1; None draws one, which the result tells."""
    stop: str | Sequence[str] = ()
    """Strings that end the text where they begin."""
    stop_token_ids: Sequence[int] = ()
    """Token ids that end the text, beside the model's end-of-text."""
    ignore_eos: bool = False
    """Go on after the model's end-of-text token."""
    logprobs: int | None = None
    """Return the log probability of each new token and of so many likeliest ones."""
    prompt_logprobs: int | None = None
    """The same for the prompt's tokens, from the second one on."""
    logprobs_mode: str = "raw"
    """"raw": of the model's logits. "processed": after penalties, bias and temperature."""
    include_stop_str_in_output: bool = False
    """Leave the stop string, or the stop token's text, in the text."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    adapter: str | None = None
    """Name of a loaded adapter; None: the model alone."""
    allowed_tokens: AllowedTokens | None = None
    """Hook before sampling that restricts the next token (grammars)."""

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words", "stop_token_ids"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        if not isinstance(self.logit_bias, Mapping):
            raise _refuse("logit_bias", self.logit_bias, "a mapping of token ids to numbers")
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        _check_integers(self)
        _check_reals(self)
        _check_texts(self)
        if self.adapter is not None and not isinstance(self.adapter, str):
            raise RequestError(f"adapter is {self.adapter!r}; expected the name of a loaded one")

    @property
    def stops(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return tuple(self.stop)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken without noise."""
        return self.temperature == 0.0

    @property
    def needs_logits(self) -> bool:
        """Whether the choice of a token needs more than the argmax of the model's logits."""
        return (
            not self.greedy
            or self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or bool(self.logit_bias)
            or bool(self.bad_words)
            or self.logprobs is not None
            or self.min_tokens > 0
            or self.allowed_tokens is not None
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> SamplingParams:
        """Parameters from a JSON object; RequestError names an unknown field."""
        known = {f.name for f in fields(cls)} - {"allowed_tokens"}
        unknown = sorted(set(values) - known)
        if unknown:
            raise RequestError(
                f"sampling parameter {unknown[0]!r} is unknown; known: {', '.join(sorted(known))}"
            )
        given = dict(values)
        bias = given.get("logit_bias")
        if isinstance(bias, Mapping):  # JSON keys are strings
            given["logit_bias"] = {_token_key(key): value for key, value in bias.items()}
        return cls(**given)  # type: ignore[arg-type]


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    """A sequence parameter; a string is one of its entries."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise _refuse(name, value, "a list")
    return tuple(value)


def _token_key(key: object) -> object:
    return int(key) if isinstance(key, str) and key.isdecimal() else key


def _refuse(name: str, found: object, expected: str) -> RequestError:
    return RequestError(f"sampling parameter {name} is {found!r:.60}; expected {expected}")


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _check_integers(p: SamplingParams) -> None:
    limits: dict[str, tuple[int, int | None, bool]] = {
        "max_tokens": (1, None, True),
        "min_tokens": (0, None, False),
        "n": (1, 1024, False),
        "top_k": (-1, None, False),
        "seed": (0, 2**64 - 1, True),
        "logprobs": (0, 1000, True),
        "prompt_logprobs": (0, 1000, True),
    }
    for name, (low, high, optional) in limits.items():
        value = getattr(p, name)
        if value is None and optional:
            continue
        bounds = f"an integer of at least {low}" if high is None else f"an integer in {low}..{high}"
        if not _is_integer(value) or value < low or (high is not None and value > high):
            raise _refuse(name, value, bounds + (" or None" if optional else ""))
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise _refuse("min_tokens", p.min_tokens, f"at most max_tokens ({p.max_tokens})")
    for token in p.stop_token_ids:
        if not _is_integer(token) or token < 0:
            raise _refuse("stop_token_ids", token, "token ids, integers of at least 0")


def _check_reals(p: SamplingParams) -> None:
    limits: dict[str, tuple[float, float, bool]] = {
        "temperature": (0.0, MAX_TEMPERATURE, True),
        "top_p": (0.0, 1.0, False),
        "min_p": (0.0, 1.0, True),
        "repetition_penalty": (*PENALTY_RANGE, True),
        "presence_penalty": (-2.0, 2.0, True),
        "frequency_penalty": (-2.0, 2.0, True),
    }
    for name, (low, high, low_included) in limits.items():
        value = getattr(p, name)
        expected = f"a number {'from' if low_included else 'above'} {low:g} to {high:g}"
        if (
            not _is_real(value)
            or value > high
            or value < low
            or (value == low and not low_included)
        ):
            raise _refuse(name, value, expected)
    for token, bias in p.logit_bias.items():
        if not _is_integer(token) or token < 0 or not _is_real(bias) or abs(bias) > MAX_BIAS:
            expected = f"token ids with numbers from {-MAX_BIAS:g} to {MAX_BIAS:g}"
            raise _refuse("logit_bias", {token: bias}, expected)


def _is_real(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        return False


def _check_texts(p: SamplingParams) -> None:
    for name in ("stop", "bad_words"):
        for text in getattr(p, name):
            if not isinstance(text, str) or not text:
                raise _refuse(name, text, "strings that are not empty")
    if p.logprobs_mode not in ("raw", "processed"):
        raise _refuse("logprobs_mode", p.logprobs_mode, "'raw' or 'processed'")
    for name in ("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"):
        if not isinstance(getattr(p, name), bool):
            raise _refuse(name, getattr(p, name), "True or False")
    if p.allowed_tokens is not None and not callable(p.allowed_tokens):
        raise _refuse("allowed_tokens", p.allowed_tokens, "a function of the emitted tokens")
