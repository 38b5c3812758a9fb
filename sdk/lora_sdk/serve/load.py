"""Clients of OpenAI-compatible servers, a number of them at once, and what they measure."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import pairwise
from statistics import median
from urllib.parse import urlsplit

from lora_host.errors import RequestError, TransportError

TIMEOUT = 600.0  # seconds without a word from the server
_MAX_LINE = 1 << 20
_MAX_REFUSAL = 300  # characters of a refusal that are shown


@dataclass(frozen=True)
class Endpoint:
    """A server: where it is, what it calls the model, and the key that it wants."""

    url: str
    model: str = ""
    key: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known or not self.url.isprintable() or " " in self.url:
            raise RequestError(f"the URL is {self.url!r:.100}; expected http://HOST:PORT")

    def connect(self) -> HTTPConnection:
        """A new connection."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return kind(parts.netloc, timeout=TIMEOUT)

    @property
    def path(self) -> str:
        """The path of completions."""
        return f"{urlsplit(self.url).path.rstrip('/').removesuffix('/v1')}/v1/completions"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request."""
        more = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"Content-Type": "application/json", **more}


@dataclass(frozen=True)
class Workload:
    """Greedy requests of `prompt` random token ids below `vocabulary` and `tokens` new ones.
    `requests` in all, from `clients` that each send the next one once the last is answered."""

    clients: int
    requests: int
    prompt: int
    tokens: int
    vocabulary: int

    def body(self, model: str, number: int) -> bytes:
        """Request `number`; no two have a common beginning."""
        generator = random.Random(number)
        fields = {
            "prompt": [generator.randrange(self.vocabulary) for _ in range(self.prompt)],
            "max_tokens": self.tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps({"model": model, **fields} if model else fields).encode()


@dataclass
class Measured:
    """What the clients saw. Times in seconds."""

    seconds: float = 0.0
    new_tokens: int = 0
    first: list[float] = field(default_factory=list)  # from sending to the first chunk
    gaps: list[float] = field(default_factory=list)  # between chunks

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all clients a second."""
        return self.new_tokens / self.seconds

    def as_dict(self) -> dict[str, float]:
        """Rate, and times in ms."""
        return {
            "tokens_per_second": self.tokens_per_second,
            "first_ms": 1e3 * median(self.first),
            "first_p99_ms": 1e3 * _p99(self.first),
            "gap_ms": 1e3 * median(self.gaps or [0.0]),
            "gap_p99_ms": 1e3 * _p99(self.gaps or [0.0]),
        }


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def load(
    endpoint: Endpoint, workload: Workload, ended: Callable[[], None] = lambda: None
) -> Measured:
    """Send all requests; `ended` is called after each. TransportError if one is not answered whole:
    the others end too."""
    numbers = iter(range(workload.requests))
    lock, found = threading.Lock(), Measured()
    failures: list[Exception] = []

    def client() -> None:
        try:
            while not failures:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                times, tokens = _stream(endpoint, workload.body(endpoint.model, number))
                if tokens != workload.tokens:
                    raise TransportError(
                        f"{endpoint.url} gave {tokens} of {workload.tokens} tokens after a prompt "
                        f"of {workload.prompt}; ask for fewer than its context holds"
                    )
                with lock:
                    found.new_tokens += tokens
                    found.first.append(times[1] - times[0])
                    found.gaps += [after - before for before, after in pairwise(times[1:])]
                    ended()
        except (OSError, HTTPException, ValueError, TransportError) as error:
            failures.append(error)

    threads = [threading.Thread(target=client, daemon=True) for _ in range(workload.clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.seconds = time.perf_counter() - began
    if failures:
        error = failures[0]
        if isinstance(error, TransportError):
            raise error
        raise TransportError(
            f"{endpoint.url} does not answer: {error or type(error).__name__}; start it, or name "
            "another with --url"
        )
    return found


def _stream(endpoint: Endpoint, body: bytes) -> tuple[list[float], int]:
    """(times of sending and of each chunk, new tokens) of one request."""
    with closing(endpoint.connect()) as connection:
        return _answer(connection, endpoint, body)


def _answer(connection: HTTPConnection, endpoint: Endpoint, body: bytes) -> tuple[list[float], int]:
    times, usage = [time.perf_counter()], b""
    connection.request("POST", endpoint.path, body, endpoint.headers)
    answer = connection.getresponse()
    if answer.status != 200:
        text = answer.read(1 << 16).decode("utf-8", "replace")
        raise TransportError(
            f"{endpoint.url} answered {answer.status}: {' '.join(text.split())[:_MAX_REFUSAL]}"
        )
    while line := answer.readline(_MAX_LINE):
        if line.startswith(b"data: {"):
            if b'"usage":{' in line.replace(b" ", b"")[-1000:]:
                usage = line[6:]
            else:
                times.append(time.perf_counter())
    return _checked(endpoint, times, usage)


def _checked(endpoint: Endpoint, times: list[float], usage: bytes) -> tuple[list[float], int]:
    counts = json.loads(usage).get("usage") if usage else None
    tokens = counts.get("completion_tokens") if isinstance(counts, dict) else None
    if not isinstance(tokens, int) or not tokens > 0 or len(times) < 2:
        raise TransportError(
            f"{endpoint.url} ended a stream without tokens or without usage; it must be a server "
            "with stream_options.include_usage"
        )
    return times, tokens
