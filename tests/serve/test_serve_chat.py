"""/v1/chat/completions through the openai client."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError

from lora_sdk import SamplingParams
from tests.served import Served

MESSAGES: list[Any] = [
    {"role": "system", "content": "Write code."},
    {"role": "user", "content": "import os\n"},
]


def text_of(server: Served, **params: Any) -> str:
    return server.engine.chat(MESSAGES, SamplingParams(**params)).text


def test_an_answer_is_the_engines(server: Served) -> None:
    got = server.client().chat.completions.create(
        model="demo", messages=MESSAGES, max_completion_tokens=20, temperature=0
    )
    (choice,) = got.choices
    assert choice.message.role == "assistant" and got.object == "chat.completion"
    assert choice.message.content == text_of(server, max_tokens=20)
    assert got.usage is not None and got.usage.completion_tokens == 20


def test_parts_and_developer_are_texts_and_system(server: Served) -> None:
    parts = [{"type": "text", "text": text} for text in ("Write ", "code.")]
    messages: list[Any] = [{"role": "developer", "content": parts}, MESSAGES[1]]
    got = server.client().chat.completions.create(
        model="demo", messages=messages, max_tokens=20, temperature=0
    )
    assert got.choices[0].message.content == text_of(server, max_tokens=20)


def test_streamed_with_n(server: Served) -> None:
    params: Any = {"max_tokens": 12, "temperature": 0.9, "n": 3, "seed": 11}
    whole = server.client().chat.completions.create(model="demo", messages=MESSAGES, **params)
    chunks = list(
        server.client().chat.completions.create(
            model="demo", messages=MESSAGES, stream=True, **params
        )
    )
    assert len({chunk.id for chunk in chunks}) == 1
    for index in range(3):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert mine[0].delta.role == "assistant"
        assert [c.finish_reason for c in mine][-1] == "length"
        text = "".join(c.delta.content or "" for c in mine)
        assert text == whole.choices[index].message.content
    assert len({choice.message.content for choice in whole.choices}) > 1


def test_logprobs(server: Served) -> None:
    params: Any = {"max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    create = server.client().chat.completions.create
    shown = create(model="demo", messages=MESSAGES, **params).choices[0].logprobs
    assert shown is not None and shown.content is not None and len(shown.content) == 6
    want = server.engine.chat(MESSAGES, SamplingParams(max_tokens=6, logprobs=2)).outputs[0]
    assert want.logprobs is not None
    assert [one.logprob for one in shown.content] == [e.chosen.logprob for e in want.logprobs]
    assert b"".join(bytes(one.bytes or ()) for one in shown.content).decode() == want.text
    streamed = create(model="demo", messages=MESSAGES, stream=True, **params)
    parts = [
        one
        for chunk in streamed
        if (logprobs := chunk.choices[0].logprobs) is not None
        for one in logprobs.content or ()
    ]
    assert parts == shown.content


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("messages", {"messages": []}),
        ("messages", {"messages": [{"role": "user"}]}),
        ("messages", {"messages": [{"role": "robot", "content": "a"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ("top_logprobs", {"top_logprobs": 3}),
        ("chat_template", {"chat_template": "{{ 1 }}"}),
        ("best_of", {"best_of": 2}),
        ("max_tokens", {"max_tokens": 0}),
        ("max_completion_tokens", {"max_completion_tokens": 0}),
    ],
)
def test_a_bad_field_is_named(server: Served, field: str, body: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as caught:
        server.client().chat.completions.create(model="demo", messages=MESSAGES, extra_body=body)
    assert caught.value.param == field
    if field.startswith("max_"):
        assert f"{field} is 0; expected" in caught.value.message


def test_tokenize_renders_messages(server: Served) -> None:
    got = server.post("/tokenize", {"messages": MESSAGES}).body
    assert got["tokens"] == server.engine.chat_tokens(MESSAGES)
