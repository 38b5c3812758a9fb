"""Fields, paths and errors that programs know from vLLM and llama.cpp."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from tests.served import Served

PROMPT = "import os\n"
MESSAGES = [{"role": "user", "content": PROMPT}]


def complete(server: Served, **fields: Any) -> Any:
    body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, **fields}
    got = server.post("/v1/completions", body)
    assert got.status == 200, got.body
    return got.body


def chat(server: Served, **fields: Any) -> Any:
    body = {"messages": MESSAGES, "max_tokens": 8, "temperature": 0, **fields}
    got = server.post("/v1/chat/completions", body)
    assert got.status == 200, got.body
    return got.body


def events(server: Served, path: str, body: dict[str, Any]) -> list[Any]:
    lines = server.post(path, {**body, "stream": True}).body.split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/completions", {"prompt": [5] * 1025}, "prompt"),
        ("/v1/completions", {"prompt": [5] * 29, "max_tokens": 1000}, "max_tokens"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 2000}]},
         "messages"),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_completion_tokens": 1020},
         "max_completion_tokens"),
        ("/v1/responses", {"input": "a " * 2000}, "input"),
    ],
)  # fmt: skip
def test_a_prompt_too_long_is_told_in_openais_words(
    server: Served, path: str, body: dict[str, Any], field: str
) -> None:
    """By which libraries know it: litellm's fallback to a larger context, langchain's."""
    got = server.post(path, body)
    error = got.body["error"]
    assert got.status == 400 and error["code"] == "context_length_exceeded"
    assert error["message"].startswith("This model's maximum context length is 1024 tokens. ")
    assert error["param"] == field and error["type"] == "invalid_request_error"


def test_seed_minus_one_is_random(server: Served) -> None:
    drawn = {complete(server, seed=-1, temperature=1.5)["choices"][0]["text"] for _ in range(4)}
    assert len(drawn) > 1
    assert server.post("/v1/completions", {"prompt": "a", "seed": -2}).status == 400


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/v1/models", "/version",
                                  "/status", "/v1/models/demo"])  # fmt: skip
def test_head_where_get_is(server: Served, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("HEAD", path)
    got = connection.getresponse()
    assert got.status == 200 and got.read() == b""
    assert got.headers["content-type"] == server.get(path).headers["content-type"]
    connection.request("HEAD", "/v1/completions")  # the connection goes on
    assert connection.getresponse().status == 405
    connection.close()


def test_tokenize_adds_special_tokens_where_told(server: Served) -> None:
    (begin,) = server.engine.tokenizer.begins_with
    for given, marked in ((None, True), (True, True), (False, False)):
        body = {"prompt": PROMPT, "add_special_tokens": given}
        assert (server.post("/tokenize", body).body["tokens"][0] == begin) is marked
    for given, marked in ((None, False), (True, True), (False, False)):
        body = {"messages": MESSAGES, "add_special_tokens": given}
        assert (server.post("/tokenize", body).body["tokens"][0] == begin) is marked
    with_it = chat(server, add_special_tokens=True)["usage"]["prompt_tokens"]
    assert with_it == chat(server)["usage"]["prompt_tokens"] + 1


def test_echo_shows_special_tokens_of_a_prompt_of_ids(server: Served) -> None:
    tokenizer = server.engine.tokenizer
    ids = [*tokenizer.begins_with, *tokenizer.encode(PROMPT, special=False)]
    want = tokenizer.decode(ids, skip_special=False)
    assert want != PROMPT and want.endswith(PROMPT)
    got = complete(server, prompt=ids, echo=True, logprobs=1)["choices"][0]
    assert got["text"].startswith(want)
    places, tokens = got["logprobs"]["text_offset"], got["logprobs"]["tokens"]
    for place, token in zip(places, tokens, strict=True):
        assert got["text"][place:].startswith(token)
    streamed = events(server, "/v1/completions", {
        "prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 8, "temperature": 0})  # fmt: skip
    assert "".join(one["choices"][0]["text"] for one in streamed) == got["text"]
    assert [p for one in streamed for p in one["choices"][0]["logprobs"]["text_offset"]] == places


def test_token_ids_are_returned_whole_and_streamed(server: Served) -> None:
    tokenizer = server.engine.tokenizer
    params: dict[str, Any] = {"return_token_ids": True, "n": 2, "temperature": 1.2, "seed": 4}
    got = complete(server, **params)
    for choice in got["choices"]:
        assert choice["prompt_token_ids"] == tokenizer.encode(PROMPT)
        assert len(choice["token_ids"]) == 8
        assert tokenizer.decode(choice["token_ids"]) == choice["text"]
    told = events(server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 8, **params})
    whole = chat(server, **params)
    assert (
        whole["prompt_token_ids"] == server.post("/tokenize", {"messages": MESSAGES}).body["tokens"]
    )
    chunks = events(
        server, "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8, **params}
    )
    for index in range(2):
        mine = [o["choices"][0] for o in told if o["choices"][0]["index"] == index]
        assert [t for one in mine for t in one["token_ids"]] == got["choices"][index]["token_ids"]
        assert mine[0]["prompt_token_ids"] == tokenizer.encode(PROMPT)
        assert not any("prompt_token_ids" in one for one in mine[1:])
        parts = [o["choices"][0] for o in chunks if o["choices"][0]["index"] == index]
        ids = [t for one in parts for t in one.get("token_ids", ())]
        assert ids == whole["choices"][index]["token_ids"]
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert "token_ids" not in complete(server)["choices"][0]


def test_allowed_token_ids(server: Served) -> None:
    allowed = [11, 40, 97]
    got = complete(server, allowed_token_ids=allowed, return_token_ids=True, max_tokens=20,
                   temperature=9, seed=1)["choices"][0]  # fmt: skip
    assert set(got["token_ids"]) <= set(allowed) and len(set(got["token_ids"])) > 1
    greedy = chat(server, allowed_token_ids=[97], return_token_ids=True)["choices"][0]
    assert greedy["token_ids"] == [97] * 8
    for bad in ([], [5000], [-1], "x"):
        refused = server.post("/v1/completions", {"prompt": "a", "allowed_token_ids": bad})
        assert refused.status == 400 and refused.body["error"]["param"] == "allowed_token_ids"


def test_prompts_are_truncated_from_the_left(server: Served) -> None:
    tokens = server.engine.tokenizer.encode(PROMPT * 4)
    want = complete(server, prompt=tokens[-5:])
    for prompt in (tokens, PROMPT * 4):
        got = complete(server, prompt=prompt, truncate_prompt_tokens=5)
        assert got["usage"]["prompt_tokens"] == 5
        assert got["choices"][0]["text"] == want["choices"][0]["text"]
    shown = complete(server, prompt=PROMPT * 4, truncate_prompt_tokens=5, echo=True)["choices"][0]
    kept = server.engine.tokenizer.decode(tokens[-5:])
    assert shown["text"] == kept + want["choices"][0]["text"]
    assert complete(server, truncate_prompt_tokens=1000)["choices"] == complete(server)["choices"]
    much = chat(server, messages=[{"role": "user", "content": "a " * 3000}],
                truncate_prompt_tokens=-1)  # fmt: skip
    assert much["usage"]["prompt_tokens"] == 1024 - 8
    for bad in (0, -2, 1025):
        refused = server.post("/v1/completions", {"prompt": "a", "truncate_prompt_tokens": bad})
        assert refused.status == 400
        assert refused.body["error"]["param"] == "truncate_prompt_tokens"


def test_min_tokens_holds_off_the_end(server: Served) -> None:
    ids = server.engine.tokenizer.encode(complete(server)["choices"][0]["text"], special=False)
    stop: dict[str, Any] = {"stop_token_ids": ids[:1], "return_token_ids": True}
    assert complete(server, **stop)["choices"][0]["token_ids"] == ids[:1]
    later = complete(server, **stop, min_tokens=6)["choices"][0]["token_ids"]
    assert len(later) >= 6 and ids[0] not in later[:6]
    assert len(complete(server, **stop, min_tokens=20, max_tokens=None)["choices"][0][
        "token_ids"]) >= 20  # fmt: skip
    said = chat(server, **stop, min_tokens=6)["choices"][0]["token_ids"]
    assert len(said) >= 6
    refused = server.post("/v1/completions", {"prompt": "a", "min_tokens": 9, "max_tokens": 8})
    assert refused.status == 400 and refused.body["error"]["param"] == "min_tokens"
