"""Tools: rendered by the template, called in each family's form, whole and streamed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openai import BadRequestError

from lora_sdk import Engine
from lora_sdk.serve.tool_calls import ToolCall, ToolText
from lora_sdk.serve.tool_formats import tool_format
from tests.served import TEMPLATE, Served, chat_model, eventually, served

HEAD = "{% if tools %}Tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %}\n{% endif %}"
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments.x }}"
    "{% endfor %}{% endfor %}"
)
TEMPLATES = {
    "hermes": HEAD + "{# <tool_call> #}" + TEMPLATE + CALLS,
    "mistral": HEAD + "{# [TOOL_CALLS] #}" + TEMPLATE + CALLS,
    "llama3_json": HEAD + "{# ipython #}" + TEMPLATE + CALLS,
}
PARAMETERS = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["x", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "heat", "description": "d", "parameters": PARAMETERS},
    },
    {"type": "function", "function": {"name": "stop_all"}},
]
MESSAGES: list[Any] = [{"role": "user", "content": "Heat it."}]
HEAT, STOP = ToolCall("heat", '{"x": 7, "unit": "C"}'), ToolCall("stop_all", "{}")
GIVEN = '{"x": 7, "unit": "C"}'
TEXTS = [
    ("hermes", "plain <tool text", "plain <tool text", []),
    (
        "hermes",
        f'Sure.\n<tool_call>\n{{"name": "heat", "arguments": {GIVEN}}}\n</tool_call>\n'
        '<tool_call>{"name": "stop_all"}</tool_call>\n done',
        "Sure.\ndone",
        [HEAT, STOP],
    ),
    ("hermes", "<tool_call>no json</tool_call>x", "<tool_call>no json</tool_call>x", []),
    ("hermes", '<tool_call>{"name": "heat"', '<tool_call>{"name": "heat"', []),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "heat", "arguments": {GIVEN}}}, {{"name": "stop_all"}}]',
        "",
        [HEAT, STOP],
    ),
    (
        "mistral",
        f"ok [TOOL_CALLS]heat{GIVEN}[TOOL_CALLS]stop_all[ARGS]{{}}",
        "ok ",
        [HEAT, STOP],
    ),
    ("mistral", "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing", []),
    ("llama3_json", f'{{"name": "heat", "parameters": {GIVEN}}}', "", [HEAT]),
    (
        "llama3_json",
        f'\n<|python_tag|>{{"name": "heat", "parameters": {GIVEN}}}; {{"name": "stop_all"}}',
        "",
        [HEAT, STOP],
    ),
    ("llama3_json", "{ is a brace", "{ is a brace", []),
    ("llama3_json", "  plain", "  plain", []),
    ("llama3_json", '{"no": "name"}', '{"no": "name"}', []),
]


@pytest.mark.parametrize(("family", "text", "content", "calls"), TEXTS)
def test_calls_are_found_however_the_text_comes(
    family: str, text: str, content: str, calls: list[ToolCall]
) -> None:
    rng = random.Random(5)
    form = tool_format("auto", TEMPLATES[family])
    assert form is not None and form.name == family
    for size in (10_000, 1, 2, 3, 5, 8):
        splitter, shown, found, at = ToolText(form), "", [], 0
        while at < len(text):
            end = at + (size if size != 8 else rng.randint(1, 8))
            more, called = splitter.push(text[at:end])
            shown, found, at = shown + more, found + called, end
        more, called = splitter.finish()
        assert (shown + more, found + called) == (content, calls), size


def test_one_call_alone_where_parallel_calls_are_off() -> None:
    form = tool_format("auto", TEMPLATES["hermes"])
    splitter = ToolText(form, single=True)
    assert splitter.push(TEXTS[1][1]) == ("Sure.\ndone", [HEAT])


@pytest.fixture(scope="module", params=TEMPLATES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Served]]:
    model = chat_model(tmp_path_factory.mktemp("tools"), TEMPLATES[request.param])
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield request.param, running
        assert eventually(running.settled)


def ask(server: Served, **more: Any) -> Any:
    params = {"model": "demo", "messages": MESSAGES, "tools": TOOLS, "seed": 3, "max_tokens": 90}
    return server.client().chat.completions.create(**{**params, **more})


def joined(chunks: Any) -> tuple[str, list[tuple[str, str]], str]:
    """(content, (name, arguments) of each call, finish reason) of a stream."""
    content, calls, reason = "", [], ""
    for chunk in chunks:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for call in delta.tool_calls or ():
            assert call.index == len(calls) and call.id and call.type == "function"
            calls.append((call.function.name, call.function.arguments))
        reason = chunk.choices[0].finish_reason or reason
    return content, calls, reason


def test_calls_of_the_model(family: tuple[str, Served]) -> None:
    """The text of a call, which the demo model does not write by itself, is forced."""
    name, server = family
    text, calls = next(
        (text, calls) for of, text, _, calls in TEXTS if of == name and len(calls) > 1
    )
    forced = {"extra_body": {"guided_choice": [text]}, "max_tokens": 200}
    (choice,) = ask(server, **forced).choices
    got = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
    assert got == [(call.name, call.arguments) for call in calls]
    assert choice.finish_reason == "tool_calls"
    streamed = joined(ask(server, stream=True, **forced))
    assert streamed == (choice.message.content or "", got, "tool_calls")
    (free,) = ask(server, tool_choice="none", **forced).choices
    assert free.message.content == text and free.message.tool_calls is None
    assert free.finish_reason == "stop"


def test_forced_calls_keep_to_their_schema(family: tuple[str, Served]) -> None:
    _, server = family
    named = {"type": "function", "function": {"name": "heat"}}
    for choice in (named, "required"):
        (got,) = ask(server, tool_choice=choice, parallel_tool_calls=False).choices
        (call,) = got.message.tool_calls
        if call.function.name == "heat":
            jsonschema.validate(json.loads(call.function.arguments), PARAMETERS)
        assert got.message.content is None and got.finish_reason == "tool_calls"
        calls = joined(ask(server, tool_choice=choice, parallel_tool_calls=False, stream=True))[1]
        assert calls == [(call.function.name, call.function.arguments)]
    assert call.function.name in ("heat", "stop_all")


def test_forced_calls_follow_references_of_their_schemas(family: tuple[str, Served]) -> None:
    """Two tools, each with definitions of its own, of the same name; one refers to itself."""
    _, server = family
    schemas = [
        {
            "type": "object",
            "properties": {
                "p": {"$ref": "#/$defs/P"},
                "q": {"anyOf": [{"$ref": "#"}, False]},
                "default": {"$ref": "#/$defs/P"},
            },
            "required": ["p"],
            "additionalProperties": False,
            "$defs": {"P": {"enum": allowed}},
        }
        for allowed in (["one", "two"], [3, 4])
    ]
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}}
        for i, schema in enumerate(schemas)
    ]
    seen = set()
    for seed in range(16):
        (got,) = ask(
            server, tools=tools, tool_choice="required", parallel_tool_calls=False, seed=seed,
            temperature=2,
        ).choices  # fmt: skip
        (call,) = got.message.tool_calls
        index = int(call.function.name[-1])
        jsonschema.validate(json.loads(call.function.arguments), schemas[index])
        seen.add(index)
    assert seen == {0, 1}


def test_the_prompt_holds_tools_calls_and_results(family: tuple[str, Served]) -> None:
    _, server = family
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "heat", "arguments": '{"x": 41}'},
    }
    messages = [*MESSAGES, {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "hot"}]  # fmt: skip
    whole = ask(server, messages=messages, max_tokens=1).usage.prompt_tokens
    bare = ask(server, messages=messages, max_tokens=1, tool_choice="none").usage.prompt_tokens
    assert whole > bare + 40  # the tools' schemas
    tokens = server.post("/tokenize", {"messages": messages}).body["tokens"]
    assert len(tokens) == bare and "41" in server.engine.tokenizer.decode(tokens)


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        ("tools", {"tools": [{"type": "code"}]}),
        ("tool_choice", {"tools": [], "tool_choice": "required"}),
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "no"}}}),
        ("tool_choice", {"tool_choice": "sometimes"}),
        ("tool_choice", {"tool_choice": "required", "guided_regex": "a"}),
        ("messages", {"messages": [{"role": "tool", "tool_call_id": "a"}]}),
        ("messages", {"messages": [{"role": "assistant", "tool_calls": [
            {"id": "a", "function": {"name": "b", "arguments": "["}}]}]}),
    ],
)  # fmt: skip
def test_bad_tools_are_named(family: tuple[str, Served], field: str, fields: Any) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(family[1], extra_body=fields)
    assert caught.value.param == field


def test_a_template_without_tools_refuses_them(server: Served) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(server)
    assert caught.value.param == "tools"
    assert ask(server, tool_choice="none", max_tokens=2).choices


@pytest.mark.parametrize("seed", range(3))
def test_tools_without_parameters_take_none(server: Served, seed: int) -> None:
    bare = [{"type": "function", "function": {"name": "stop_all"}}]
    for choice in ("required", {"type": "function", "function": {"name": "stop_all"}}):
        got = server.post("/v1/chat/completions", {
            "messages": MESSAGES, "tools": bare, "tool_choice": choice, "seed": seed,
            "max_tokens": 60, "parallel_tool_calls": False})  # fmt: skip
        assert got.status == 200, got.body
        (call,) = got.body["choices"][0]["message"]["tool_calls"]
        assert call["function"] == {"name": "stop_all", "arguments": "{}"}
