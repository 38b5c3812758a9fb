"""Requests of asyncio programs: a thread runs the steps, the event loop hears of the pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from lora_sdk.generator import Generator
from lora_sdk.requests import Request
from lora_sdk.results import Piece, Result


async def pieces(generator: Generator, request: Request) -> AsyncIterator[Piece]:
    """Pieces of a request as they come; leaving early cancels it."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Piece | None] = asyncio.Queue()
    request.on_piece = _relay(loop, queue)
    request.on_end = _relay(loop, queue, None)
    generator.submit(request)
    generator.run_in_background()
    try:
        while (piece := await queue.get()) is not None:
            yield piece
        request.result()  # raises what it ended with
    finally:
        request.cancel()


async def collect(generator: Generator, request: Request) -> Result:
    """The finished request."""
    async for _ in pieces(generator, request):
        pass
    return request.result()


def _relay(
    loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Piece | None], *fixed: None
) -> Callable[..., None]:
    """A listener that may be called from any thread; silent once the event loop is closed."""

    def put(*given: Piece) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, *(fixed or given))

    return put
