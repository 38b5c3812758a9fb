"""The server's paths."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from lora_sdk.serve import (
    adapters,
    anthropic,
    chat,
    completions,
    embeddings,
    infill,
    responses,
    status,
    tokenizing,
)
from lora_sdk.serve.body import Fields, StreamedFields
from lora_sdk.serve.errors import ApiError, ClientGone
from lora_sdk.serve.guard import Guard
from lora_sdk.serve.lifecycle import State
from lora_sdk.serve.metrics import CONTENT_TYPE
from lora_sdk.serve.openapi import Operation, docs_page, openapi
from lora_sdk.serve.receiving import read_body
from lora_sdk.serve.replies import EventStream, error_reply, json_reply
from lora_sdk.serve.service import CALLER, PREFILL, Caller, Service
from lora_sdk.serve.status import package_version

Body = TypeVar("Body", bound=Fields)
Done = TypeVar("Done")
Sampled = TypeVar("Sampled", bound=StreamedFields)
_GENERATION: tuple[tuple[str, str, Any, Any, Any], ...] = (
    ("/v1/completions", "continue texts or tokens", completions.CompletionBody,
     completions.answer, completions.stream),
    ("/v1/chat/completions", "answer the messages of a chat", chat.ChatBody, chat.answer,
     chat.stream),
    ("/v1/responses", "answer a text or items", responses.ResponseBody, responses.answer,
     responses.stream),
    ("/v1/messages", "answer messages in Anthropic's form", anthropic.MessagesBody,
     anthropic.answer, anthropic.stream),
    ("/infill", "what is between two texts, in llama.cpp's form", infill.InfillBody, infill.answer,
     infill.stream),
)  # fmt: skip
_ACTIONS: tuple[tuple[str, str, Any, Any], ...] = (
    ("/v1/messages/count_tokens", "count the tokens of messages in Anthropic's form",
     anthropic.CountBody, anthropic.count),
    ("/tokenize", "the tokens of a text or a chat", tokenizing.TokenizeBody, tokenizing.tokenize),
    ("/detokenize", "the text of tokens", tokenizing.DetokenizeBody, tokenizing.detokenize),
    ("/v1/load_lora_adapter", "load an adapter from below --adapter-root", adapters.LoadBody,
     adapters.load),
    ("/v1/unload_lora_adapter", "forget an adapter", adapters.UnloadBody, adapters.unload),
)  # fmt: skip
_EMBEDDING = Operation("/v1/embeddings", "embeddings of texts or tokens", embeddings.EmbeddingBody)
Answer = Callable[[Service, Caller, Sampled], Coroutine[Any, Any, dict[str, Any]]]
Stream = Callable[[Service, Caller, Sampled], AsyncGenerator[dict[str, Any], None]]


def make_app(service: Service) -> ASGIApp:
    """The application that serves `service`."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(ClientGone, _on_client_gone)
    app.add_exception_handler(HTTPException, _on_http_error)
    operations = [*_add_state(app, service)]
    for made, (path, summary, kind, answer, stream) in enumerate(_GENERATION):
        _add_generation(app, service, path, kind, answer, stream)
        operations.insert(made, Operation(path, summary, kind))
    _add_embeddings(app, service)
    operations.append(_EMBEDDING)
    for path, summary, kind, act in _ACTIONS:
        _add_action(app, service, path, kind, act)
        operations.append(Operation(path, summary, kind))
    if service.settings.docs:
        _add_docs(app, service, operations)
    return _for_pages(Guard(app, service), service.settings.allowed_origins)


def _for_pages(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """The same for web pages of these origins, whose browsers ask first, and without a key."""
    if not origins:
        return app
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=["*"], allow_headers=["*"],
        expose_headers=["x-request-id", PREFILL],
    )  # fmt: skip


def _add_state(app: FastAPI, service: Service) -> list[Operation]:
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

    routes: dict[str, tuple[str, Callable[..., Coroutine[Any, Any, Response]]]] = {
        "/": ("a page that shows the server while it runs", page),
        "/status": ("boards, links, queue and tokens", told),
        "/health": ("the server's state; 503 where it must be restarted", health),
        "/ready": ("200 while requests are taken", ready),
        "/version": ("the package's version", released),
        "/metrics": ("counts and times, for Prometheus", metrics),
        "/v1/models": ("the model's names and the adapters", models),
        "/v1/models/{name:path}": ("one of them", model),
    }
    for path, (_, route) in routes.items():
        for each in _paths(path):
            app.add_api_route(each, route, methods=["GET", "HEAD"])
    return [Operation(path.replace(":path", ""), summary) for path, (summary, _) in routes.items()]


def _add_docs(app: FastAPI, service: Service, operations: list[Operation]) -> None:
    """What tells of the paths."""
    told = openapi(operations, package_version(), bool(service.settings.keys))
    shown = docs_page(told)

    async def described() -> Response:
        return json_reply(told)

    async def docs() -> Response:
        return Response(shown, media_type="text/html; charset=utf-8")

    app.add_api_route("/openapi.json", described, methods=["GET", "HEAD"])
    app.add_api_route("/docs", docs, methods=["GET", "HEAD"])


def _paths(path: str) -> set[str]:
    """As it is, and without /v1, which some clients leave out."""
    return {path, path.removeprefix("/v1")}


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

    for each in _paths(path):
        app.add_api_route(each, route, methods=["POST"])


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

    for each in _paths(path):
        app.add_api_route(each, route, methods=["POST"])


def _add_embeddings(app: FastAPI, service: Service) -> None:
    """The path that neither generates nor is done at once."""

    async def route(request: Request) -> Response:
        service.lifecycle.check_ready()
        body = await read_body(request, service, embeddings.EmbeddingBody)
        work = embeddings.answer(service, request.scope[CALLER], body)
        return await _attend(service, request, work)

    for each in _paths(_EMBEDDING.path):
        app.add_api_route(each, route, methods=["POST"])


async def _attend(service: Service, request: Request, work: Coroutine[Any, Any, Done]) -> Done:
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
