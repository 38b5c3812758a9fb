"""Requests of asyncio programs: a thread runs the steps, the event loop receives the deltas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from lora_sdk.engine.generator import Generator
from lora_sdk.engine.requests import Request
from lora_sdk.step.results import Delta, Result


async def deltas(
    generator: Generator,
    request: Request,
    on_result: Callable[[Result], object] | None = None,
) -> AsyncGenerator[Delta, None]:
    """Deltas of a request as they arrive, then its result for `on_result`. Closing the generator
    early cancels the request."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Delta | None] = asyncio.Queue()
    request.on_delta = relay(loop, queue)
    request.on_end = relay(loop, queue, None)
    generator.adopt(request)
    try:
        while (delta := await queue.get()) is not None:
            yield delta
        result = request.result()  # raises the request's error
        if on_result is not None:
            on_result(result)
    finally:
        request.cancel()


async def collect(generator: Generator, requests: Sequence[Request]) -> list[Result]:
    """The finished requests, which run at once. Leaving early cancels all."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Queue[None] = asyncio.Queue()
    try:
        for request in requests:
            request.on_end = relay(loop, ended, None)
            generator.adopt(request)
        for _ in requests:
            await ended.get()
        return [request.result() for request in requests]
    finally:
        for request in requests:
            request.cancel()


def relay(
    loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Any], *fixed: None
) -> Callable[..., None]:
    """A thread-safe callback that puts `fixed`, or what it is given, into the queue. It does
    nothing once the event loop is closed."""

    def put(*given: Delta) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, *(fixed or given))

    return put
