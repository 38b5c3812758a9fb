"""A proxy in two stages: a vLLM server computes prompts, boards under `lora serve` go on from them.

    python examples/serve/vllm_proxy.py --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200

Each request gets a name, goes to vLLM for one token and to the boards at the same time: they take K
and V while vLLM computes. docs/vllm_prefill.md; needs fastapi, httpx and uvicorn, as vLLM does."""

import argparse
import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse


def make_app(prefill: str, decode: str) -> FastAPI:
    """`prefill`, `decode`: where vLLM and the boards listen."""
    client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None))

    @asynccontextmanager
    async def closing(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()

    app = FastAPI(lifespan=closing)

    async def ask_vllm(path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        """If this fails the boards compute the prompt: vLLM's socket tells them."""
        with suppress(httpx.HTTPError):
            await client.post(prefill + path, json=body, headers=headers)

    @app.post("/v1/completions")
    @app.post("/v1/chat/completions")
    async def pass_on(request: Request) -> Response:
        body, path = await request.json(), request.url.path
        headers = {k: v for k, v in request.headers.items() if k == "authorization"}
        name = uuid.uuid4().hex
        first = {key: value for key, value in body.items() if key not in DECODING}
        first |= {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "id": name}}
        body["kv_transfer_params"] = {"do_remote_prefill": True, "id": name}
        async with AsyncExitStack() as stack:
            computing = asyncio.create_task(ask_vllm(path, first, headers))
            stack.callback(computing.cancel)
            asked = client.stream("POST", decode + path, json=body, headers=headers)
            answer = await or_gone(request, stack.enter_async_context(asked))
            rest = stack.pop_all()

        async def chunks() -> AsyncIterator[bytes]:
            async with rest:  # a client that goes away ends both requests
                async for chunk in answer.aiter_raw():
                    yield chunk

        passed = {k: v for k, v in answer.headers.items() if k in PASSED_BACK}
        return StreamingResponse(chunks(), answer.status_code, passed)

    return app


PASSED_BACK = ("content-type", "x-request-id", "x-lora-prefill")
DECODING = ("stream", "stream_options", "max_completion_tokens", "min_tokens", "n", "best_of")


async def or_gone(request: Request, answer: Any) -> httpx.Response:
    """The head of the boards' answer, unless the client goes away before."""
    task = asyncio.ensure_future(answer)
    while not (await asyncio.wait([task], timeout=0.1))[0]:
        if await request.is_disconnected():
            task.cancel()
    return await task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prefill", required=True, help="vLLM, e.g. http://127.0.0.1:8100")
    parser.add_argument("--decode", required=True, help="lora serve, e.g. http://127.0.0.1:8200")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    uvicorn.run(make_app(args.prefill, args.decode), host=args.host, port=args.port)


if __name__ == "__main__":
    main()
