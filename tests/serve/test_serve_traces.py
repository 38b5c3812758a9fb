"""Traces of requests, received as a collector does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lora_host.errors import RequestError
from lora_sdk import Engine
from lora_sdk.serve.settings import Settings
from tests.served import served

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it receives."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1/traces"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_each_request_is_a_span(collector: Collector) -> None:
    body = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
    with served(
        lambda progress: Engine(progress=progress), otlp_traces_endpoint=collector.url
    ) as server:
        parent = f"00-{TRACE}-{PARENT}-01"
        done = server.post("/v1/completions", body, traceparent=parent)
        server.post("/v1/completions", {**body, "stream": True})
        server.get("/nowhere")
    whole, streamed, absent = collector.spans  # all of them, once the server has ended
    assert whole.name == "POST /v1/completions"
    assert whole.trace_id.hex() == TRACE and whole.parent_span_id.hex() == PARENT
    assert streamed.trace_id != whole.trace_id and not streamed.parent_span_id
    told = attributes(whole)
    assert told["gen_ai.request.id"] == done.headers["x-request-id"]
    for span in (whole, streamed):
        told = attributes(span)
        assert told["http.response.status_code"] == 200
        assert told["gen_ai.usage.input_tokens"] == 3 and told["gen_ai.usage.output_tokens"] == 4
        first, seconds = told["gen_ai.latency.time_to_first_token"], told["gen_ai.latency.e2e"]
        assert 0 <= told["gen_ai.latency.time_in_queue"] <= first <= seconds + 1e-3
        taken = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        assert taken == pytest.approx(seconds, abs=1e-6)
    assert attributes(absent)["http.response.status_code"] == 404


def test_a_collector_that_is_away_delays_nothing() -> None:
    with Collector() as gone:
        url = gone.url
    with served(lambda progress: Engine(progress=progress), otlp_traces_endpoint=url) as server:
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200
        began = time.monotonic()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("url", ["collector", "file:///etc/passwd", "http://a b/"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match=r"otlp_traces_endpoint is .*4318/v1/traces"):
        Settings(otlp_traces_endpoint=url)
