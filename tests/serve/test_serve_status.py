"""The status as JSON, the page that shows it in a browser, and `lora top`."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from lora_host.schema_match import surely_valid
from lora_sdk import Engine, SamplingParams
from lora_sdk.cli.top_view import duration, view
from lora_sdk.serve.settings import digest
from lora_sdk.serve.status_schema import SCHEMA
from tests.commands import LORA, command, one_line_error
from tests.served import Served, completion_model, served

KEY = "a-key-of-sixteen-or-more"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two boards, a key, no chat template."""
    model, keys = completion_model(tmp_path_factory.mktemp("pair")), (digest(KEY),)
    with served(lambda progress: Engine(model, boards=2, progress=progress), keys=keys) as running:
        yield running


def told(server: Served) -> dict[str, Any]:
    reply = server.get("/status", authorization=f"Bearer {KEY}")
    assert reply.status == 200
    jsonschema.validate(reply.body, SCHEMA)
    assert surely_valid(SCHEMA, reply.body)
    assert isinstance(reply.body, dict)
    return reply.body


def test_status_follows_the_work(pair: Served) -> None:
    before = told(pair)
    assert (before["model"], before["status"]) == ("demo", "ready")
    pair.client(KEY).completions.create(model="demo", prompt="a", max_tokens=12, temperature=0)
    after = told(pair)
    assert after["new_tokens"] - before["new_tokens"] in range(1, 13)
    assert after["steps"] > before["steps"] and after["uptime"] > before["uptime"]
    assert after["requests"]["running"] == 0
    assert after["requests"]["capacity"] == pair.engine.plan.max_sequences
    for was, now, planned in zip(
        before["boards"], after["boards"], pair.engine.plan.boards, strict=True
    ):
        assert now["address"] == pair.engine.cluster.infos[planned.board].address
        assert sum(bank["used"] for bank in now["banks"]) == sum(u.reserved for u in planned.use)
        frames = [sum(link["frames"] for link in one["links"]) for one in (was, now)]
        assert frames[1] > frames[0] and all(link["up"] for link in now["links"])


def test_status_names_what_boards_are_and_their_peers(pair: Served) -> None:
    """Each end of a cable names the other; what the banks hold has the banks' names."""
    boards = told(pair)["boards"]
    assert [board["type"] for board in boards] == ["emulated"] * 2
    ends = {(b["rank"], link["port"]): link["peer"] for b in boards for link in b["links"]}
    cables = {
        frozenset({(cable.board_a, cable.port_a), (cable.board_b, cable.port_b)})
        for cable in pair.engine.cluster.cables
    }
    assert {frozenset({end, (p["rank"], p["port"])}) for end, p in ends.items()} == cables
    assert len(ends) == 2 * len(cables) > 0
    assert {bank["bank"] for bank in boards[0]["banks"]} >= {"HBM[0]", "HBM[31]", "DDR[1]"}
    assert all(not any(board["memory_errors"].values()) for board in boards)


def test_pages_held_and_cached_are_told_apart(pair: Served) -> None:
    params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    prompt = pair.engine.tokenizer.encode("import os\n" * 40)
    pair.engine.generate(prompt, params)
    pair.engine.generate("a", max_tokens=2)  # whose first step gives the pages of the last one back
    after = told(pair)["kv"]
    assert after["held"] <= 1 and after["cached"] >= len(prompt) // 32
    assert after["held"] + after["cached"] + after["free"] == after["pages"]


def test_latency_and_throughput_are_kept_by_the_server(pair: Served) -> None:
    """Who asks later sees them too."""
    before = told(pair)
    client = pair.client(KEY)
    list(client.completions.create(model="demo", prompt="a", max_tokens=9, stream=True))
    after = told(pair)
    for name, least in (("first_token", 1), ("between_tokens", 3)):
        was, now = before["latency"][name], after["latency"][name]
        assert now["count"] - (was or {"count": 0})["count"] >= least
        assert 0 < now["p50"] <= now["p99"] < 60
    of_all = sum(period["new_tokens"] for period in after["history"])
    assert of_all == after["new_tokens"] > before["new_tokens"]


def test_status_says_whether_a_chat_is_possible(pair: Served, server: Served) -> None:
    assert told(pair)["chat"] is False and told(pair)["context"] == pair.engine.context
    assert server.get("/status").body["chat"] is True


def test_tokens_count_while_a_request_runs(pair: Served) -> None:
    seen, engine = [], pair.engine
    start = engine.new_tokens

    def received(_delta: object) -> None:
        seen.append(engine.new_tokens - start)

    engine.generate("a", on_delta=received)
    assert seen == list(range(1, len(seen) + 1)) and len(seen) > 1


def test_a_key_guards_the_state_and_not_the_page(pair: Served) -> None:
    assert pair.get("/status").status == 401
    page = pair.get("/")
    assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    assert "emu:" not in page.body and KEY not in page.body


def test_the_policy_allows_the_pages_own_code_alone(pair: Served) -> None:
    page = pair.get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy and policy.count("sha256-") == 2
    assert not re.search(r"\s(?:on\w+|style)=|src=\"http|href=\"http", page.body)


def test_the_page_is_small_and_loads_nothing(pair: Served) -> None:
    page = pair.get("/")
    assert len(page.body) < 48_000
    assert not re.search(r"<(?:link|script|img|iframe)[^>]*(?:src|href)=\"(?!data:,)", page.body)
    assert "innerHTML" not in page.body and "eval(" not in page.body


def test_top_as_json_and_as_a_table(pair: Served, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"# for lora top\n{KEY}\n")
    given = ("top", "--once", "--url", pair.url, "--api-key-file", file)
    done = command(LORA, *given, "--json")
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), SCHEMA)
    drawn = command(LORA, *given).stdout.decode()
    assert "demo on 2 emulated boards  ready" in drawn and drawn.count("emu:u280  u280") == 2
    assert "all 1 link up" not in drawn and "the link is up" in drawn


def test_rates_are_differences() -> None:
    first = json.loads(json.dumps(STATE))
    second = {**first, "uptime": first["uptime"] + 2, "new_tokens": 300, "steps": 70}
    assert "100.0" in drawn(second, first) and "25.0" in drawn(second, first)
    dead = {**second, "status": "dead", "new_tokens": 0}
    assert "-50.0" not in drawn(dead, first) and "dead" in drawn(dead, first)


def test_top_fits_a_terminal_of_80_columns(pair: Served) -> None:
    text = drawn(told(pair), STATE, 80)
    assert "1-1.0\xa0up" in text and "first token" in text and "KV pages held" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (24.4, "24 s"), (185, "3 min 5 s"), (7200, "2 h"), (352_859, "4 d 2 h")],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_link_is_up_if_both_of_its_ports_are() -> None:
    def board(rank: int, up: bool) -> dict[str, Any]:
        peer = {"rank": 1 - rank, "port": 0}
        link = {"port": 0, "up": up, "frames": 1, "errors": 0, "peer": peer}
        return {"rank": rank, "address": "a", "name": "u280", "serial": 1, "type": "real",
                "banks": [], "links": [link]}  # fmt: skip

    assert "the link is up" in drawn({**STATE, "boards": [board(0, True), board(1, True)]}, None)
    text = drawn({**STATE, "boards": [board(0, True), board(1, False)]}, None)
    assert "1 of 1 link down" in text and "m on 2 real boards" in text


def test_control_characters_of_a_server_are_not_printed() -> None:
    hostile = {**STATE, "model": "\x1b]0;x\x07", "adapters": ["a\x1b[2J"]}
    assert "\x1b" not in drawn(hostile, None) and "\x07" not in drawn(hostile, None)


def drawn(state: dict[str, Any], last: dict[str, Any] | None, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(view(state, last))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


STATE: dict[str, Any] = {
    "version": "1", "model": "m", "adapters": [], "status": "ready", "loaded_bytes": 1,
    "total_bytes": 1, "uptime": 5.0, "new_tokens": 100, "steps": 20, "redone_steps": 0,
    "requests": {"running": 1, "waiting": 0, "capacity": 4, "max_waiting": 8}, "boards": [],
    "kv": {"pages": 10, "held": 5, "cached": 2, "free": 3}, "chat": False, "context": 64,
    "latency": {"seconds": 60.0, "first_token": None, "between_tokens": None}, "history": [],
    "speculation": {"verifications": 0, "drafted": 0, "accepted": 0},
}  # fmt: skip


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[str]:
    """A server that answers everything so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (b"<html>", 200, "is not the status of a lora serve"),
        (b"[" * 100_000, 200, "is not the status of a lora serve"),
        (json.dumps({**STATE, "requests": 3}).encode(), 200, "$.requests has another form"),
        (json.dumps({**STATE, "boards": [{}]}).encode(), 200, "$.boards[0] has another form"),
        (b"", 404, "answers 404"),
        (b"", 401, "--api-key-file"),
    ],
)
def test_what_is_no_server_is_one_line(body: bytes, status: int, part: str) -> None:
    with answering(body, status) as url:
        one_line_error(command(LORA, "top", "--once", "--url", url), part)


def test_a_bad_url_is_refused() -> None:
    one_line_error(command(LORA, "top", "--url", "localhost:8000"), "expected http://HOST:PORT")
    one_line_error(command(LORA, "top", "--once", "--url", "http://127.0.0.1:9"), "does not answer")
