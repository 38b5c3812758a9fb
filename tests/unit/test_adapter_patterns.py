"""Expressions over module names: what `re` says, in bounded time, and refusals by name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from lora_host.errors import AdapterError
from lora_sdk.adapters.config import parse
from lora_sdk.adapters.patterns import PatternFault, check, ends_with, layer_after, whole

NAMES = [
    f"{lead}layers.{layer}.{part}_proj"
    for lead in ("model.", "model.decoder.", "visual.")
    for layer in (0, 1, 10, 79)
    for part in ("self_attn.q", "self_attn.v", "mlp.down")
] + ["lm_head", "transformer.h.3.attn.c_attn"]
EXPRESSIONS = (
    r".*q_proj", r"model\.layers\.\d+\.self_attn\.(q|v)_proj", r"(?i)MODEL.*", r"[^.]*",
    r"(?:.*?(?:self_attn|mlp).*?(?:q_proj|down_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.mlp.*)",
    r"^(?!.*visual).*(?:q|v)_proj", r"(?!visual)(?=.*layers\.1\.).*", r"(?![)]*\)x|y).*_proj$",
    r"(?!model)(?!visual)(?:lm_head|transformer.*)", r"(?![^]v]isual).*", "lm_head|.*down_proj",
)  # fmt: skip
FATAL = (r"(([a-z._0-9]+)+)+!", "(.*)" * 800 + "!", r"(.{0,30}){33}!", r"(.|.|.){0,60}!")


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_it_says_what_re_says(text: str) -> None:
    found = whole(text)
    want = [name for name in NAMES if re.fullmatch(text, name)]
    assert [name for name in NAMES if found.fullmatch(name)] == want
    assert 0 < len(want) < len(NAMES) or text == "[^.]*" or "isual).*" in text


def test_keys_and_layers_are_found_as_peft_finds_them() -> None:
    for key in ("q_proj", r"layers\.1\..*", r"self_attn\.(q|v)_proj", "proj"):
        for name in NAMES:
            assert ends_with(key, name) == (re.match(rf"(.*\.)?({key})$", name) is not None)
    for pattern in ("layers", "h", "[^.]*", "decoder.layers"):
        for name in NAMES:
            found = re.match(rf"(?:^|.*?\.){pattern}\.(\d+)\.", name)
            assert layer_after(pattern, name) == (int(found.group(1)) if found else None)


@pytest.mark.parametrize("text", FATAL)
def test_no_expression_takes_long(text: str) -> None:
    """The first takes `re` longer than a lifetime. 100 ms of this thread's time for each name."""
    names = NAMES[:8]
    for act in (lambda name: whole(text).fullmatch(name), lambda name: ends_with(text, name)):
        began = time.thread_time()
        with suppress(PatternFault):  # too large for its memory
            assert not any(map(act, names))
        assert time.thread_time() - began < 0.1 * len(names)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("target_modules", r"(a)\1", r"target_modules .* found invalid escape sequence"),
        ("target_modules", "a" * 4097, "4097 characters; at most 4096"),
        ("target_modules", "q{,3}", r"found '\{,', which matchers read differently"),
        ("target_modules", "[[:alpha:]]", r"found '\[\[:', which matchers read differently"),
        ("target_modules", "(" * 3000 + ")" * 3000, "4096"),
        ("target_modules", "(" * 1500 + ")" * 1500, "recursion"),
        ("target_modules", "(?!a)b|c", "alternatives behind a lookahead"),
        ("target_modules", "b(?!a)", "invalid perl operator"),
        ("target_modules", r"\p{Greek}", "bad escape"),
        ("target_modules", "(a{1000}){1000}", "RE2"),
        ("rank_pattern", {"(": 4}, "rank_pattern .* missing"),
        ("rank_pattern", {f"a{i}": 4 for i in range(4097)}, "of 4097 entries"),
        ("layers_pattern", ["(h)"], "found a group"),
        ("layers_pattern", [f"a{i}" for i in range(4097)], "of 4097 entries"),
    ],
)
def test_refusals_name_the_field(field: str, value: object, says: str) -> None:
    base = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    with pytest.raises(AdapterError, match=says):
        parse({**base, field: value})


def test_all_linear_leaves_out_the_head() -> None:
    config = parse({"peft_type": "LORA", "target_modules": "all-linear"})
    old: Callable[[str], object] = re.compile(
        r".*\.(?!lm_head$|project_in$|project_out$)[^.]+"
    ).fullmatch
    for name in (*NAMES[:-2], "model.decoder.project_in", "a.lm_head", "a.b"):
        assert config.has(name) == (old(name) is not None), name
    check("all-linear")
