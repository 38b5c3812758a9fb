"""Overload, dropped connections, limits in time, and what the metrics tell of them."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from openai import RateLimitError

from lora_sdk import Engine
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.step.tree_shape import TreeShape
from tests.served import Served, eventually, served

LONG = {"prompt": "import os\n", "max_tokens": 1000, "ignore_eos": True}


@pytest.fixture(scope="module")
def small() -> Iterator[Served]:
    """Two boards that draft by look-up, two sequences at once, three that wait."""
    speculation = SpeculationOptions("lookup", None, TreeShape.chain(4))
    with served(
        lambda progress: Engine(
            progress=progress, boards=2, max_sequences=2, speculation=speculation
        ),
        max_queue=3,
    ) as running:  # fmt: skip
        yield running
        assert eventually(running.settled)


def metrics(server: Served) -> dict[str, float]:
    """The samples of a scrape."""
    text = server.get("/metrics").body
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def send(server: Served, body: dict[str, Any]) -> socket.socket:
    """A request whose answer nobody has read yet."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % len(data) + data
    )
    return connection


def test_overload_is_429_and_nothing_hangs(small: Served) -> None:
    def ask(index: int) -> int:
        try:
            got = small.client().completions.create(
                model="demo", prompt=f"x{index}", max_tokens=20, stream=index % 2 == 0
            )
        except RateLimitError as error:
            assert error.code == "queue_full" and error.type == "rate_limit_error"
            assert 1 <= int(error.response.headers["retry-after"]) <= 60
            return 429
        if index % 2 == 0:
            assert list(got)[-1].choices[0].finish_reason
        return 200

    with ThreadPoolExecutor(24) as pool:
        counts = Counter(pool.map(ask, range(48)))
    assert counts[200] >= 5 and counts[429] >= 5 and counts.total() == 48
    assert eventually(small.settled)


@pytest.mark.parametrize("stream", [False, True])
def test_a_dropped_connection_ends_its_sequence(small: Served, stream: bool) -> None:
    before = small.engine.cluster.stats().steps
    connection = send(small, {**LONG, "stream": stream, "temperature": 0.7})
    if stream:
        connection.recv(64)
    else:
        assert eventually(lambda: small.engine.cluster.stats().steps > before + 2)
    at_drop = small.engine.cluster.stats().steps
    connection.close()
    assert eventually(small.settled, 5)
    # A few steps pass until the socket's end is noticed; the 1000 tokens would take 250 or more.
    assert small.engine.cluster.stats().steps - at_drop < 100


def test_a_waiting_request_is_forgotten_when_dropped(small: Served) -> None:
    running = [send(small, LONG) for _ in range(2)]
    assert eventually(lambda: small.service.gate.running == 2)
    waiting = send(small, LONG)
    assert eventually(lambda: small.service.gate.waiting == 1)
    waiting.close()
    assert eventually(lambda: small.service.gate.waiting == 0)
    for connection in running:
        connection.close()
    assert eventually(small.settled)


def test_a_request_that_takes_too_long_is_408() -> None:
    """Whole, streamed, and one that waits all its time."""
    with served(
        lambda progress: Engine(progress=progress, max_sequences=2), request_timeout=0.3
    ) as brief:
        slow = {**LONG, "prompt": ["a"] * 5, "max_tokens": 900, "temperature": 0.9}
        got = brief.post("/v1/completions", slow)
        assert got.status == 408 and got.body["error"]["code"] == "timeout"
        streamed = brief.post("/v1/completions", {**slow, "stream": True})
        assert streamed.status == 200 and "did not end within 0.3 s" in streamed.body
        assert "[DONE]" not in streamed.body
        assert eventually(brief.settled)


def test_a_slow_reader_delays_nobody(small: Served) -> None:
    slow = send(small, {**LONG, "logprobs": 20, "stream": True})  # megabytes that nobody reads
    assert slow.recv(64)
    got = small.post("/v1/completions", {"prompt": "a", "max_tokens": 3})
    assert got.status == 200 and small.service.attendants.count == 1
    slow.close()
    assert eventually(small.settled)


HISTOGRAMS = (
    *("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"),
    *("request_prefill_time_seconds", "request_decode_time_seconds", "request_generation_tokens"),
    *("request_inference_time_seconds", "request_time_per_output_token_seconds"),
    *("request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens"),
    "request_prompt_tokens",
)


def test_metrics(small: Served) -> None:
    before = metrics(small)
    for stream in (False, True):
        body = {"prompt": "import os\nimport", "max_tokens": 40, "stream": stream, "temperature": 0}
        assert small.post("/v1/completions", body).status == 200
    assert small.post("/v1/completions", {"nonsense": 1}).status == 400
    after = metrics(small)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    tokens = len(small.engine.tokenizer.encode("import os\nimport"))
    assert grown("vllm:prompt_tokens_total") == 2 * tokens
    assert grown("vllm:generation_tokens_total") == 80
    assert grown('vllm:request_success_total{finished_reason="length"}') == 2
    for name in HISTOGRAMS:
        assert grown(f"vllm:{name}_count") == 2, name
    parts = [grown(f"vllm:request_{name}_time_seconds_sum") for name in ("prefill", "decode")]
    assert sum(parts) == pytest.approx(grown("vllm:request_inference_time_seconds_sum"))
    assert min(parts) > 0
    assert grown("vllm:request_params_max_tokens_sum") == 80
    assert grown("vllm:request_max_num_generation_tokens_sum") == 80
    assert grown("vllm:request_params_n_sum") == 2
    assert grown("vllm:iteration_tokens_total_count") == grown("lora_steps_total")
    cached = grown("vllm:prefix_cache_hits_total")
    assert 80 < grown("vllm:iteration_tokens_total_sum") <= 80 + 2 * tokens - cached
    assert after['vllm:cache_config_info{block_size="32",num_gpu_blocks="64"}'] == 1
    assert grown("vllm:time_to_first_token_seconds_sum") > 0
    assert grown("vllm:inter_token_latency_seconds_count") == 39
    assert grown('lora_http_responses_total{status="200"}') >= 2
    assert grown('lora_http_responses_total{status="400"}') == 1
    assert after["lora_boards"] == 2 and 2 <= grown("lora_steps_total") <= 82
    assert after['lora_link_up{board="0",port="1"}'] == 1
    assert grown('lora_link_frames_total{board="0",port="1"}') > 0
    free, pages = after["lora_kv_pages_free"], after["lora_kv_pages"]
    cached = after["lora_kv_pages_cached"]
    assert 0 < free + cached <= pages == 64  # freed pages come back with the next step
    assert after["vllm:kv_cache_usage_perc"] == (pages - free - cached) / pages
    assert 0 < after["vllm:prefix_cache_hits_total"] < after["vllm:prefix_cache_queries_total"]
    assert after["vllm:num_preemptions_total"] == 0
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    assert grown("vllm:spec_decode_num_accepted_tokens_total") > 0
    assert after['lora_http_responses_total{status="499"}'] >= 2
