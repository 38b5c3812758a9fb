"""/v1/embeddings: the engine's embeddings, for OpenAI's client and by hand."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lora_sdk import Engine
from lora_sdk.serve.settings import digest
from tests.commands import LORA, command, one_line_error
from tests.served import Served, eventually, served

KEY = "k" * 32
TEXTS = ["import os\n", "def add(a, b):\n    return a + b\n", "a"]


@pytest.fixture(scope="module")
def embedding() -> Iterator[Served]:
    with served(
        lambda progress: Engine(boards=2, max_sequences=4, embeddings=True, progress=progress)
    ) as running:
        yield running
        assert eventually(running.settled)


def test_openais_client(embedding: Served) -> None:
    """Which asks for base64 of its own accord."""
    got = embedding.client().embeddings.create(model="demo", input=TEXTS)
    expected = embedding.engine.embed(TEXTS)
    assert [one.index for one in got.data] == [0, 1, 2]
    assert np.array([one.embedding for one in got.data], np.float32).tobytes() == expected.tobytes()
    count = sum(len(embedding.engine.tokenizer.encode(text)) for text in TEXTS)
    assert (got.usage.prompt_tokens, got.usage.total_tokens) == (count, count)
    floats = embedding.client().embeddings.create(
        model="demo", input=TEXTS[0], encoding_format="float", dimensions=expected.shape[1],
        extra_body={"pooling": "mean", "normalize": False},
    )  # fmt: skip
    mean = embedding.engine.embed(TEXTS[0], "mean", False)
    assert floats.data[0].embedding == mean.tolist()  # exact


def test_forms_of_input(embedding: Served) -> None:
    ids = [embedding.engine.tokenizer.encode(text) for text in TEXTS]
    for given, count in ((TEXTS[1], 1), (TEXTS, 3), (ids[1], 1), (ids, 3)):
        got = embedding.post("/embeddings", {"input": given, "encoding_format": "base64"})
        assert got.status == 200 and got.headers["content-type"] == "application/json"
        packed = [base64.b64decode(one["embedding"]) for one in got.body["data"]]
        assert len(packed) == count
        expected = embedding.engine.embed(TEXTS[1]).astype("<f4").tobytes()
        assert packed[1 if count == 3 else 0] == expected
    longest = [5] * (embedding.engine.context + 9)
    for keep, kept in ((-1, embedding.engine.context), (7, 7)):
        got = embedding.post("/v1/embeddings", {"input": longest, "truncate_prompt_tokens": keep})
        assert got.status == 200 and got.body["usage"]["prompt_tokens"] == kept


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({}, "input", ""),
        ({"input": None}, "input", ""),
        ({"input": []}, "input", "0 inputs"),
        ({"input": "", "add_special_tokens": False}, "input", "empty"),
        ({"input": ["a", ""], "add_special_tokens": False}, "input", "empty"),
        ({"input": [[]]}, "input", "empty"),
        ({"input": ["a"] * 2049}, "input", "2048"),
        ({"input": [[1]] * 2049}, "input", "2048"),
        ({"input": [{}] * 100_000}, "input", ""),
        ({"input": [1, "a"]}, "input", ""),
        ({"input": ["a", 1]}, "input", ""),
        ({"input": [True]}, "input", ""),
        ({"input": [1.5]}, "input", ""),
        ({"input": [-1]}, "input", "-1"),
        ({"input": [10**30]}, "input", ""),
        ({"input": [[1], [2**31]]}, "input", "2147483648"),
        ({"input": [5] * 1025}, "input", "maximum context length"),
        ({"input": "a b c " * 2000}, "input", "maximum context length"),
        ({"input": "\ud800"}, None, "surrogate"),
        ({"input": "a", "dimensions": 128}, "dimensions", "256"),
        ({"input": "a", "dimensions": 0}, "dimensions", ""),
        ({"input": "a", "dimensions": 10**40}, "dimensions", ""),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", ""),
        ({"input": "a", "pooling": "cls"}, "pooling", ""),
        ({"input": "a", "normalize": 1}, "normalize", ""),
        ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", ""),
        ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", ""),
        ({"input": "a", "cache_salt": "a" * 300}, "cache_salt", ""),
    ],
)
def test_refusals(embedding: Served, fields: dict[str, Any], param: str | None, words: str) -> None:
    got = embedding.post("/v1/embeddings", fields)
    assert got.status == 400, got.body
    error = got.body["error"]
    assert error["param"] == param and words in error["message"] and "\n" not in error["message"]
    assert len(error["message"]) < 600
    assert embedding.post("/v1/embeddings", {"input": "a", "model": "none"}).status == 404


def test_fields_without_effect(embedding: Served) -> None:
    more = {"user": "me", "dimensions": None, "metadata": {}, "unknown": 1}
    assert embedding.post("/v1/embeddings", {"input": "a", **more}).status == 200


def test_beside_chats(embedding: Served) -> None:
    """Each gets its own, whatever else runs."""
    expected = {text: embedding.engine.embed(text, "mean").tolist() for text in TEXTS}

    def ask(number: int) -> None:
        if number % 3 == 0:
            body = {"prompt": TEXTS[0], "max_tokens": 20, "temperature": 0}
            assert embedding.post("/v1/completions", body).status == 200
            return
        given = [TEXTS[(number + i) % 3] for i in range(number)]
        got = embedding.post("/v1/embeddings", {"input": given, "pooling": "mean"})
        assert [one["embedding"] for one in got.body["data"]] == [expected[one] for one in given]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(1, 17)))
    assert eventually(embedding.settled)


def test_clients_that_go_away_free_the_boards(embedding: Served) -> None:
    body = json.dumps({"input": [[5] * 1000] * 250}).encode()
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", embedding.port, timeout=60)
        connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
        assert eventually(lambda: embedding.service.gate.running > 0)
        connection.close()
    assert eventually(embedding.settled)
    assert embedding.post("/v1/embeddings", {"input": "a"}).status == 200


def test_many_inputs_leave_others_their_turn(embedding: Served) -> None:
    body = {"input": [[5] * 400] * 30}
    many = threading.Thread(target=embedding.post, args=("/v1/embeddings", body))
    many.start()
    assert eventually(lambda: embedding.service.gate.running > 0)
    got = embedding.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert got.status == 200 and many.is_alive()
    many.join(60)
    assert not many.is_alive()


def test_clients_with_keys() -> None:
    with served(
        lambda progress: Engine(embeddings=True, progress=progress), keys=(digest(KEY),),
        pooling="mean",
    ) as running:  # fmt: skip
        assert running.post("/v1/embeddings", {"input": "a"}).status == 401
        got = running.client(KEY).embeddings.create(model="demo", input=TEXTS[1])
        expected = running.engine.embed(TEXTS[1], "mean")
        assert np.array(got.data[0].embedding, np.float32).tobytes() == expected.tobytes()
        metrics = running.get("/metrics", authorization=f"Bearer {KEY}").body
        assert f"vllm:prompt_tokens_total {float(got.usage.prompt_tokens)}" in metrics


def test_a_server_without_them(server: Served) -> None:
    got = server.post("/v1/embeddings", {"input": "a"})
    assert got.status == 400 and "--embeddings" in got.body["error"]["message"]


def test_replicas_have_none() -> None:
    got = command(LORA, "serve", "--ray", "--embeddings")
    one_line_error(got, "--embeddings is for one engine")
    assert got.returncode == 2
