"""Texts of megabytes for a context of 131,072 tokens: encoded in parts, as far as needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_sdk import Engine
from tests.serve.test_serve_attacks import memory
from tests.served import Served, chat_model, served

CONTEXT = 131_072
WORDS = "the quick brown fox and one. " * 130_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The demo model with so many positions."""
    model = chat_model(tmp_path_factory.mktemp("wide"))
    path = model / "config.json"
    config = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    with served(
        lambda progress: Engine(model, boards=1, context=CONTEXT, progress=progress)
    ) as running:
        yield running


@pytest.mark.parametrize("field", ["prompt", "messages", "input"])
def test_a_text_ends_where_it_is_too_long(
    wide: Served, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    tokenizer, made = wide.engine.tokenizer, []
    encode = tokenizer._at_once
    monkeypatch.setattr(
        tokenizer, "_at_once", lambda text, special: made.append(len(text)) or encode(text, special)
    )
    path, body = {
        "prompt": ("/v1/completions", {"prompt": WORDS}),
        "messages": ("/v1/chat/completions", {"messages": [{"role": "user", "content": WORDS}]}),
        "input": ("/v1/responses", {"input": WORDS}),
    }[field]
    error = wide.post(path, body).body["error"]
    assert (error["param"], error["code"]) == (field, "context_length_exceeded")
    assert error["message"].startswith(f"This model's maximum context length is {CONTEXT} tokens.")
    assert error["message"].endswith(f" has over {CONTEXT} tokens; shorten it")
    assert 100_000 < sum(made) < len(WORDS) // 4


def test_tokens_are_counted_up_to_a_number(wide: Served) -> None:
    got = wide.post("/tokenize", {"prompt": WORDS})
    assert got.status == 400 and "over 524288 tokens" in got.body["error"]["message"]
    text = WORDS[:500_000]  # some 230,000 tokens
    got = wide.post("/tokenize", {"prompt": text})
    assert got.body["tokens"] == wide.engine.tokenizer.encode(text)
    assert got.body["count"] > CONTEXT


def test_what_cannot_be_cut_is_short(wide: Served) -> None:
    """And memory is bounded by that: it took 1.1 GB for 3 MB."""
    got = wide.post("/tokenize", {"prompt": ".\n" * 300_000})
    assert got.status == 400
    assert "has 600000 bytes without a place where" in got.body["error"]["message"]
    Path("/proc/self/clear_refs").write_text("5")
    before = memory(os.getpid(), "VmRSS")
    for text in (WORDS, "a.\n" * 1_000_000, "a\n" * 262_000):
        assert wide.post("/v1/completions", {"prompt": text}).status == 400
    assert memory(os.getpid(), "VmHWM") - before < 260  # the texts and bodies of this test, too
