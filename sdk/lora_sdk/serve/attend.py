"""Work for a client that ends when the client goes away, its time is over or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from lora_sdk.serve.errors import ApiError, ClientGone, unavailable

T = TypeVar("T")


class Attendants:
    """The work that goes on for clients; `cancel_all` ends it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def attend(self, receive: Receive, timeout: float, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled otherwise. ClientGone where the connection is
        dropped, ApiError 408 after `timeout` seconds, 503 where the server cancels it."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_gone(receive))
        self._tasks.add(task)
        try:
            await asyncio.wait({task, gone}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.cancelled():
                raise unavailable("the server is shutting down")
            if task.done():
                return task.result()
            if gone.done():
                raise ClientGone
            raise ApiError(408, f"the request did not end within {timeout:g} s", code="timeout")
        finally:
            self._tasks.discard(task)
            for each in (task, gone):
                each.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    @property
    def count(self) -> int:
        """How much work goes on."""
        return len(self._tasks)

    def cancel_all(self) -> None:
        """End all of it; its clients get 503."""
        for task in list(self._tasks):
            task.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
