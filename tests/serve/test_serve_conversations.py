"""Conversations that go on: messages come back as the server sent them, with what client libraries
add to them and to requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from openai import BadRequestError

from lora_sdk import Engine
from tests.serve.test_serve_tools import MESSAGES, TEMPLATES, TOOLS
from tests.served import Served, chat_model, eventually, served

CALL = '<tool_call>{"name": "heat", "arguments": {"x": 41, "unit": "C"}}</tool_call>'
PLAIN = [
    *MESSAGES,
    {"role": "assistant", "content": "Which one?"},
    {"role": "user", "content": "The oven."},
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = chat_model(tmp_path_factory.mktemp("conversations"), TEMPLATES["hermes"])
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield running
        assert eventually(running.settled)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        lambda progress: Engine(
            chat_model(tmp_path_factory.mktemp("strict"), TEMPLATES["hermes"]), progress=progress
        ),
        strict=True,
    ) as running:
        yield running


def ask(server: Served, messages: list[Any], **more: Any) -> Any:
    fixed: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
    return server.client().chat.completions.create(
        model="demo", messages=messages, **{**fixed, **more}
    )


def as_it_came(message: Any) -> Any:
    """The object itself, as the client's own documentation appends it."""
    return message


def dumped(message: Any) -> Any:
    """With every null."""
    return message.model_dump()


def as_litellm(message: Any) -> Any:
    return {
        **message.model_dump(),
        "function_call": None,
        "reasoning_content": None,
        "thinking_blocks": None,
        "provider_specific_fields": {"refusal": None},
        "cache_control": {"type": "ephemeral"},
        "tool_calls": [
            {**call.model_dump(), "index": index}
            for index, call in enumerate(message.tool_calls or ())
        ]
        or None,
    }


def clean(message: Any) -> dict[str, Any]:
    """The same message with nothing but what it says."""
    said: dict[str, Any] = {"role": "assistant", "content": message.content or ""}
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
        ]
    return said


@pytest.mark.parametrize("append", [as_it_came, dumped, as_litellm])
def test_a_loop_of_tools(target: Served, append: Callable[[Any], Any]) -> None:
    """Three calls, each with its result, then an answer, appended as they came. The prompt is that
    of the same conversation without additions."""
    history, bare = list(MESSAGES), list(MESSAGES)
    for turn in range(4):
        forced = {"guided_choice": [CALL if turn < 3 else "It is hot."], "max_tokens": 200}
        got = ask(target, history, tools=TOOLS, extra_body=forced).choices[0]
        history.append(append(got.message))
        bare.append(clean(got.message))
        for call in got.message.tool_calls or ():
            assert json.loads(call.function.arguments)["x"] == 41
            result = {"role": "tool", "tool_call_id": call.id, "content": f"{turn} degrees"}
            history.append(result)
            bare.append(result)
    assert got.message.content == "It is hot." and got.finish_reason == "stop"
    assert len(history) == len(MESSAGES) + 7
    for one in (history, bare):
        one.append({"role": "user", "content": "And now?"})
    went_on = ask(target, history, tools=TOOLS)
    assert went_on.usage.prompt_tokens == target.engine_tokens(bare, TOOLS)
    assert went_on.choices[0].message == ask(target, bare, tools=TOOLS).choices[0].message


@pytest.mark.parametrize("append", [as_it_came, dumped, as_litellm])
def test_a_plain_conversation(target: Served, append: Callable[[Any], Any]) -> None:
    history, bare = list(MESSAGES), list(MESSAGES)
    for turn in range(3):
        said = ask(target, history, seed=turn, temperature=0.8).choices[0].message
        history += [append(said), {"role": "user", "content": "More."}]
        bare += [clean(said), {"role": "user", "content": "More."}]
    assert ask(target, history).choices[0].message == ask(target, bare).choices[0].message


MESSAGE_FIELDS: list[dict[str, Any]] = [
    {"refusal": None},
    {"function_call": None},
    {"audio": None},
    {"annotations": []},
    {"reasoning_content": None},
    {"provider_specific_fields": {"a": 1}},
    {"cache_control": {"type": "ephemeral"}},
    {"id": "msg_1"},
    {"content": [{"type": "text", "text": "Which one?", "cache_control": {"type": "ephemeral"}}]},
    {"content": [{"type": "refusal", "refusal": "Which one?"}]},
    {"content": None, "refusal": "Which one?"},
    {"something_new": {"a": [1]}},
]
REQUEST_FIELDS: list[dict[str, Any]] = [
    {"store": True},
    {"store": False},
    {"metadata": {"a": "b"}},
    {"service_tier": "flex"},
    {"reasoning_effort": "low"},
    {"prompt_cache_key": "k"},
    {"safety_identifier": "u"},
    {"user": "u"},
    {"verbosity": "low"},
    {"modalities": ["text"]},
    {"prediction": {"type": "content", "content": "It is hot."}},
    {"audio": None},
    {"web_search_options": None},
    {"functions": []},
    {"function_call": "none"},
    {"priority": 3},
    {"chat_template": None},
    {"something_new": 1},
]


@pytest.mark.parametrize("more", MESSAGE_FIELDS, ids=lambda more: ",".join(more))
def test_fields_of_messages_that_change_nothing(target: Served, more: dict[str, Any]) -> None:
    user, said, then = PLAIN
    got = ask(target, [user, {**said, **more}, then])
    assert got.choices[0].message.content == ask(target, PLAIN).choices[0].message.content
    assert got.usage.prompt_tokens == target.engine_tokens(PLAIN)


@pytest.mark.parametrize("more", REQUEST_FIELDS, ids=lambda more: str(more)[1:-1])
def test_fields_of_requests_that_change_nothing(target: Served, more: dict[str, Any]) -> None:
    got = ask(target, PLAIN, extra_body=more)
    assert got.choices[0].message.content == ask(target, PLAIN).choices[0].message.content


def test_an_assistant_may_have_said_nothing(target: Served) -> None:
    silent = {"role": "assistant", "content": None}
    got = ask(target, [*MESSAGES, silent, PLAIN[2]])
    want = target.engine_tokens([*MESSAGES, {**silent, "content": ""}, PLAIN[2]])
    assert got.usage.prompt_tokens == want


def test_a_call_without_arguments(target: Served) -> None:
    function = {"name": "functions.stop_all:0", "arguments": ""}
    call = {"id": "a", "type": "function", "function": function, "index": 0}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "a", "content": "done"}
    assert ask(target, [*MESSAGES, said, result]).choices


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("modalities", {"modalities": ["text", "audio"]}),
        ("audio", {"audio": {"voice": "a", "format": "wav"}}),
        ("web_search_options", {"web_search_options": {}}),
        ("functions", {"functions": [{"name": "f"}]}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("chat_template", {"chat_template": "{{ 1 }}"}),
        ("echo", {"echo": True}),
        ("messages", {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}),
        ("messages", {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}),
    ],
)
def test_what_is_asked_for_and_not_done_is_refused(
    target: Served, field: str, more: dict[str, Any]
) -> None:
    with pytest.raises(BadRequestError) as caught:
        ask(target, PLAIN, extra_body=more)
    assert caught.value.param == field and "unknown" not in caught.value.message
    (named,) = set(more) if field != "messages" else set(more["messages"][0]) - {"role"}
    assert named in caught.value.message


def test_a_strict_server_refuses_what_it_does_not_know(strict: Served) -> None:
    for more in ({"temprature": 1}, {"temprature": None}, {"stream_options": {"x": 1}}):
        with pytest.raises(BadRequestError) as caught:
            ask(strict, PLAIN, extra_body={"stream": True, **more})
        assert caught.value.param == next(iter(more)) and "unknown field" in caught.value.message
    with pytest.raises(BadRequestError) as caught:
        ask(strict, [{**PLAIN[0], "mood": "good"}])
    assert caught.value.param == "messages" and "messages.0.mood" in caught.value.message
    everything = {name: value for more in REQUEST_FIELDS for name, value in more.items()}
    del everything["something_new"]
    assert ask(strict, PLAIN, extra_body=everything).choices


def test_an_ignored_field_is_logged_once(target: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "lora.serve"):
        for _ in range(2):
            ask(target, PLAIN, extra_body={"logged_once": 1, "store": True})
    lines = [r.getMessage() for r in caplog.records if "ignored" in r.getMessage()]
    assert sum("'logged_once'" in line for line in lines) == 1
    assert sum("'store'" in line for line in lines) == 1
