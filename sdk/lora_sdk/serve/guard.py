"""Around every request: its id, the API key, one line of log, and an answer whatever fails."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time

from h11 import LocalProtocolError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lora_sdk.serve.errors import ApiError
from lora_sdk.serve.replies import error_reply
from lora_sdk.serve.service import CALLER, Caller, Service
from lora_sdk.serve.settings import digest

LOG = logging.getLogger("lora.serve")
OPEN_PATHS = ("/", "/health", "/ready")
"""Answered without a key: load balancers have none, and the page at / has no data of its own."""

POLLED = frozenset({"/status", "/metrics", "/health"})
"""Paths that pages and monitors ask every few seconds: logged at debug if answered."""
_CLIENT_GONE = 499  # as nginx logs it


class Guard:
    """An ASGI application around the server's own."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._keys = tuple(service.settings.keys)
        self._metrics = service.metrics
        self._traces = service.traces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        since, status, begun = time.monotonic(), 500, False
        caller = Caller("", secrets.token_hex(8))
        scope[CALLER] = caller

        async def noted(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                MutableHeaders(raw=message["headers"])["x-request-id"] = caller.request_id
            try:
                await send(message)
            except LocalProtocolError:  # uvicorn has refused the request's framing meanwhile
                caller.gone = True

        try:
            caller.client = self._client(scope)
            await self._app(scope, receive, noted)
        except ApiError as error:
            await error_reply(error)(scope, receive, noted)
        except Exception:  # a fault of the server's own: the client learns no details
            LOG.exception("request %s failed", caller.request_id)
            if not begun:
                internal = ApiError(500, f"internal error, request {caller.request_id}")
                await error_reply(internal)(scope, receive, noted)
        finally:
            status = _CLIENT_GONE if caller.gone else status
            self._metrics.responded(status)
            self._tell(scope, caller, status, time.monotonic() - since)

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
        kind, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        given = digest(key.strip())
        matches = [hmac.compare_digest(given, known) for known in self._keys]  # all, in equal time
        if kind.lower() != "bearer" or not any(matches):
            raise ApiError(
                401, "the API key is missing or wrong; send 'Authorization: Bearer KEY'",
                code="invalid_api_key",
            )  # fmt: skip
        return f"key {matches.index(True)}"
