"""/v1/responses through the openai client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from openai import BadRequestError
from pydantic import BaseModel, ConfigDict, Field

from lora_sdk import Engine, SamplingParams
from lora_sdk.serve.chat_parts import Ending, Part
from lora_sdk.serve.responses import ResponseBody, _Response
from tests.serve.test_serve_tools import PARAMETERS, TEMPLATES
from tests.served import Served, chat_model, eventually, served

MESSAGES = [
    {"role": "system", "content": "Write code."},
    {"role": "user", "content": "import os\n"},
]
PARAMS: dict[str, Any] = {
    "model": "demo", "input": "import os\n", "instructions": "Write code.", "store": False,
    "temperature": 0, "max_output_tokens": 20,
}  # fmt: skip


def test_a_text(server: Served) -> None:
    want = server.engine.chat(MESSAGES, SamplingParams(max_tokens=20))
    got = server.client().responses.create(**PARAMS)
    assert got.output_text == want.text and got.object == "response"
    assert got.status == "incomplete" and got.incomplete_details is not None
    assert got.incomplete_details.reason == "max_output_tokens"
    assert got.usage is not None and got.usage.input_tokens == want.prompt_tokens
    assert got.usage.output_tokens == 20 and got.usage.total_tokens == want.prompt_tokens + 20


def test_an_earlier_answer_goes_on(server: Served) -> None:
    """Items of an answer are inputs of the next one."""
    first = server.client().responses.create(**PARAMS)
    items: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "import os\n"}]},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"role": "user", "content": "More."},
    ]
    got = server.client().responses.create(**{**PARAMS, "input": items})
    history = [
        *MESSAGES,
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "More."},
    ]
    assert got.output_text == server.engine.chat(history, SamplingParams(max_tokens=20)).text


def test_fields_that_change_nothing(server: Served) -> None:
    more = {
        "store": True, "service_tier": "flex", "reasoning": {"effort": "low"}, "tools": [],
        "truncation": "auto", "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "parallel_tool_calls": True,
        "tool_choice": "auto", "previous_response_id": None, "background": False,
    }  # fmt: skip
    got = server.client().responses.create(**PARAMS, extra_body=more)
    assert got.output_text == server.client().responses.create(**PARAMS).output_text


def test_streamed_events(server: Served) -> None:
    server.client().responses.create(**PARAMS)
    whole = server.client().responses.create(**PARAMS)
    events = list(server.client().responses.create(stream=True, **PARAMS))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"} and len(kinds) > 12
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    last = events[-1]
    assert last.type == "response.incomplete" and last.response.output_text == whole.output_text
    assert last.response.usage == whole.usage and whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == whole.usage.input_tokens - 1


TOOL: Any = {
    "type": "function", "name": "heat", "description": "d", "strict": True,
    "parameters": PARAMETERS,
}  # fmt: skip


class Point(BaseModel):
    """A typed answer."""

    model_config = ConfigDict(extra="forbid")
    name: Literal["a", "b"]
    x: int = Field(ge=0, le=99)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Of a template that knows tools and thoughts."""
    template = TEMPLATES["hermes"] + "{# <think></think> #}"
    model = chat_model(tmp_path_factory.mktemp("responses"), template)
    with served(lambda progress: Engine(model, progress=progress), strict=True) as running:
        yield running
        assert eventually(running.settled)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "heat"}])
def test_calls_go_on_for_turns(tools: Served, stream: bool, choice: Any) -> None:
    history: list[Any] = [{"role": "user", "content": "Heat it."}]
    client = tools.client()
    for turn in range(3):
        fields: dict[str, Any] = {
            "model": "demo", "input": history, "tools": [TOOL], "tool_choice": choice,
            "max_output_tokens": 90, "parallel_tool_calls": False, "extra_body": {"seed": turn},
        }  # fmt: skip
        if stream:
            with client.responses.stream(**fields) as events:
                kinds = [event.type for event in events]
                got = events.get_final_response()
            assert kinds[2:] == [
                "response.output_item.added", "response.function_call_arguments.delta",
                "response.function_call_arguments.done", "response.output_item.done",
                "response.completed",
            ]  # fmt: skip
        else:
            got = client.responses.create(**fields)
        (call,) = got.output
        assert call.type == "function_call" and call.name == "heat" and call.status == "completed"
        assert set(json.loads(call.arguments)) == {"x", "unit"}
        history += [
            call, {"type": "function_call_output", "call_id": call.call_id, "output": f"{turn}"}
        ]  # fmt: skip
    last = client.responses.create(model="demo", input=history, max_output_tokens=8)
    calls = [json.loads(one.arguments)["x"] for one in history[1::2]]
    messages: list[Any] = [{"role": "user", "content": "Heat it."}]
    for number, turn in zip(calls, range(3), strict=True):
        call = {"name": "heat", "arguments": json.dumps({"x": number})}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": "a", "function": call}]},
            {"role": "tool", "tool_call_id": "a", "content": f"{turn}"},
        ]
    assert last.usage is not None and last.usage.input_tokens == tools.engine_tokens(messages)


def test_typed_answers(tools: Served) -> None:
    got = tools.client().responses.parse(
        model="demo", input="A point.", text_format=Point, max_output_tokens=60
    )
    assert isinstance(got.output_parsed, Point)
    shown: Any = got.text
    assert shown.format.type == "json_schema"
    made = tools.client().responses.create(
        model="demo", input="A", text={"format": {"type": "json_object"}}, max_output_tokens=60
    )
    assert made.output_text.startswith("{")


def test_log_probabilities(server: Served) -> None:
    chat = server.client().chat.completions.create(
        model="demo", messages=MESSAGES, temperature=0, max_tokens=20, logprobs=True,
        top_logprobs=2,
    )  # fmt: skip
    wanted = chat.choices[0].logprobs
    assert wanted is not None and wanted.content is not None
    fields = {**PARAMS, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    got: Any = server.client().responses.create(**fields).output[0]
    assert [one.logprob for one in got.content[0].logprobs] == [
        one.logprob for one in wanted.content
    ]
    deltas = [
        one
        for event in server.client().responses.create(stream=True, **fields)
        if event.type == "response.output_text.delta"
        for one in event.logprobs
    ]
    assert [one.logprob for one in deltas] == [one.logprob for one in wanted.content]


def test_thoughts_are_an_item(tools: Served) -> None:
    made = _Response(tools.service, ResponseBody(input="a"))
    events = [*made.begin()]
    parts = [Part("reasoning", "I "), Part("reasoning", "see."), Part("text", "Yes."),
             Part("call", "{}", "heat", "c1"), Part("call", "{}", "heat", "c2")]  # fmt: skip
    for part in parts:
        events += made.push(part)
    events += made.end(Ending("tool_calls"))
    kinds = [event["type"].removeprefix("response.") for event in events]
    item = ["output_item.added", "content_part.added"]
    done = ["content_part.done", "output_item.done"]
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
            "output_item.done"]  # fmt: skip
    assert kinds == [
        "created", "in_progress", *item, *["reasoning_text.delta"] * 2, "reasoning_text.done",
        *done, *item, "output_text.delta", "output_text.done", *done, *call, *call, "completed",
    ]  # fmt: skip
    output = events[-1]["response"]["output"]
    assert [one["type"] for one in output] == [
        "reasoning", "message", "function_call", "function_call"
    ]  # fmt: skip
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "I see."}]
    assert len({one["id"] for one in output}) == 4
    # And the items come back as one message each.
    body = ResponseBody.model_validate({"input": output}).as_chat()
    assert [one.role for one in body.messages] == ["assistant"]
    first = body.messages[0]
    assert (first.reasoning_content, first.content) == ("I see.", "Yes.")
    assert first.tool_calls is not None and [one.id for one in first.tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize("lines", [40, 240])  # half of the items: fewer and more bytes than fit
def test_truncation_drops_the_first_items(server: Served, lines: int) -> None:
    items = [{"role": "user", "content": "import os\n" * lines} for _ in range(40)]
    fields = {**PARAMS, "input": items}
    with pytest.raises(BadRequestError) as caught:
        server.client().responses.create(**fields)
    assert caught.value.code == "context_length_exceeded"
    for stream in (False, True):
        got: Any = server.client().responses.create(**fields, truncation="auto", stream=stream)
        got = list(got)[-1].response if stream else got
        kept = got.usage.input_tokens
        one = server.engine_tokens([items[0]]) - server.engine_tokens(
            [{"role": "user", "content": ""}]
        )
        assert server.engine.context - 20 - 2 * one < kept <= server.engine.context - 20
    alone = {**PARAMS, "input": [{"role": "user", "content": "import os\n" * 2000}]}
    with pytest.raises(BadRequestError, match="maximum context length"):
        server.client().responses.create(**alone, truncation="auto")


def test_a_text_that_ends_by_itself_is_completed(server: Served) -> None:
    fields = {**PARAMS, "temperature": 1.5, "max_output_tokens": 400}
    for seed in range(20):
        got = server.client().responses.create(**fields, extra_body={"seed": seed})
        if got.status == "completed":
            assert got.incomplete_details is None and got.output_text is not None
            return
    pytest.fail("no text ended by itself")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("input", {"input": []}),
        ("input", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("temperature", {"temperature": -1}),
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("background", {"background": True}),
        ("text", {"text": {"format": {"type": "json_schema"}}}),
        ("text", {"text": {"format": {"type": "json_schema", "schema": {"type": 1}}}}),
        ("include", {"include": [1]}),
        ("top_logprobs", {"top_logprobs": 21}),
        ("truncation", {"truncation": "some"}),
        ("conversation", {"conversation": "conv_1"}),
        ("tools", {"tools": [{"type": "web_search"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("input", {"input": [{"type": "item_reference", "id": "a"}]}),
        ("input", {"input": [{"type": "function_call", "name": "a", "arguments": "{}"}]}),
        ("input", {"input": [{"type": "function_call_output", "output": "a"}]}),
        ("input", {"input": [{"content": "a"}]}),
    ],
)
def test_a_bad_field_is_named(server: Served, field: str, fields: dict[str, Any]) -> None:
    for stream in (False, True):
        with pytest.raises(BadRequestError) as caught:
            server.client().responses.create(**PARAMS, extra_body={**fields, "stream": stream})
        assert caught.value.param == field
        assert "max_tokens" not in caught.value.message
