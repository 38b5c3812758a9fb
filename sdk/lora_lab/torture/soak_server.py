"""`lora serve`'s server in a thread of this process, on a free port of the loopback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lora_host.errors import TransportError
from lora_sdk.engine.engine import Engine
from lora_sdk.serve.backend import EngineBackend
from lora_sdk.serve.lifecycle import State
from lora_sdk.serve.server import Server, listen
from lora_sdk.serve.settings import Settings

READY_SECONDS = 120.0


@dataclass(frozen=True)
class Serving:
    """A ready server."""

    engine: Engine
    url: str


@contextmanager
def serving(open_engine: Callable[[Any], Engine]) -> Iterator[Serving]:
    """A server of this engine. It is drained at the end. What opening the engine raises is
    raised."""
    settings = Settings(names=("soak",), port=0, drain_timeout=5.0)
    failed: list[BaseException] = []
    server = Server(settings, lambda progress: EngineBackend(open_engine(progress)))
    with listen(settings) as listener:
        loop = asyncio.new_event_loop()

        def run() -> None:
            try:
                loop.run_until_complete(server.run(listener))
            except BaseException as error:
                failed.append(error)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())

        thread = threading.Thread(target=run, name="soak server")
        thread.start()
        try:
            _wait(server, thread, failed)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            backend = server.service.backend
            assert isinstance(backend, EngineBackend)
            yield Serving(backend.engine, url)
        finally:
            if thread.is_alive():
                loop.call_soon_threadsafe(server.stop)
            thread.join()
            loop.close()


def _wait(server: Server, thread: threading.Thread, failed: list[BaseException]) -> None:
    end = time.monotonic() + READY_SECONDS
    while server.service.lifecycle.state is State.LOADING:
        if failed:
            raise failed[0]
        if time.monotonic() > end or not thread.is_alive():
            raise TransportError(f"the server was not ready within {READY_SECONDS:.0f} s")
        time.sleep(0.01)
