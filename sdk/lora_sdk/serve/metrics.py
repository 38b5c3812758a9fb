"""`/metrics`: counts and times of requests under vLLM's names, and what the boards tell."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lora_sdk.serve.board_metrics import BoardCollector
from lora_sdk.serve.history import History
from lora_sdk.step.results import Delta, Result

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 100_000)


class Metrics:
    """All of a server's metrics. `running` and `waiting` give the sequences in the engine and
    before it."""

    def __init__(self, running: Callable[[], float], waiting: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        self.boards = BoardCollector()
        self.history = History()
        self._registry.register(self.boards)
        self._gauge("vllm:num_requests_running", "Sequences in the engine", running)
        self._gauge("vllm:num_requests_waiting", "Sequences in the queue", waiting)
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens taken in")
        self._generated = self._counter("vllm:generation_tokens", "New tokens")
        self._success = self._counter(
            "vllm:request_success", "Sequences that ended, by reason", "finished_reason"
        )
        self._first = self._seconds("vllm:time_to_first_token_seconds", "Until the first token")
        self._between = self._seconds("vllm:inter_token_latency_seconds", "Between two tokens")
        self._total = self._seconds("vllm:e2e_request_latency_seconds", "From prompt to last token")
        self._queued = self._seconds("vllm:request_queue_time_seconds", "In the queue")
        self._prompts = self._tokens("vllm:request_prompt_tokens", "Tokens of a prompt")
        self._outputs = self._tokens("vllm:request_generation_tokens", "New tokens of a prompt")
        self._responses = self._counter("lora_http_responses", "Answers, by status", "status")

    def responded(self, status: int) -> None:
        """An HTTP request was answered; 499: its client went away."""
        self._responses.labels(str(status)).inc()

    def text(self) -> bytes:
        """All of it, for Prometheus."""
        return generate_latest(self._registry)

    def clock(self, prompt_tokens: int, counts: dict[str, object]) -> RequestClock:
        """For a prompt that enters the queue now; `counts` receive its times, for the log."""
        self._prompt.inc(prompt_tokens)
        self._prompts.observe(prompt_tokens)
        return RequestClock(self, counts)

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self._registry).set_function(value)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self._registry)

    def _tokens(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_TOKENS, registry=self._registry)


class RequestClock:
    """Notes the times of one prompt in the metrics, and of a request's prompts in its counts: the
    longest wait in the queue, `queued`, and the first token, `first_token`."""

    def __init__(self, metrics: Metrics, counts: dict[str, object]) -> None:
        self._metrics = metrics
        self._counts = counts
        self._began = time.monotonic()
        self._last: dict[int, float] = {}  # sample -> time of its last token
        self._tokens = 0

    def granted(self) -> None:
        """It left the queue."""
        seconds = time.monotonic() - self._began
        self._metrics._queued.observe(seconds)
        self._counts["queued"] = round(seconds, 4)  # prompts leave the queue in order

    def _first_token(self, seconds: float) -> None:
        self._metrics._first.observe(seconds)
        self._metrics.history.first_token(seconds)
        self._counts.setdefault("first_token", round(seconds, 4))

    def received(self, delta: Delta) -> None:
        """A delta came."""
        metrics, now = self._metrics, time.monotonic()
        if delta.token_id is not None:
            metrics._generated.inc()
            if not self._last:
                self._first_token(now - self._began)
            if delta.index in self._last:
                gap = now - self._last[delta.index]
                metrics._between.observe(gap)
                metrics.history.between_tokens(gap)
            self._last[delta.index] = now
            self._tokens += 1
        if delta.finish_reason is not None:
            metrics._success.labels(delta.finish_reason).inc()

    def ended(self) -> None:
        """All samples are finished."""
        self._metrics._total.observe(time.monotonic() - self._began)
        self._metrics._outputs.observe(self._tokens)

    def finished(self, result: Result) -> None:
        """All samples are finished, and were not streamed."""
        metrics = self._metrics
        before = time.monotonic() - self._began - result.timing.total
        self._first_token(max(0.0, before) + result.timing.first_token)
        metrics._generated.inc(result.completion_tokens)
        for output in result.outputs:
            metrics._success.labels(output.finish_reason).inc()
        self._tokens = result.completion_tokens
        self.ended()
