"""/v1/messages: Anthropic's form, whole and streamed, beside the same chats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lora_sdk import Engine
from lora_sdk.serve.anthropic import _Blocks
from lora_sdk.serve.anthropic_fields import MessagesBody
from lora_sdk.serve.chat_parts import Part
from lora_sdk.serve.settings import digest
from tests.serve.test_serve_tools import PARAMETERS, TEMPLATES
from tests.served import Served, chat_model, eventually, served

KEY = "k" * 32
USER = {"role": "user", "content": "import os\n"}
ASK: dict[str, Any] = {"model": "demo", "max_tokens": 20, "temperature": 0, "messages": [USER]}
TOOL = {"name": "heat", "description": "Heats.", "input_schema": PARAMETERS}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = chat_model(tmp_path_factory.mktemp("anthropic"), TEMPLATES["hermes"])
    with served(lambda progress: Engine(model, progress=progress), strict=True) as running:
        yield running
        assert eventually(running.settled)


def post(server: Served, **fields: Any) -> dict[str, Any]:
    got = server.post("/v1/messages", {**ASK, **fields}, **{"x-api-key": "none"})
    assert got.status == 200, got.body
    body: dict[str, Any] = got.body
    return body


def events(server: Served, **fields: Any) -> list[dict[str, Any]]:
    """Of a stream, each with its name."""
    got = server.post("/v1/messages", {**ASK, "stream": True, **fields})
    assert got.status == 200, got.body
    found = []
    for block in got.body.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    return found


def together(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events make, as Anthropic's client puts it together."""
    assert found[0]["type"] == "message_start" and found[-1]["type"] == "message_stop"
    message: dict[str, Any] = found[0]["message"]
    texts: dict[int, str] = {}
    for event in found[1:-1]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            kind = event["delta"]["type"].removesuffix("_delta")
            block = message["content"][event["index"]]
            if kind == "input_json":
                texts[event["index"]] = (
                    texts.get(event["index"], "") + event["delta"]["partial_json"]
                )
            else:
                block[kind] += event["delta"][kind]
        elif event["type"] == "message_delta":
            message.update(event["delta"])
            message["usage"].update(event["usage"])
    for index, text in texts.items():
        message["content"][index]["input"] = json.loads(text)
    return message


def chat(server: Served, messages: list[Any], **fields: Any) -> Any:
    return server.client().chat.completions.create(
        model="demo", messages=messages, temperature=0, max_tokens=20, **fields
    )


def test_a_text_is_that_of_the_chat(server: Served) -> None:
    system = {"role": "system", "content": "Write code."}
    for given in (
        "Write code.",
        [{"type": "text", "text": "Write "}, {"type": "text", "text": "code."}],
    ):
        want = chat(server, [system, USER])
        got = post(server, system=given)
        assert got["content"] == [
            {"type": "text", "text": want.choices[0].message.content, "citations": None}
        ]
        assert (got["type"], got["role"], got["model"]) == ("message", "assistant", "demo")
        assert (got["stop_reason"], got["stop_sequence"]) == ("max_tokens", None)
        usage = got["usage"]
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == want.usage.prompt_tokens
        assert usage["output_tokens"] == 20 and usage["cache_read_input_tokens"] > 0
        streamed = together(events(server, system=given))
        assert {**streamed, "id": ""} == {**got, "id": ""}


def test_a_stop_sequence(server: Served) -> None:
    text = post(server)["content"][0]["text"]
    stop = text[-6:-4]
    for stream in (False, True):
        fields = {"stop_sequences": [stop]}
        got = together(events(server, **fields)) if stream else post(server, **fields)
        assert got["stop_reason"] == "stop_sequence" and got["stop_sequence"] == stop
        assert got["content"][0]["text"] == text[: text.index(stop)] != ""


def test_the_answer_goes_on_with_an_assistants_words(server: Served) -> None:
    begun = {"role": "assistant", "content": "def f"}
    want = chat(
        server, [USER, begun],
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )  # fmt: skip
    got = post(server, messages=[USER, begun])
    assert got["content"][0]["text"] == want.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "heat"}])
def test_calls_go_on_for_turns(tools: Served, stream: bool, choice: dict[str, Any]) -> None:
    history: list[Any] = [{"role": "user", "content": "Heat it."}]
    plain: list[Any] = [*history]
    for turn in range(3):
        fields = {
            "messages": history, "tools": [TOOL], "max_tokens": 90, "seed": turn, "temperature": 1,
            "tool_choice": {**choice, "disable_parallel_tool_use": True},
        }  # fmt: skip
        got = together(events(tools, **fields)) if stream else post(tools, **fields)
        (call,) = got["content"]
        assert call["type"] == "tool_use" and call["name"] == "heat"
        assert set(call["input"]) == {"x", "unit"} and got["stop_reason"] == "tool_use"
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [
            {"type": "text", "text": f"{turn} degrees"}]}  # fmt: skip
        history += [
            {"role": "assistant", "content": got["content"]},
            {"role": "user", "content": [result, {"type": "text", "text": "More."}]},
        ]
        function = {"name": "heat", "arguments": json.dumps(call["input"])}
        plain += [
            {"role": "assistant", "tool_calls": [{"id": call["id"], "function": function}]},
            {"role": "tool", "tool_call_id": call["id"], "content": f"{turn} degrees"},
            {"role": "user", "content": "More."},
        ]
    wanted = [{"type": "function", "function": {
        "name": "heat", "description": "Heats.", "parameters": PARAMETERS}}]  # fmt: skip
    counted = tools.post("/v1/messages/count_tokens", {"messages": history, "tools": [TOOL]})
    assert counted.status == 200
    assert counted.body == {"input_tokens": tools.engine_tokens(plain, wanted)}


def test_a_text_by_a_schema(tools: Served) -> None:
    form = {"type": "json_schema", "schema": PARAMETERS}
    for fields in ({"output_config": {"format": form}}, {"output_format": form}):
        got = post(tools, max_tokens=90, **fields)
        assert set(json.loads(got["content"][0]["text"])) == {"x", "unit"}


def test_thoughts_are_a_block(tools: Served) -> None:
    made = _Blocks()
    parts = [Part("reasoning", "I "), Part("reasoning", "see."), Part("text", "Yes."),
             Part("call", '{"x": 1}', "heat", "c1"), Part("call", "{}", "heat", "c2")]  # fmt: skip
    found = [event for part in parts for event in made.push(part)] + list(made.close())
    message = together(
        [{"type": "message_start", "message": {"content": []}}, *found, {"type": "message_stop"}]
    )
    assert message["content"] == [
        {"type": "thinking", "thinking": "I see.", "signature": ""},
        {"type": "text", "text": "Yes.", "citations": None},
        {"type": "tool_use", "id": "c1", "name": "heat", "input": {"x": 1}},
        {"type": "tool_use", "id": "c2", "name": "heat", "input": {}},
    ]
    ended = [event["index"] for event in found if event["type"] == "content_block_stop"]
    assert ended == [0, 1, 2, 3]
    turns = [USER, {"role": "assistant", "content": message["content"]}, USER]
    body = MessagesBody.model_validate({**ASK, "messages": turns}).as_chat()
    assert [one.role for one in body.messages] == ["user", "assistant", "user"]
    said = body.messages[1]
    assert (said.reasoning_content, said.content) == ("I see.", "Yes.")
    assert said.tool_calls is not None and [one.id for one in said.tool_calls] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("max_tokens", {"max_tokens": None}),
        ("max_tokens", {"max_tokens": 0}),
        ("messages", {"messages": []}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        ("tools", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("tool_choice", {"tool_choice": {"type": "tool"}}),
        ("container", {"container": "a"}),
        ("stop_sequences", {"stop_sequences": [1]}),
        ("temperature", {"temperature": -1}),
        ("messages", {"messages": [{"role": "user", "content": "import os\n" * 2000}]}),
    ],
)
def test_errors_have_anthropics_form(server: Served, field: str, fields: dict[str, Any]) -> None:
    for stream in (False, True):
        got = server.post("/v1/messages", {**ASK, **fields, "stream": stream})
        assert got.status == 400 and set(got.body) == {"type", "error"}, got.body
        assert got.body["type"] == "error"
        assert got.body["error"]["type"] == "invalid_request_error"
        assert field in got.body["error"]["message"]


def test_other_errors_have_it_too(server: Served) -> None:
    assert server.get("/v1/messages").body["error"]["type"] == "invalid_request_error"
    got = server.post("/v1/messages", {**ASK, "model": "x"})
    assert got.status == 404 and got.body["error"]["type"] == "not_found_error"
    got = server.post("/v1/messages", ASK, **{"content-type": "text/plain"})
    assert got.status == 415 and got.body["type"] == "error"


def test_the_key_has_a_header_of_its_own() -> None:
    with served(lambda progress: Engine(progress=progress), keys=(digest(KEY),)) as running:
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            got = running.post(path, ASK, **{"x-api-key": KEY[:-1]})
            assert got.status == 401 and got.body["error"]["type"] == "authentication_error"
            got = running.post(path, ASK, **{"x-api-key": KEY})
            assert got.status == 200
        assert running.get("/v1/models", **{"x-api-key": KEY}).status == 200
