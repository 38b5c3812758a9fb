"""Mutated requests get an answer of the protocol: never a 5xx, never a traceback, never a hang."""

from __future__ import annotations

import copy
import http.client
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lora_sdk import Engine
from tests.serve.test_serve_tools import TEMPLATES
from tests.served import QWEN, Served, eventually, fim_model, served

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
SEEDS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {
        "model": "demo", "prompt": ["a", "def f("], "max_tokens": 2, "n": 2, "stop": ["x"],
        "logprobs": 2, "echo": True, "logit_bias": {"5": 1.5}, "temperature": 0.7, "seed": 3}),
    ("/v1/completions", {
        "prompt": [[1, 2], [3]], "max_tokens": 2, "stream": True, "top_k": 4, "min_p": 0.1,
        "stream_options": {"include_usage": True}, "stop_token_ids": [7], "bad_words": ["os"]}),
    ("/v1/completions", {
        "prompt": "x", "max_tokens": 3,
        "guided_json": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}}),
    ("/v1/completions", {
        "prompt": "x", "max_tokens": 3, "structured_outputs": {"regex": "[a-f]{2,5}(x|y)*"}}),
    ("/v1/completions", {
        "prompt": "x", "max_tokens": 3, "guided_grammar": 'start: "a" b\nb: /c+/'}),
    ("/v1/chat/completions", {
        "messages": [USER, {"role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "b"}],
        "tools": [TOOL], "tool_choice": "auto", "max_completion_tokens": 3, "stream": True}),
    ("/v1/chat/completions", {
        "messages": [{"role": "system", "content": "s"}, USER], "max_tokens": 2, "logprobs": True,
        "top_logprobs": 2, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {
        "messages": [USER, {"role": "assistant", "content": None, "refusal": None,
                            "reasoning_content": "r", "function_call": None}, USER],
        "max_tokens": 2, "chat_template_kwargs": {"a": [1]}, "reasoning_effort": "low",
        "truncate_prompt_tokens": 9, "allowed_token_ids": [3, 4], "return_token_ids": True,
        "continue_final_message": False, "modalities": ["text"], "store": True, "seed": -1}),
    ("/v1/responses", {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
        "instructions": "b", "max_output_tokens": 2, "stream": True, "metadata": {"k": "v"}}),
    ("/v1/responses", {
        "input": [{"role": "user", "content": "a"},
                  {"type": "reasoning", "id": "r", "summary": []},
                  {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "c", "output": "b"}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "text": {"format": {"type": "text"}}, "include": ["message.output_text.logprobs"],
        "truncation": "auto", "max_output_tokens": 2, "tool_choice": "none"}),
    ("/v1/messages", {
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": ""},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "b"}]}],
        "max_tokens": 2, "system": "s", "stop_sequences": ["x"], "stream": True, "top_k": 3,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ("/tokenize", {"prompt": "a b", "add_special_tokens": True, "return_token_strs": True}),
    ("/tokenize", {"messages": [USER]}),
    ("/detokenize", {"tokens": [1, 2, 3]}),
    ("/v1/completions", {"prompt": ["a", "b"], "suffix": "c", "max_tokens": 2}),
    ("/infill", {
        "input_prefix": "a", "input_suffix": "b", "prompt": "c", "n_predict": 2, "stream": True,
        "input_extra": [{"text": "d", "filename": "e"}], "stop": ["x"], "seed": -1}),
    ("/v1/embeddings", {
        "input": ["a", "b"], "encoding_format": "base64", "pooling": "mean", "normalize": True}),
    ("/v1/embeddings", {
        "input": [[1, 2], [3]], "truncate_prompt_tokens": -1, "dimensions": 256, "user": "u"}),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "b/c"}),
    ("/v1/unload_lora_adapter", {"lora_name": "a"}),
]  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e308, 5e-324),
    *(10**400, "", "x", "\0", "\ud800", "é" * 50, "../..", "a" * 3000, "%s%n{}", "[[[[", "NaN"),
    *([], [[]], [None], [1, "a"], ["x"] * 70, [0] * 1100, {}, {"a": {"b": []}}, {"": ""}),
)  # fmt: skip
HEADERS: tuple[dict[str, str], ...] = (
    *({}, {}, {}, {"accept": "text/html"}, {"authorization": "Bearer \xff"}, {"expect": "x"}),
    *({"content-type": "text/plain"}, {"content-type": "application/json; charset=latin-1"}),
    *({"content-encoding": "gzip"}, {"x-long": "y" * 9000}, {"transfer-encoding": "chunked"}),
    *({"content-length": "3"}, {"connection": "close"}, {"upgrade": "websocket"}, {"host": ""}),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in list(inside):
        yield value, key
        if isinstance(each, (dict, list)):
            yield from places(each)


def mutate(rng: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """(method, path, body, headers) of a request with some mutations."""
    path, seed = rng.choice(SEEDS)
    body = copy.deepcopy(seed)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        container, key = rng.choice(list(places(body)) or [(body, "x")])
        kind = rng.randrange(4)
        if kind == 0 and key in (
            container if isinstance(container, dict) else range(len(container))
        ):
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            name = rng.choice(("x", "n", "stream", "stop", "echo"))
            container[name] = copy.deepcopy(rng.choice(VALUES))
        else:
            container[key] = copy.deepcopy(rng.choice(VALUES))
        if not body:
            break
    data = bytearray(json.dumps(body).encode())
    if rng.random() < 0.15:
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    if rng.random() < 0.05:
        del data[rng.randrange(len(data)) :]
    method = "POST" if rng.random() < 0.95 else rng.choice(("GET", "PUT", "DELETE", "HEAD"))
    path = path if rng.random() < 0.95 else rng.choice(("/", "/v1", path + "/", "/v1/models/%00"))
    return method, path, bytes(data), rng.choice(HEADERS)


def send(server: Served, seed: int) -> str:
    """The status of a mutated request, or how its connection ended."""
    rng = random.Random(seed)
    method, path, body, headers = mutate(rng)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path, body, {"content-type": "application/json", **headers})
        if rng.random() < 0.03:
            return "dropped"
        got = connection.getresponse()
        if rng.random() < 0.1:
            got.read(rng.randint(0, 60))
            return "dropped"
        text = got.read().decode()
        if got.status >= 400:  # a model's text may say anything
            assert "Traceback" not in text and "site-packages" not in text, (seed, text[:300])
        assert got.status < 500 and "server_error" not in text, (seed, got.status, text[:300])
        if got.status >= 400 and method == "POST" and "x-request-id" in got.headers:
            assert json.loads(text)["error"]["message"], seed
        return str(got.status)
    except (http.client.HTTPException, ConnectionError, UnicodeEncodeError) as error:
        return type(error).__name__
    finally:
        connection.close()


pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("mutations")
    model = fim_model(folder, *QWEN)
    (model / "chat_template.jinja").write_text(TEMPLATES["hermes"])
    with served(
        lambda progress: Engine(
            model, progress=progress, max_adapters=1, max_adapter_rank=8, embeddings=True
        ),
        adapter_root=str(folder), request_timeout=2.0, body_timeout=1.0,
    ) as running:  # fmt: skip
        yield running


CUT_SHORT = "ASGI callable returned without completing response."
"""uvicorn's line where a body breaks its own framing while the request is answered."""


def bombard(server: Served, count: int, caplog: pytest.LogCaptureFixture) -> Counter[str]:
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(8) as pool:
        ends = Counter(pool.map(lambda seed: send(server, seed), range(count)))
    serious = [record for record in caplog.records if record.levelno >= logging.ERROR]
    serious = [record for record in serious if record.getMessage() != CUT_SHORT]
    assert not serious, serious[0].getMessage()
    assert eventually(server.settled)
    assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200
    return ends


@pytest.mark.slow
def test_some(target: Served, caplog: pytest.LogCaptureFixture) -> None:
    ends = bombard(target, 1000, caplog)
    assert ends["400"] > 300 and ends["200"] > 50 and ends["dropped"] > 20, ends


@pytest.mark.long
def test_many(target: Served, caplog: pytest.LogCaptureFixture) -> None:
    ends = bombard(target, 10_000, caplog)
    assert ends["400"] > 3000 and ends["200"] > 500, ends
