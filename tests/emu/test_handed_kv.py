"""K and V of prompts over the socket of lora_vllm's connector, without vLLM: those that another
engine exports, so that texts are the boards' own where everything arrives."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk import Engine, SamplingParams
from lora_sdk.prefill import shared_kv
from lora_sdk.prefill.shared_kv import NotComputed, Opening, Ready, digest_of
from lora_vllm import hand_out
from lora_vllm.hand_out import HandOut
from tests.prefill_rig import held
from tests.served import Reply, eventually, served
from tests.variants import variant, write_checkpoint

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(101)]
ROOM = 1 << 24


class Prompt:
    """What vLLM would have of TOKENS: K and V of all but the last, as steps of 64 positions."""

    def __init__(self, engine: Engine) -> None:
        sequence = engine.open_sequence()
        engine.prefill(sequence, TOKENS[:-1])
        exported = engine.export_kv(sequence)
        engine.release(sequence)
        self.kv: NDArray[np.float16] = np.stack([exported.k, exported.v]).transpose(1, 0, 3, 2, 4)
        layers, _, positions, heads, size = self.kv.shape
        self.opening = Opening(layers, heads, size, positions, "float16", digest_of(TOKENS))

    def put(self, out: HandOut, name: str, start: int, stop: int) -> None:
        """All layers of these positions."""
        for layer, kv in enumerate(self.kv):
            out.put(name, layer, start, kv[:, start:stop])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files have K's columns in another order than the boards."""
    return write_checkpoint(variant("gptj"), tmp_path_factory.mktemp("model") / "gptj")


@pytest.fixture
def out(tmp_path: Path) -> Iterator[HandOut]:
    opened = HandOut(str(tmp_path / "kv.sock"), ROOM)
    yield opened
    opened.close()


@pytest.fixture
def engine(model: Path, tmp_path: Path) -> Iterator[Engine]:
    """Its worker is the socket."""
    worker = f"vllm:{tmp_path / 'kv.sock'}"
    with Engine(model, boards=2, prefill=worker, prefill_mode="fast", max_sequences=4) as opened:
        yield opened


@pytest.fixture
def own(engine: Engine) -> tuple[int, ...]:
    return engine.generate(TOKENS, max_tokens=8).token_ids


@pytest.fixture
def prompt(engine: Engine) -> Prompt:
    return Prompt(engine)


def asked(engine: Engine, name: str) -> tuple[threading.Thread, list[tuple[int, ...]]]:
    """A request that runs in a thread."""
    found: list[tuple[int, ...]] = []

    def run() -> None:
        found.append(engine.generate(TOKENS, max_tokens=8, prefill_id=name).token_ids)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def test_a_prompt_arrives_in_parts(
    out: HandOut, engine: Engine, own: tuple[int, ...], prompt: Prompt
) -> None:
    """The request comes first, then the prompt's parts."""
    thread, found = asked(engine, "a")
    out.announce("a")
    out.begin("a", prompt.opening)
    prompt.put(out, "a", 0, 64)
    assert engine.prefill_use.prompts == 0
    prompt.put(out, "a", 64, 100)
    thread.join()
    assert found == [own]
    assert engine.prefill_use.prompts == 1 and engine.prefill_use.tokens == 100
    assert eventually(lambda: out.used == 0)
    assert held(engine) == 0


def test_a_prompt_is_kept_for_a_request_that_comes_later(
    out: HandOut, engine: Engine, own: tuple[int, ...], prompt: Prompt
) -> None:
    out.announce("a")
    out.begin("a", prompt.opening)
    prompt.put(out, "a", 0, 100)
    assert out.used == prompt.kv.nbytes
    assert engine.generate(TOKENS, max_tokens=8, prefill_id="a").token_ids == own
    assert engine.prefill_use.prompts == 1


def test_answers_say_that_k_and_v_are_not_the_boards_own(
    out: HandOut, engine: Engine, prompt: Prompt
) -> None:
    """Whole and streamed, beside those of prompts that the boards compute; counts are metrics."""

    def ask(name: str | None, **more: object) -> Reply:
        if name is not None:
            out.announce(name)
            out.begin(name, prompt.opening)
            prompt.put(out, name, 0, 100)
            more["kv_transfer_params"] = {"do_remote_prefill": True, "id": name}
        body = {"model": "demo", "prompt": TOKENS, "max_tokens": 4, "return_token_ids": True}
        return server.post("/v1/completions", body | more)

    with served(lambda _: engine) as server:
        handed, own = ask("a"), ask(None)
        assert handed.headers["x-lora-prefill"] == "fast" and "x-lora-prefill" not in own.headers
        details = [one.body["usage"]["prompt_tokens_details"] for one in (handed, own)]
        assert details == [{"cached_tokens": 100, "prefill": "fast"}, {"cached_tokens": 0}]
        streamed = ask("b", stream=True, stream_options={"include_usage": True})
        assert streamed.headers["x-lora-prefill"] == "fast"
        assert '"prefill":"fast"' in streamed.body.split("data: ")[-2]
        missing = {"do_remote_prefill": True, "id": "c"}  # which another process has taken
        out.announce("c")
        out.drop("c", "gone")
        assert "x-lora-prefill" not in ask(None, kv_transfer_params=missing).headers
        metrics = server.get("/metrics").body
    assert 'lora_prefill_prompts_total{mode="fast"} 2.0' in metrics
    assert 'lora_prefill_tokens_total{mode="fast"} 200.0' in metrics
    assert 'lora_prefill_prompts_total{mode="exact"} 0.0' in metrics


def test_nothing_listens(
    engine: Engine, own: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """The boards compute the prompt; one line in the log for several of them."""
    for name in "ab":
        assert engine.generate(TOKENS, max_tokens=8, prefill_id=name).token_ids == own
    lines = [one.getMessage() for one in caplog.records if one.name == "lora_sdk.prefill"]
    assert len(lines) == 1 and "No such file" in lines[0] and "the boards compute" in lines[0]


def test_other_tokens_are_not_taken(
    out: HandOut, engine: Engine, own: tuple[int, ...], prompt: Prompt
) -> None:
    out.announce("a")
    other = [*TOKENS[:-1], TOKENS[-1] + 1]
    out.begin("a", Opening(**{**vars(prompt.opening), "digest": digest_of(other)}))
    prompt.put(out, "a", 0, 100)
    assert engine.generate(TOKENS, max_tokens=8, prefill_id="a").token_ids == own
    assert engine.prefill_use.prompts == 0 and held(engine) == 0


@pytest.mark.parametrize("kind", ["dropped", "closed", "damaged", "unknown", "no room", "twice"])
def test_the_boards_compute_what_does_not_come(
    kind: str,
    out: HandOut,
    engine: Engine,
    own: tuple[int, ...],
    prompt: Prompt,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of it is written to the boards' pages before: nothing of it stays."""
    if kind == "unknown":
        monkeypatch.setattr(hand_out, "UNKNOWN_S", 0.05)
        assert engine.generate(TOKENS, max_tokens=8, prefill_id="a").token_ids == own
        return
    out.announce("a")
    if kind == "no room":
        monkeypatch.setattr(out, "_room", prompt.kv.nbytes - 1)
    out.begin("a", prompt.opening)
    thread, found = asked(engine, "a")
    prompt.put(out, "a", 0, 64)
    if kind == "dropped":
        out.drop("a", "cancelled")
    elif kind == "closed":
        out.close()
    elif kind == "twice":
        out.announce("a")
    elif kind == "damaged":
        monkeypatch.setattr(hand_out, "crc_of", lambda _: 7)
        prompt.put(out, "a", 64, 100)
    thread.join()
    assert found == [own]
    assert engine.prefill_use.prompts == 0
    assert out.used == 0 and held(engine) == 0


def test_a_cancelled_request_frees_memory_and_pages(
    out: HandOut, engine: Engine, prompt: Prompt
) -> None:
    out.announce("a")
    out.begin("a", prompt.opening)
    stop = threading.Event()
    params = SamplingParams(max_tokens=8, prefill_id="a")
    thread = threading.Thread(target=lambda: _cancel_later(engine, params, stop))
    thread.start()
    assert eventually(lambda: out.engines == 1)
    prompt.put(out, "a", 0, 64)
    stop.set()
    thread.join()
    assert eventually(lambda: out.used == 0)
    assert held(engine) == 0


def _cancel_later(engine: Engine, params: SamplingParams, stop: threading.Event) -> None:
    async def run() -> None:
        task = asyncio.ensure_future(engine.agenerate(TOKENS, params))
        while not stop.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_what_nobody_takes_is_forgotten(tmp_path: Path) -> None:
    now = [0.0]
    out = HandOut(str(tmp_path / "s"), ROOM, lambda: now[0])
    opening = Opening(1, 1, 8, 32, "float32", "x")
    try:
        out.announce("a")
        out.begin("a", opening)
        out.put("a", 0, 0, np.zeros((2, 32, 1, 8), np.float32))
        assert out.used == 2 * 32 * 8 * 4 and not out.wants("a")
        now[0] = hand_out.KEEP_S + 1
        out.announce("b")
        assert out.used == 0
    finally:
        out.close()


def test_a_socket_is_for_one_process_and_one_user(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    first = HandOut(path, ROOM)
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="another process listens"):
        HandOut(path, ROOM)
    first.close()
    assert not os.path.exists(path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    HandOut(path, ROOM).close()
    Path(path).write_text("mine")
    with pytest.raises(OSError):
        HandOut(path, ROOM)
    assert Path(path).read_text() == "mine"


OPENING = Opening(4, 2, 16, 100, "float16", "d" * 64)
BAD = [
    (b"", "expected a JSON object"),
    (b"[" * 100_000, "expected a JSON object"),
    (b'{"layers": 4}', "expected layers, heads"),
    (json.dumps({**vars(OPENING), "layers": True}).encode(), "layers True"),
    (json.dumps({**vars(OPENING), "positions": 1 << 40}).encode(), "positions 1099511627776"),
    (json.dumps({**vars(OPENING), "kind": "float64"}).encode(), "kind 'float64'"),
    (json.dumps({**vars(OPENING), "digest": 3}).encode(), "digest 3"),
    (b'{"error": "why"}', "why"),
]


@pytest.mark.parametrize(("line", "why"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named(line: bytes, why: str) -> None:
    with pytest.raises(NotComputed, match=why):
        shared_kv.opening_of(shared_kv.read_line(line))


@pytest.mark.parametrize(
    "ready",
    [Ready(1, 0, 32, 0), Ready(0, 32, 32, 0), Ready(0, 0, 33, 0), Ready(0, 96, 32, 0)],
    ids=["layer", "first", "part of a page", "end"],
)
def test_what_is_out_of_order_is_refused(ready: Ready) -> None:
    with pytest.raises(NotComputed, match="expected whole pages from 0 on of layer 0"):
        shared_kv.in_order(OPENING, ready, 0, 0, 0)
    shared_kv.in_order(OPENING, Ready(0, 0, 96, 0), 0, 0, 0)
    shared_kv.in_order(OPENING, Ready(0, 96, 4, 0), 0, 96, 0)


def test_a_line_without_end_is_refused() -> None:
    buffer = bytearray(b"a\nb\n" + b"c" * 2000)
    with pytest.raises(NotComputed, match="2000 B without an end of line"):
        list(shared_kv.lines_in(buffer))


def test_names_need_a_worker_that_knows_them(model: Path) -> None:
    with Engine(model) as engine, pytest.raises(RequestError, match="no worker has prompts"):
        engine.generate(TOKENS, prefill_id="a")
    with pytest.raises(RequestError, match="prefill_id"):
        SamplingParams(prefill_id="a b\n")
    with pytest.raises(RequestError, match="vllm:SOCKET"):
        Engine(model, prefill="vllm:", prefill_mode="fast")
    with pytest.raises(RequestError, match="prefill"):
        Engine(model, prefill="vllm:/x")
