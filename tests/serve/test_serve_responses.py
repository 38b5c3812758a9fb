"""/v1/responses through the openai client."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError

from lora_sdk import SamplingParams
from tests.served import Served

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
        ("text", {"text": {"format": {"type": "json_object"}}}),
        ("include", {"include": ["message.output_text.logprobs"]}),
        ("tools", {"tools": [{"type": "web_search"}]}),
    ],
)
def test_a_bad_field_is_named(server: Served, field: str, fields: dict[str, Any]) -> None:
    for stream in (False, True):
        with pytest.raises(BadRequestError) as caught:
            server.client().responses.create(**PARAMS, extra_body={**fields, "stream": stream})
        assert caught.value.param == field
        assert "max_tokens" not in caught.value.message
