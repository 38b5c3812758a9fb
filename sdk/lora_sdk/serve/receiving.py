"""A request's body: bounded in bytes, in time and in how many are held at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from lora_sdk.serve.body import Fields, parse
from lora_sdk.serve.errors import ApiError, ClientGone
from lora_sdk.serve.json_text import read_json
from lora_sdk.serve.service import CALLER, LARGE_BODY_OF, Caller, Service
from lora_sdk.serve.settings import Settings

Body = TypeVar("Body", bound=Fields)

_SMALL = 64 << 10  # bytes of a body that is parsed at once; others wait for their turn


async def read_body(request: Request, service: Service, kind: type[Body]) -> Body:
    """The request's body as `kind`. ApiError 400, 408, 413 or 415; ClientGone. Few large bodies are
    held at once until they are in the queue of prompts or answered, by turns between clients, and
    one is parsed at a time, beside the event loop."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json":  # which a foreign web page cannot send without being asked
        raise ApiError(
            415,
            f"content type {media or None!r:.80} found, application/json expected: with curl add "
            "-H 'Content-Type: application/json'",
        )
    settings, raw, chunks = service.settings, bytearray(), request.stream()
    try:
        if not await _receive(chunks, raw, _SMALL, settings):
            return parse(kind, read_json(raw), settings.strict)
        caller: Caller = request.scope[CALLER]
        LARGE_BODY_OF.set(caller.client)
        (caller.place,) = service.large_bodies.enter(caller.client, [1])
        await caller.place.wait()
        await _receive(chunks, raw, settings.max_body, settings)
        return await service.aside(lambda: parse(kind, read_json(raw), settings.strict))
    except ClientDisconnect:
        raise ClientGone from None


async def _receive(
    chunks: AsyncIterator[bytes], raw: bytearray, limit: int, settings: Settings
) -> bool:
    """Whether there is more than `limit` bytes; what has come is in `raw`. ApiError 408, and 413
    where the body may not have so many."""

    async def read() -> bool:
        while len(raw) <= limit:
            chunk = await anext(chunks, None)
            if chunk is None:
                return False
            raw.extend(chunk)
            if len(raw) > settings.max_body:
                raise ApiError(413, f"the body has more than {settings.max_body} bytes")
        return True

    try:
        return await asyncio.wait_for(read(), settings.body_timeout)
    except asyncio.TimeoutError:
        raise ApiError(408, f"the body did not arrive within {settings.body_timeout:g} s") from None
