"""The server's paths."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from lora_sdk.serve import adapters, anthropic, chat, completions, responses, status, tokenizing
from lora_sdk.serve.body import Fields, StreamedFields
from lora_sdk.serve.errors import ApiError, ClientGone
from lora_sdk.serve.guard import Guard
from lora_sdk.serve.lifecycle import State
from lora_sdk.serve.metrics import CONTENT_TYPE
from lora_sdk.serve.receiving import read_body
from lora_sdk.serve.replies import EventStream, error_reply, json_reply
from lora_sdk.serve.service import CALLER, Caller, Service
from lora_sdk.serve.status import package_version

Body = TypeVar("Body", bound=Fields)
Sampled = TypeVar("Sampled", bound=StreamedFields)
Answer = Callable[[Service, Caller, Sampled], Coroutine[Any, Any, dict[str, Any]]]
Stream = Callable[[Service, Caller, Sampled], AsyncGenerator[dict[str, Any], None]]


def make_app(service: Service) -> ASGIApp:
    """The application that serves `service`."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(HTTPException, _on_http_error)
    _add_state(app, service)
    _add_generation(
        app, service, "/v1/completions", completions.CompletionBody, completions.answer,
        completions.stream,
    )  # fmt: skip
    _add_generation(app, service, "/v1/chat/completions", chat.ChatBody, chat.answer, chat.stream)
    _add_generation(
        app, service, "/v1/responses", responses.ResponseBody, responses.answer, responses.stream
    )
    _add_generation(
        app, service, "/v1/messages", anthropic.MessagesBody, anthropic.answer, anthropic.stream
    )
    _add_action(app, service, "/v1/messages/count_tokens", anthropic.CountBody, anthropic.count)
    _add_action(app, service, "/tokenize", tokenizing.TokenizeBody, tokenizing.tokenize)
    _add_action(app, service, "/detokenize", tokenizing.DetokenizeBody, tokenizing.detokenize)
    _add_action(app, service, "/v1/load_lora_adapter", adapters.LoadBody, adapters.load)
    _add_action(app, service, "/v1/unload_lora_adapter", adapters.UnloadBody, adapters.unload)
    return _for_pages(Guard(app, service), service.settings.allowed_origins)


def _for_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The same for web pages of these origins, whose browsers ask first, and without a key."""
    if not origins:
        return app
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=["x-request-id"],
    )  # fmt: skip


def _add_state(app: FastAPI, service: Service) -> None:
    """What tells of the server itself."""
    lifecycle = service.lifecycle

    async def health() -> Response:
        """200 as long as a restart would not help."""
        told = {**lifecycle.as_dict(), "weight_notices": service.weight_notices.count}
        return json_reply(told, 503 if lifecycle.state is State.DEAD else 200)

    async def ready() -> Response:
        """200 while requests are taken."""
        return json_reply(lifecycle.as_dict(), 200 if lifecycle.state is State.READY else 503)

    async def released() -> Response:
        return json_reply({"version": package_version()})

    async def page() -> Response:
        return status.page()

    async def told() -> Response:
        return json_reply(await status.status(service))

    async def metrics() -> Response:
        if lifecycle.state is State.READY:
            await service.metrics.boards.refresh(service.backend.read)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    async def models() -> Response:
        return json_reply({"object": "list", "data": service.models()})

    async def model(name: str) -> Response:
        service.adapter_of(name)
        return json_reply(next(one for one in service.models() if one["id"] == name))

    routes: dict[str, Callable[..., Coroutine[Any, Any, Response]]] = {
        "/": page, "/status": told, "/health": health, "/ready": ready, "/version": released,
        "/metrics": metrics, "/v1/models": models, "/v1/models/{name:path}": model,
    }  # fmt: skip
    for path, route in routes.items():
        app.add_api_route(path, route, methods=["GET", "HEAD"])


def _add_generation(
    app: FastAPI,
    service: Service,
    path: str,
    kind: type[Sampled],
    answer: Answer[Sampled],
    stream: Stream[Sampled],
) -> None:
    """A path that generates, whole or streamed."""
    settings = service.settings

    async def route(request: Request) -> Response:
        service.lifecycle.check_ready()
        body = await read_body(request, service, kind)
        caller: Caller = request.scope[CALLER]
        if body.stream:
            chunks = stream(service, caller, body)
            return EventStream(chunks, service.attendants, settings.request_timeout)
        work = answer(service, caller, body)
        return json_reply(await _attend(service, request, work))

    app.add_api_route(path, route, methods=["POST"])


def _add_action(
    app: FastAPI,
    service: Service,
    path: str,
    kind: type[Body],
    act: Callable[[Service, Body], Coroutine[Any, Any, dict[str, Any]]],
) -> None:
    """A path that does something at once."""

    async def route(request: Request) -> Response:
        service.lifecycle.check_ready()
        body = await read_body(request, service, kind)
        return json_reply(await _attend(service, request, act(service, body)))

    app.add_api_route(path, route, methods=["POST"])


async def _attend(
    service: Service, request: Request, work: Coroutine[Any, Any, dict[str, Any]]
) -> dict[str, Any]:
    return await service.attendants.attend(request.receive, service.settings.request_timeout, work)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_reply(error, request.scope["path"])


async def _on_client_gone(request: Request, _error: Exception) -> Response:
    request.scope[CALLER].gone = True
    return Response()  # which nobody receives


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in the protocol's form."""
    assert isinstance(error, HTTPException)
    reply = error_reply(
        ApiError(error.status_code, str(error.detail).lower()), request.scope["path"]
    )
    reply.headers.update(error.headers or {})
    return reply
