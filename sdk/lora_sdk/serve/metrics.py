"""`/metrics`: counts and times of requests under vLLM's names, and what the boards tell."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from lora_sdk.sampling import SamplingParams
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
        self._new_tokens = 0
        self.boards = BoardCollector(lambda: self._new_tokens)
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
        self._longest = self._tokens(
            "vllm:request_max_num_generation_tokens", "New tokens of a prompt's longest sample"
        )
        self._samples = self._tokens("vllm:request_params_n", "Samples of a prompt")
        self._limits = self._tokens(
            "vllm:request_params_max_tokens", "New tokens that are asked for"
        )
        self._prefill = self._seconds(
            "vllm:request_prefill_time_seconds", "From the queue to the first token"
        )
        self._decode = self._seconds(
            "vllm:request_decode_time_seconds", "From the first to the last token"
        )
        self._inference = self._seconds(
            "vllm:request_inference_time_seconds", "From the queue to the last token"
        )
        self._per_token = self._seconds(
            "vllm:request_time_per_output_token_seconds", "Mean time between tokens of a prompt"
        )
        self._responses = self._counter("lora_http_responses", "Answers, by status", "status")

    def responded(self, status: int) -> None:
        """An HTTP request was answered; 499: its client went away."""
        self._responses.labels(str(status)).inc()

    def text(self) -> bytes:
        """All of it, for Prometheus."""
        return generate_latest(self._registry)

    def clock(
        self, prompt_tokens: int, params: SamplingParams, counts: dict[str, object]
    ) -> RequestClock:
        """For a prompt that enters the queue now; `counts` receive its times, for the log."""
        self._samples.observe(params.n)
        if params.max_tokens is not None:
            self._limits.observe(params.max_tokens)
        self._prompt.inc(prompt_tokens)
        self._prompts.observe(prompt_tokens)
        return RequestClock(self, counts)

    def taken(self, prompt_tokens: int) -> None:
        """A text that is not continued runs."""
        self._prompt.inc(prompt_tokens)

    def generated(self, tokens: int) -> None:
        """So many new tokens came."""
        self._generated.inc(tokens)
        self._new_tokens += tokens

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
        self._counts_of: dict[int, int] = {}  # sample -> its tokens
        self._left: float | None = None  # when it left the queue
        self._first: float | None = None  # when the first token came

    def granted(self) -> None:
        """It left the queue."""
        self._left = time.monotonic()
        seconds = self._left - self._began
        self._metrics._queued.observe(seconds)
        self._counts["queued"] = round(seconds, 4)  # prompts leave the queue in order

    def _first_token(self, seconds: float) -> None:
        self._first = self._began + seconds
        self._metrics._first.observe(seconds)
        self._metrics.history.first_token(seconds)
        self._counts.setdefault("first_token", round(seconds, 4))

    def received(self, delta: Delta) -> None:
        """A delta came."""
        metrics, now = self._metrics, time.monotonic()
        if delta.token_id is not None:
            metrics.generated(1)
            if not self._last:
                self._first_token(now - self._began)
            if delta.index in self._last:
                gap = now - self._last[delta.index]
                metrics._between.observe(gap)
                metrics.history.between_tokens(gap)
            self._last[delta.index] = now
            self._counts_of[delta.index] = self._counts_of.get(delta.index, 0) + 1
        if delta.finish_reason is not None:
            metrics._success.labels(delta.finish_reason).inc()

    def ended(self) -> None:
        """All samples are finished."""
        metrics, now = self._metrics, time.monotonic()
        longest = max(self._counts_of.values(), default=0)
        metrics._total.observe(now - self._began)
        metrics._outputs.observe(sum(self._counts_of.values()))
        metrics._longest.observe(longest)
        if self._left is not None and self._first is not None:
            metrics._inference.observe(now - self._left)
            metrics._prefill.observe(max(0.0, self._first - self._left))
            metrics._decode.observe(now - self._first)
            if longest > 1:
                metrics._per_token.observe((now - self._first) / (longest - 1))

    def finished(self, result: Result) -> None:
        """All samples are finished, and were not streamed."""
        metrics = self._metrics
        before = time.monotonic() - self._began - result.timing.total
        self._first_token(max(0.0, before) + result.timing.first_token)
        metrics.generated(result.completion_tokens)
        for output in result.outputs:
            metrics._success.labels(output.finish_reason).inc()
        self._counts_of = {one.index: len(one.token_ids) for one in result.outputs}
        self.ended()
