"""JSON schemas, regular expressions, choices and grammars that texts keep to."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher
from openai import BadRequestError

from lora_sdk import Engine
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.serve import constraint as constraint_module
from lora_sdk.serve.grammar_fields import GrammarFields
from lora_sdk.step.tree_shape import TreeShape
from tests.serve.test_serve_attacks import memory
from tests.served import Served, eventually, served

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "count", "tags"],
    "additionalProperties": False,
}
SCHEMAS = 300


def text(server: Served, seed: int = 1, **fields: Any) -> str:
    body = {"prompt": "x = ", "max_tokens": 60, "seed": seed, **fields}
    got = server.post("/v1/completions", body)
    assert got.status == 200, got.body
    (choice,) = got.body["choices"]
    assert choice["finish_reason"] == "stop", choice
    return str(choice["text"])


NOT = {"not": {}}
WITHOUT = [
    {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}, "b": NOT},
     "required": ["a"], "additionalProperties": NOT},
    {"type": "array", "items": NOT},
    {"anyOf": [NOT, {"enum": ["not"]}]},
    {"type": "object", "properties": {"not": {"enum": [{"not": {}}]}}, "required": ["not"],
     "additionalProperties": {"not": True}},
    {"$defs": {"not": {"const": 1}}, "anyOf": [NOT, {"$ref": "#/$defs/not"}], "not": False},
]  # fmt: skip


@pytest.mark.parametrize("schema", WITHOUT)
def test_schemas_that_name_nothing(server: Served, schema: dict[str, Any]) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for fields in ({"response_format": form}, {"guided_json": json.dumps(schema)}):
        made = json.loads(text(server, **fields))
        jsonschema.validate(made, schema)
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 80, "seed": 1}
    got = server.post("/v1/chat/completions", {**ask, "tools": tools, "tool_choice": "required"})
    assert got.status == 200, got.body


@pytest.mark.parametrize("schema", [NOT, {"type": "object", **NOT}])
def test_a_schema_of_nothing_is_refused(server: Served, schema: dict[str, Any]) -> None:
    got = server.post("/v1/completions", {"prompt": "a", "guided_json": schema})
    assert got.status == 400 and "allows no text" in got.body["error"]["message"]


def test_a_chat_answers_by_its_schema(server: Served) -> None:
    params: Any = {
        "model": "demo", "messages": [{"role": "user", "content": "hi"}], "seed": 4, "n": 3,
        "max_tokens": 80, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
    }  # fmt: skip
    create = server.client().chat.completions.create
    whole = [choice.message.content for choice in create(**params).choices]
    assert len(set(whole)) == 3
    for answer in whole:
        jsonschema.validate(json.loads(answer or ""), SCHEMA)
    streamed = ["", "", ""]
    for chunk in create(stream=True, **params):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == whole


def test_each_form(server: Served) -> None:
    for schema in (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
    ):
        jsonschema.validate(json.loads(text(server, **schema)), SCHEMA)
    regex = r"[a-f]{3}-\d{1,5}!"
    for fields in ({"guided_regex": regex}, {"structured_outputs": {"regex": regex}}):
        assert re.fullmatch(regex, text(server, **fields))
    words = ["ja\n", 'n"ein']
    for chosen in ({"guided_choice": words}, {"structured_outputs": {"choice": words}}):
        assert text(server, **chosen) in words
    lark = 'start: "f(" args ")"\nargs: NAME ("," NAME)?\nNAME: /[a-z]{1,3}/\n'
    for grammar in ({"guided_grammar": lark}, {"structured_outputs": {"grammar": lark}}):
        assert re.fullmatch(r"f\([a-z]{1,3}(,[a-z]{1,3})?\)", text(server, **grammar))
    assert text(server, response_format={"type": "text"}, stop=["\n"]) is not None


def test_any_object(server: Served) -> None:
    ended = 0
    for seed in range(8):
        body = {"prompt": "x = ", "seed": seed, "response_format": {"type": "json_object"},
                "max_tokens": 120}  # fmt: skip
        (choice,) = server.post("/v1/completions", body).body["choices"]
        if choice["finish_reason"] == "stop":
            ended += 1
            assert isinstance(json.loads(choice["text"]), dict)
        else:
            assert choice["text"].startswith("{")
    assert ended >= 3


def test_a_batch_keeps_each_text_apart(server: Served) -> None:
    shared = {"n": 2, "seed": 3, "max_tokens": 60, "guided_json": SCHEMA}
    body = {"prompt": ["x = ", "y", "def f"], **shared}
    got = server.post("/v1/completions", body).body["choices"]
    assert len(got) == 6
    for choice in got:
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)
    alone = server.post("/v1/completions", {**body, "prompt": "y"}).body["choices"]
    assert [c["text"] for c in alone] == [c["text"] for c in got[2:4]]


def test_speculation_changes_nothing(server: Served) -> None:
    drafting = SpeculationOptions("lookup", None, TreeShape.chain(5))
    fields = {"guided_json": SCHEMA, "temperature": 0.7}
    prompt = 'x = {"name":"a","count":1,"tags":["a","a"]}\n' * 2
    with served(lambda progress: Engine(progress=progress, speculation=drafting)) as fast:
        for seed in range(10):
            assert text(fast, seed, **fields) == text(server, seed, **fields)
            assert text(fast, seed, **{**fields, "prompt": prompt}) == text(
                server, seed, **{**fields, "prompt": prompt}
            )
        statistics = fast.engine.speculation
        assert statistics is not None and statistics.emitted > statistics.verifications > 0


def draw(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A random schema of the supported subset, whose values are short."""
    kinds = ["integer", "number", "string", "pattern", "boolean", "null", "enum", "const"]
    if depth < 2:
        kinds += ["object", "array", "anyOf"] * 2
    kind = rng.choice(kinds) if depth else "object"
    if kind == "integer":
        low = rng.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 500)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "maximum": rng.randint(1, 9), "multipleOf": 0.5}
    if kind == "string":
        return {"type": "string", "minLength": rng.randint(0, 2), "maxLength": rng.randint(2, 8)}
    if kind == "pattern":
        patterns = ("^[a-z]{1,5}$", r"^\d\d:\d\d$", "^(on|off)$")
        return {"type": "string", "pattern": rng.choice(patterns)}
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", 1, 2.5, None, True, "ü"], rng.randint(1, 4))}
    if kind == "const":
        return {"const": rng.choice(["k", 7, False])}
    if kind == "array":
        sizes = {"minItems": rng.randint(0, 1), "maxItems": rng.randint(1, 3)}
        return {"type": "array", "items": draw(rng, depth + 1), **sizes}
    if kind == "anyOf":
        return {"anyOf": [draw(rng, depth + 1) for _ in range(rng.randint(1, 3))]}
    if kind != "object":
        return {"type": kind}
    properties = {f"k{i}": draw(rng, depth + 1) for i in range(rng.randint(1, 3))}
    required = [name for name in properties if rng.random() < 0.7]
    members = {"properties": properties, "required": required}
    return {"type": "object", **members, "additionalProperties": False}


def test_random_schemas(server: Served) -> None:
    def ask(seed: int) -> str:
        schema = draw(random.Random(seed))
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        body = {"prompt": "x = ", "max_tokens": 100, "seed": seed, "response_format": form}
        got = server.post("/v1/completions", body)
        assert got.status == 200, (schema, got.body)
        (choice,) = got.body["choices"]
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["text"]), schema)
        return str(choice["finish_reason"])

    with ThreadPoolExecutor(8) as pool:
        ends = Counter(pool.map(ask, range(SCHEMAS)))
    assert ends.total() == SCHEMAS and ends["stop"] >= 200, ends


CHAIN = "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(1400)) + 'a1400: "x"\n'
WIDE = "start: a0\n" + "".join(f'a{i}: (a{i + 1} | "u" a{i + 1})? "q"\n' for i in range(500))
REFERENCES = (
    '{"$ref": "#/$defs/0", "$defs": {'
    + "".join(f'"{i}":{{"properties":{{"x":{{"$ref":"#/$defs/{i + 1}"}}}}}},' for i in range(1200))
    + '"1200": {"const": "x"}}}'
)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("guided_regex", {"guided_regex": "("}),
        ("guided_regex", {"guided_regex": "a" * 5000}),
        ("guided_grammar", {"guided_grammar": "bad bad"}),
        ("guided_grammar", {"guided_grammar": WIDE + 'a500: "x"'}),
        ("guided_grammar", {"guided_grammar": "x" * 20_000}),
        ("guided_json", {"guided_json": "{"}),
        ("guided_json", {"guided_json": {"type": "nonsense"}}),
        ("guided_json", {"guided_json": {"$ref": "http://localhost/schema"}}),
        ("guided_json", {"guided_json": {"type": "integer", "multipleOf": 999999937}}),
        ("guided_json", {"guided_json": {"enum": ["x" * 70_000]}}),
        ("guided_choice", {"guided_choice": []}),
        ("guided_choice", {"guided_choice": [""]}),
        ("guided_choice", {"guided_choice": ["a"], "guided_regex": "a"}),
        ("response_format", {"response_format": {"type": "json_schema"}}),
        ("response_format", {"response_format": {"type": "yaml"}}),
        ("structured_outputs", {"structured_outputs": {"json": {}, "regex": "a"}}),
        ("ignore_eos", {"guided_regex": "a", "ignore_eos": True}),
    ],
)  # fmt: skip
def test_bad_grammars_are_refused(server: Served, field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as caught:
        server.client().completions.create(
            model="demo", prompt="a", temperature=0, extra_body=fields
        )
    assert caught.value.param == field
    assert len(caught.value.message) < 500 and "model" not in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("guided_json", {"$ref": "#"}),
        ("guided_regex", r"[^\s\S]"),
        ("guided_grammar", "start: start"),
    ],
)
def test_a_grammar_that_allows_no_text_is_refused(server: Served, field: str, value: Any) -> None:
    for stream in (False, True):
        got = server.post("/v1/completions", {"prompt": "a", "stream": stream, field: value})
        error = got.body["error"]
        assert (got.status, error["param"]) == (400, field)
        assert error["message"] == f"{field}: it allows no text"


def test_a_grammar_that_gets_stuck_says_so(server: Served) -> None:
    stuck = {"guided_grammar": 'start: "a" more\nmore: more', "temperature": 0}
    got = server.post("/v1/completions", {"prompt": "a", **stuck})
    error = got.body["error"]
    assert (got.status, error["param"]) == (400, "guided_grammar")
    assert error["message"] == "the grammar cannot be kept: no text that it allows begins so"


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_may_leave_while_its_grammar_is_made(server: Served) -> None:
    for index in range(4):  # each another grammar: made ones are kept
        body = {"prompt": "a", "guided_grammar": WIDE + f'a500: "{index}"', "max_tokens": 1}
        data = json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
                b"content-length: %d\r\n\r\n" % len(data) + data
            )
            assert eventually(lambda: server.service.attendants.count == 1)
        assert eventually(lambda: server.service.attendants.count == 0)
    for thread in threading.enumerate():
        if thread.name == "lora-grammar":
            thread.join(30)
    assert text(server, guided_regex="a") == "a"


def test_long_chains_of_rules_do_not_overflow_a_stack(server: Served) -> None:
    """They do with a thread's usual one, and end the process."""
    assert text(server, guided_grammar=CHAIN) == "x"
    got = server.post(
        "/v1/completions", {"prompt": "a", "max_tokens": 5, "guided_json": REFERENCES}
    )
    assert got.status == 200 and got.body["choices"][0]["text"]


def test_compiled_grammars_are_kept_up_to_a_size(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were used last."""
    compiler = constraint_module.Compiler(server.engine)
    sizes = iter([0, 1000, 0, 30 << 20, 0, 30 << 20, 0, 1000, 0, 80 << 20])
    monkeypatch.setattr(constraint_module, "in_use", lambda: next(sizes))
    grammars = [LLMatcher.grammar_from_regex(letter) for letter in "abcde"]
    for grammar in (*grammars[:3], grammars[0], grammars[3]):
        compiler.compiled(grammar, 1)
    assert list(compiler.kept) == [grammars[i] for i in (1, 2, 0, 3)]
    compiler.compiled(grammars[4], 1)  # which is too large by itself
    assert not compiler.kept
    monkeypatch.setattr(constraint_module, "in_use", lambda: None)
    for number in range(40):
        compiler.compiled(LLMatcher.grammar_from_regex(str(number)), 1)
    assert 4 <= len(compiler.kept) <= 16


LONG = "start: /={9999}/~99"
FORCED: list[dict[str, Any]] = [
    {"guided_grammar": LONG},
    {"guided_grammar": LONG + '\n%llguidance {"no_forcing": false}'},
    {"guided_grammar": 'start: %lark {\nstart: /={9999}/~99\n%llguidance {"no_forcing": false}\n}'},
    {"guided_regex": "(={999}){999}"},
    {"guided_choice": ["=" * 60_000]},
    {"guided_json": {"type": "string", "enum": ["=" * 60_000]}},
]


@pytest.mark.parametrize("fields", FORCED)
def test_masks_look_no_further_than_a_token(server: Served, fields: dict[str, Any]) -> None:
    """Where a text is forced llguidance follows it to its end, a million characters here, for every
    mask, and allows one token."""
    found = GrammarFields.model_validate(fields).grammar()
    assert found is not None
    compiler, tokenizer = constraint_module.Compiler(server.engine), server.engine.tokenizer
    constraint = compiler.compiled(found[1], 1)
    begun = tokenizer.encode('"', special=False) if "guided_json" in fields else []
    allowed = {tokenizer.token_bytes(int(token)) for token in np.flatnonzero(constraint(begun))}
    assert len(allowed) > 1 and not any(piece.strip(b"=") for piece in allowed)
    assert max(compiler.kept.values()) < 4 << 20


@pytest.mark.slow
def test_what_a_grammar_takes_is_counted_and_given_back(server: Served) -> None:
    compiler = constraint_module.Compiler(server.engine)
    compiler.compiled(LLMatcher.grammar_from_regex("a"), 1)
    large = LLMatcher.grammar_from_lark(LONG)
    before = memory(os.getpid(), "VmRSS")
    compiler.compiled(large, 1)
    assert compiler.kept[large] > 4 << 20
    assert memory(os.getpid(), "VmRSS") - before < 90  # 200 MB at the peak
