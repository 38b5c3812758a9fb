"""Models that think: variables of their templates, thoughts apart, histories."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lora_sdk import Engine
from lora_sdk.serve import reasoning
from lora_sdk.serve.reasoning import ReasoningFormat
from tests.served import Served, chat_model, eventually, served

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content and loop.index0 > "
    "(messages|length) - 3 %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n"
    "{% endfor %}{% if reasoning_effort is defined %}effort {{ reasoning_effort }}\n{% endif %}"
    "{% if mood is defined %}{{ mood.x | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n{% endif %}{% endif %}"
)
MESSAGES = [{"role": "user", "content": "import os\n"}]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = chat_model(tmp_path_factory.mktemp("thinker"), TEMPLATE)
    with served(lambda progress: Engine(model, progress=progress)) as running:
        yield running
        assert eventually(running.settled)


def body(**more: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "max_tokens": 24, "temperature": 0, **more}


def ask(server: Served, **more: Any) -> Any:
    got = server.post("/v1/chat/completions", body(**more))
    assert got.status == 200, got.body
    return got.body


def said(server: Served, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = ask(server, **more)["choices"][0]["message"]
    return message


def prompt(server: Served, **fields: Any) -> str:
    got = server.post("/tokenize", {"messages": MESSAGES, **fields})
    assert got.status == 200, got.body
    return server.engine.tokenizer.decode(got.body["tokens"], skip_special=False)


def test_thoughts_are_told_apart_whole_and_streamed(
    thinker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo model writes no </think>; some of its own text stands for it."""
    whole = said(thinker)
    assert whole["content"] == "" and len(whole["reasoning_content"]) > 20
    text = whole["reasoning_content"]
    end = text[12:15]
    form = ReasoningFormat("qwen3", "<think>", end)
    monkeypatch.setitem(reasoning.FORMATS, "qwen3", form)
    thoughts, _, content = text.partition(end)
    got = said(thinker)
    assert got["reasoning_content"] == thoughts.strip("\n") and thoughts
    assert got["content"].rstrip() == content.strip("\n").rstrip() and content
    lines = thinker.post("/v1/chat/completions", body(stream=True)).body.split("\n\n")
    deltas = [json.loads(one[6:])["choices"][0]["delta"] for one in lines if "{" in one]
    for name in ("reasoning_content", "content"):
        assert "".join(delta.get(name) or "" for delta in deltas) == got[name]
    kinds = [name for delta in deltas for name in ("reasoning_content", "content") if
             delta.get(name)]  # fmt: skip
    assert kinds == sorted(kinds, reverse=True) and len(kinds) > 4
    hidden = said(thinker, include_reasoning=False)
    assert hidden["content"] == got["content"] and "reasoning_content" not in hidden


def test_no_thoughts_where_the_template_has_ended_them(thinker: Served) -> None:
    for more in (
        {"enable_thinking": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
    ):
        assert prompt(thinker, **more).endswith("<think>\n</think>\n")
        got = said(thinker, **more)
        assert got["content"] and "reasoning_content" not in got


def test_variables_reach_the_template(thinker: Served) -> None:
    assert "effort low\n" in prompt(thinker, reasoning_effort="low")
    assert "effort high\n" in prompt(
        thinker, reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}
    )
    assert '"é"' in prompt(thinker, chat_template_kwargs={"mood": {"x": "é"}})
    # what the request has of its own is not theirs
    assert prompt(thinker, chat_template_kwargs={"messages": [], "tools": 1}) == prompt(thinker)
    got = ask(thinker, reasoning_effort="low")["usage"]["prompt_tokens"]
    assert got > ask(thinker)["usage"]["prompt_tokens"]
    asked = {"input": "import os\n", "reasoning": {"effort": "low"}, "max_output_tokens": 4}
    told = thinker.post("/v1/responses", asked)
    assert told.body["usage"]["input_tokens"] == got


def test_a_grammar_leaves_no_room_for_thoughts(thinker: Served) -> None:
    got = said(thinker, guided_choice=["one", "two"])
    assert got["content"] in ("one", "two") and "reasoning_content" not in got


def test_a_history_keeps_thoughts_as_its_template_asks(thinker: Served) -> None:
    for name in ("reasoning_content", "reasoning"):
        thought = {"role": "assistant", "content": "Yes.", name: "SECRET"}
        near = prompt(thinker, messages=[*MESSAGES, thought, *MESSAGES])
        assert "<think>SECRET</think>Yes." in near
        far = prompt(thinker, messages=[*MESSAGES, thought, *MESSAGES, *MESSAGES, *MESSAGES])
        assert "SECRET" not in far and "Yes." in far


def test_the_last_message_goes_on(thinker: Served) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "import sys\nimport"}]
    shown = prompt(thinker, messages=messages, continue_final_message=True)
    assert shown.endswith("<|assistant|>import sys\nimport")
    got = said(thinker, messages=messages, continue_final_message=True)
    same = {"prompt": shown, "add_special_tokens": False, "max_tokens": 24, "temperature": 0}
    plain = thinker.post("/v1/completions", same)
    assert got["content"] == plain.body["choices"][0]["text"]
    both = body(continue_final_message=True, add_generation_prompt=True)
    refused = thinker.post("/v1/chat/completions", both)
    assert refused.status == 400
    assert refused.body["error"]["param"] == "continue_final_message"


def test_a_template_of_a_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In place of the model's, which here has none."""
    file = tmp_path_factory.mktemp("template") / "mine.jinja"
    file.write_text("{{ messages[0].content }}|mine")
    with served(lambda progress: Engine(progress=progress), chat_template=str(file)) as running:
        assert prompt(running).endswith("import os\n|mine")
        assert said(running)["content"]
