"""`lora load` against the server itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError, TransportError
from lora_sdk.cli.load import load_command
from lora_sdk.serve.load import Endpoint, Workload, load
from tests.commands import LORA
from tests.serve.test_serve_load import metrics
from tests.served import Served
from tests.terminal import on_terminal


def run(*arguments: str) -> str:
    return CliRunner().invoke(load_command, list(arguments), catch_exceptions=False).output


def test_two_servers_are_asked_in_turn(server: Served) -> None:
    before = metrics(server)["vllm:generation_tokens_total"]
    short = ["--each", "2", "--prompt", "5", "--tokens", "6", "--rounds", "2"]
    urls = ["--url", server.url, "--url", f"{server.url}/v1"]
    report: list[dict[str, Any]] = json.loads(
        run(*urls, "--clients", "1", "--clients", "3", *short, "--json")
    )
    assert [row["clients"] for row in report] == [1, 3]
    for row in report:
        assert row["label"] == "measured" and len(row["ratios"]) == 2
        for one in row["servers"]:
            assert one["tokens_per_second"] > 0
            assert 0 < one["first_ms"] <= one["first_p99_ms"]
            assert 0 <= one["gap_ms"] <= one["gap_p99_ms"]
    asked = metrics(server)["vllm:generation_tokens_total"] - before
    assert asked == 2 * 2 * (2 + 6) * 6  # servers, rounds, requests, tokens
    text = run(*urls, "--clients", "1", *short)
    assert "median of 2 rounds" in text and "times the tokens/s" in text


def test_its_table_fits_a_terminal(server: Served) -> None:
    short = ("--clients", 1, "--clients", 3, "--each", 1, "--prompt", 5, "--tokens", 4)
    screen = on_terminal(LORA, "load", "--url", server.url, "--url", server.url, *short)
    assert screen.status == 0
    assert "first, ms" in next(s for s in screen.lines if s.endswith("  server"))
    assert screen.too_long() == []


def test_tokens_and_times_are_those_of_the_streams(server: Served) -> None:
    found = load(Endpoint(server.url), Workload(2, 5, 4, 9, 500))
    assert found.new_tokens == 5 * 9
    assert len(found.first) == 5 and len(found.gaps) <= 5 * 8
    assert sum(found.gaps) < 2 * found.seconds


def test_errors_name_the_server(server: Served) -> None:
    for url in ("localhost:8000", "http://[::1", "http://a:99999", "http://a b", "http://a\n"):
        with pytest.raises(RequestError, match="expected http://HOST:PORT"):
            Endpoint(url)
    with pytest.raises(TransportError, match=r"answered 400: .*\btoken"):
        load(Endpoint(server.url), Workload(2, 4, 4, 9, 10**6))
    with pytest.raises(TransportError, match=r"answered 400: .*ask for at most 4"):
        load(Endpoint(server.url), Workload(1, 1, 1020, 64, 500))
    with pytest.raises(TransportError, match=r"answered 404: .*not served here"):
        load(Endpoint(server.url, "another"), Workload(1, 1, 4, 9, 500))
    with pytest.raises(TransportError, match=r"does not answer.*--url"):
        load(Endpoint("http://127.0.0.1:9"), Workload(2, 4, 4, 9, 500))
