"""A server's life: loading, ready, draining, dead; how the process ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, InternalServerError, OpenAI, Stream
from openai.types import Completion

from lora_host import abi
from lora_sdk import Engine
from lora_sdk.serve.backend import EngineBackend
from lora_sdk.serve.server import Server, listen
from lora_sdk.serve.settings import Settings
from tests.commands import LORA, command, one_line_error
from tests.served import Served, eventually, process, served


def test_loading_is_told_and_can_be_stopped() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(progress: Any) -> EngineBackend:
        progress(3, 7)
        entered.set()
        go_on.wait(30)
        return EngineBackend(Engine(progress=progress))

    settings = Settings(names=("demo",), port=0)
    server = Server(settings, slowly)
    with listen(settings) as listener:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=lambda: loop.run_until_complete(server.run(listener)))
        thread.start()
        assert entered.wait(30)
        loading = Served(server, listener.getsockname()[1])
        want = {"status": "loading", "loaded_bytes": 3, "total_bytes": 7}
        health, ready = loading.get("/health"), loading.get("/ready")
        assert (health.status, health.body) == (200, {**want, "weight_notices": 0})
        assert (ready.status, ready.body) == (503, want)
        refused = loading.post("/v1/completions", {"prompt": "a"})
        assert refused.status == 503 and refused.headers["retry-after"] == "1"
        loop.call_soon_threadsafe(server.stop)
        assert eventually(lambda: loading.service._stopping)
        go_on.set()  # the engine notices at its next progress
        thread.join(30)
        assert not thread.is_alive() and server.service._backend is None
        loop.close()


def test_the_model_is_ready_when_it_says_so() -> None:
    with served(lambda progress: Engine(progress=progress)) as running:
        got = running.get("/ready")
        assert got.status == 200 and got.body["status"] == "ready"
        assert got.body["loaded_bytes"] == got.body["total_bytes"] > 10_000_000
        engine = running.engine
    assert engine._closed


def test_a_failed_step_is_503_and_the_next_one_works() -> None:
    with served(lambda progress: Engine(progress=progress, boards=2, recovery="off")) as running:
        emulated = running.engine.cluster.emulated
        assert emulated is not None
        emulated.fault(0, abi.FAULT_LINK_FLIP, 1, 0, 1_000_000)
        for stream in (False, True):
            got = running.post("/v1/completions", {"prompt": "a", "stream": stream})
            assert got.status == 503 and "board" in got.body["error"]["message"]
        emulated.fault(0, abi.FAULT_NONE)
        assert running.post("/v1/completions", {"prompt": "a"}).status == 200
        assert running.get("/health").status == 200


def test_hanging_boards_are_dead() -> None:
    with served(lambda progress: Engine(progress=progress, boards=2, recovery="off")) as running:
        emulated = running.engine.cluster.emulated
        assert emulated is not None
        emulated.fault(1, abi.FAULT_FIRMWARE_DEAD)
        assert running.post("/v1/completions", {"prompt": "a"}).status == 503
        health = running.get("/health")
        assert health.status == 503 and health.body["status"] == "dead"
        assert running.get("/ready").status == 503
        assert (
            "restart" in running.post("/v1/completions", {"prompt": "a"}).body["error"]["message"]
        )


def test_boards_that_a_reset_heals_answer() -> None:
    with served(lambda progress: Engine(progress=progress, boards=2)) as running:
        want = running.post("/v1/completions", {"prompt": "a", "seed": 1}).body["choices"]
        emulated = running.engine.cluster.emulated
        assert emulated is not None
        emulated.fault(1, abi.FAULT_FIRMWARE_DEAD)
        got = running.post("/v1/completions", {"prompt": "a", "seed": 1})
        assert got.status == 200 and got.body["choices"] == want
        assert len(running.engine.recoveries) == 1 and running.get("/ready").status == 200


# --- as a process ---------------------------------------------------------------------------------


def long_stream(client: OpenAI, tokens: int) -> Stream[Completion]:
    return client.completions.create(
        model="demo", prompt="import os\n", max_tokens=tokens, stream=True,
        extra_body={"ignore_eos": True},
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_requests_end_before_the_process(number: int) -> None:
    with process() as (child, client):
        stream = iter(long_stream(client, 200))
        next(stream)
        os.kill(child.pid, number)

        def refused() -> bool:
            try:
                client.models.list()
            except InternalServerError as error:
                return error.status_code == 503 and "shutting down" in error.message
            return False

        assert eventually(refused)
        last = list(stream)[-1]
        assert last.choices[0].finish_reason == "length"
        assert child.wait(20) == 0
        assert child.stderr is not None and "Traceback" not in child.stderr.read()


def test_what_does_not_end_in_time_is_cancelled() -> None:
    with process("--drain-timeout", "0.05") as (child, client):
        stream = iter(long_stream(client, 1000))
        next(stream)
        child.terminate()
        with pytest.raises(APIError, match="shutting down"):
            list(stream)
        assert child.wait(20) == 0


def test_a_second_signal_cancels_at_once() -> None:
    with process() as (child, client):
        stream = iter(long_stream(client, 1000))
        next(stream)
        child.terminate()
        assert child.stderr is not None
        while "draining" not in child.stderr.readline():
            pass
        child.terminate()
        with pytest.raises(APIError, match="shutting down"):
            list(stream)
        assert child.wait(20) == 0


def test_what_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    one_line_error(command(LORA, "serve", "--host", "0.0.0.0"), "0.0.0.0", "--api-key-file")
    one_line_error(command(LORA, "serve", "--model", tmp_path / "none"), "none")
    one_line_error(command(LORA, "serve", "--port", "70000"), "port", "70000")
    one_line_error(command(LORA, "serve", "--api-key-file", tmp_path / "keys"), "keys")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one_line_error(command(LORA, "serve", "--port", port), str(port), "--port")
