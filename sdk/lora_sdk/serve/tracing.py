"""A trace of every request to a collector, by OpenTelemetry's protocol over HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_EXPORT_SECONDS = 2  # for a batch; those that do not arrive are dropped
_COUNTS = {  # of a request's counts, as vLLM and OpenTelemetry's conventions name them
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "queued": "gen_ai.latency.time_in_queue",
    "first_token": "gen_ai.latency.time_to_first_token",
}


class Traces:
    """Sends spans from a thread of its own; a collector that is slow or away delays no request."""

    def __init__(self, endpoint: str, model: str) -> None:
        """`endpoint`: the collector's URL for traces, as http://127.0.0.1:4318/v1/traces."""
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": "lora-serve", "gen_ai.request.model": model}),
            shutdown_on_exit=False,
        )
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("lora_sdk.serve")
        self._propagator = TraceContextTextMapPropagator()

    def record(
        self,
        headers: Mapping[str, str],
        log: Mapping[str, object],
        seconds: float,
    ) -> None:
        """A span of a request that ends now: what its line of log tells. It continues the trace
        that `headers` name."""
        ended = time.time_ns()
        status = log["status"]
        assert isinstance(status, int)
        attributes: dict[str, str | int | float] = {
            "http.request.method": str(log["method"]),
            "url.path": str(log["path"]),
            "http.response.status_code": status,
            "gen_ai.request.id": str(log["request"]),
            "gen_ai.latency.e2e": seconds,
        }
        for name, attribute in _COUNTS.items():
            value = log.get(name)
            if isinstance(value, (int, float)):
                attributes[attribute] = value
        span = self._tracer.start_span(
            f"{log['method']} {log['path']}",
            self._propagator.extract({k: v for k, v in headers.items() if k.startswith("trace")}),
            SpanKind.SERVER,
            attributes,
            start_time=ended - round(seconds * 1e9),
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=ended)

    def close(self) -> None:
        """Send what is left and end the thread."""
        self._provider.shutdown()
