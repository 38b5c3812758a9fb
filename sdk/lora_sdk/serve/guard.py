"""Around every request: its id, the API key, one line of log, and an answer whatever fails."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.replies import error_reply
from lora_sdk.serve.service import CALLER, PREFILL, Caller, Service
from lora_sdk.serve.settings import digest

LOG = logging.getLogger("lora.serve")
OPEN_PATHS = ("/", "/health", "/ready", "/docs", "/openapi.json")
"""Answered without a key: load balancers have none, and pages have no data of their own."""

POLLED = frozenset({"/status", "/metrics", "/health"})
"""Paths that pages and monitors ask every few seconds: logged at debug if answered."""
_CLIENT_GONE = 499  # as nginx logs it
_DISCARDED = 16  # times max_body that are read and dropped, so that the client sees the answer
_DISCARD_SECONDS = 1.0


class Guard:
    """An ASGI application around the server's own."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._discarded = _DISCARDED * service.settings.max_body
        self._keys = tuple(service.settings.keys)
        self._root = service.settings.root_path
        self._metrics = service.metrics
        self._traces = service.traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = self._below_root(scope)
        since, status, begun = time.monotonic(), 500, False
        caller = Caller("", secrets.token_hex(8))
        scope[CALLER] = caller

        body = _Body(scope, receive)

        async def noted(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                headers = MutableHeaders(raw=message["headers"])
                headers["x-request-id"] = caller.request_id
                if "prefill" in caller.counts:
                    headers[PREFILL] = str(caller.counts["prefill"])
            elif not message.get("more_body") and not body.read and status != 408:
                await send({**message, "more_body": True})
                await body.discard(self._discarded)
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        try:
            if body.ambiguous:
                raise ApiError(400, "Content-Length and Transfer-Encoding exclude each other")
            caller.client = self._client(scope)
            await self._app(scope, body.receive, noted)
        except ApiError as error:
            reply = error_reply(error, scope["path"])
            if body.ambiguous:
                reply.headers["connection"] = "close"
            await reply(scope, receive, noted)
        except Exception:  # a fault of the server's own: the client learns no details
            LOG.exception("request %s failed", caller.request_id)
            if not begun:
                internal = ApiError(500, f"internal error, request {caller.request_id}")
                await error_reply(internal, scope["path"])(scope, receive, noted)
        finally:
            caller.give_place()
            status = _CLIENT_GONE if caller.gone else status
            self._metrics.responded(status)
            self._tell(scope, caller, status, time.monotonic() - since)

    def _below_root(self, scope: Scope) -> Scope:
        """The request with its path as the application knows it."""
        path: str = scope["path"]
        if self._root and path.startswith(f"{self._root}/"):
            return {**scope, "path": path[len(self._root) :]}
        return scope

    def _tell(self, scope: Scope, caller: Caller, status: int, seconds: float) -> None:
        """Log a request that ends now, and trace it."""
        line = {
            "request": caller.request_id,
            "client": caller.client,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "seconds": round(seconds, 4),
            **caller.counts,
        }
        polled = scope["path"] in POLLED and status < 400
        LOG.log(logging.DEBUG if polled else logging.INFO, json.dumps(line))
        if self._traces is not None:
            self._traces.record(Headers(scope=scope), line, seconds)

    def _client(self, scope: Scope) -> str:
        """The name of who asks, by key or by address; ApiError 401 for a wrong key."""
        if not self._keys:
            return str((scope.get("client") or ("",))[0])
        if scope["path"] in OPEN_PATHS:
            return ""
        headers = Headers(scope=scope)
        kind, _, key = headers.get("authorization", "").partition(" ")
        if "x-api-key" in headers:  # Anthropic's
            kind, key = "bearer", headers["x-api-key"]
        given = digest(key.strip())
        matches = [hmac.compare_digest(given, known) for known in self._keys]  # all, in equal time
        if kind.lower() != "bearer" or not any(matches):
            raise ApiError(
                401, "the API key is missing or wrong; send 'Authorization: Bearer KEY'",
                code="invalid_api_key",
            )  # fmt: skip
        return f"key {matches.index(True)}"


class _Body:
    """A request's body on its way to the application, and what is left of it. `ambiguous`: it has
    two lengths, and a proxy may have believed the other one."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = Headers(scope=scope)
        length, coded = headers.get("content-length"), "transfer-encoding" in headers
        self.ambiguous = coded and (length is not None or scope["http_version"] == "1.0")
        self.read = self.ambiguous or not (coded or (length or "0").strip("0"))
        self._receive = receive

    async def receive(self) -> Message:
        """The next part."""
        message = await self._receive()
        self.read |= not message.get("more_body", False)
        return message

    async def discard(self, most: int) -> None:
        """Read the rest, so that the client comes to the answer; but not for long."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._discard(most), _DISCARD_SECONDS)

    async def _discard(self, most: int) -> None:
        while not self.read and most > 0:
            most -= len((await self.receive()).get("body", b""))
