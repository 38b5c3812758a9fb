"""Answers on the wire: JSON, errors, and server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from lora_sdk.serve.attend import Attendants
from lora_sdk.serve.errors import ApiError, ClientGone, is_anthropic
from lora_sdk.serve.service import CALLER

_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies hand events on as they come
]
_LAST_WORDS = 1.0  # seconds


def json_reply(value: object, status: int = 200) -> Response:
    """`value` as JSON."""
    return Response(_dump(value), status, media_type="application/json")


def error_reply(error: ApiError, path: str) -> Response:
    """An error in the form of a path's protocol."""
    reply = json_reply(error.body(path), error.status)
    reply.headers.update(error.headers())
    return reply


class EventStream(Response):
    """Chunks as server-sent events, then `[DONE]`, which Anthropic's form and
    llama.cpp's have not. An error before
    the first chunk is an answer of its own; one after it is the last event."""

    def __init__(
        self,
        chunks: AsyncGenerator[dict[str, Any], None],
        attendants: Attendants,
        timeout: float,
    ) -> None:
        super().__init__()
        self._chunks = chunks
        self._attendants = attendants
        self._timeout = timeout
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        unmarked = is_anthropic(path) or path == "/infill"
        last = b"" if unmarked else b"[DONE]"
        try:
            await self._attendants.attend(receive, self._timeout, self._write(send, last))
        except ClientGone:
            scope[CALLER].gone = True
        except ApiError as error:
            if not self._begun:
                self.status_code = error.status
                await error_reply(error, path)(scope, receive, send)
                return
            with suppress(asyncio.TimeoutError):  # a client that reads nothing gets nothing more
                name = "error" if is_anthropic(path) else None
                words = self._end(send, _dump(error.body(path)), name)
                await asyncio.wait_for(words, _LAST_WORDS)

    async def _write(self, send: Send, last: bytes) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                if not self._begun:
                    self._begun = True
                    await send(
                        {"type": "http.response.start", "status": 200, "headers": [*_EVENT_HEADERS]}
                    )
                await _event(send, _dump(chunk), chunk.get("type"))
        await self._end(send, last)

    @staticmethod
    async def _end(send: Send, data: bytes, name: str | None = None) -> None:
        if data:
            await _event(send, data, name)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _event(send: Send, data: bytes, name: str | None = None) -> None:
    """One event; those of /v1/responses and /v1/messages have a name."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    body = head + b"data: " + data + b"\n\n"
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
