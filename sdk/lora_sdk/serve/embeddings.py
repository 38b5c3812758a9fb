"""`/v1/embeddings`: OpenAI's form of embeddings, with the pooling of docs/numbers.md, 9.4."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from fastapi.responses import Response
from numpy.typing import NDArray
from pydantic import Field

from lora_host.errors import LoraError
from lora_sdk.serve.body import Fields, items
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.json_text import MAX_VALUES
from lora_sdk.serve.sampling_fields import Text
from lora_sdk.serve.service import Caller, Service
from lora_sdk.text.tokenizer import check_token_ids

MAX_INPUTS = 2048  # OpenAI's
MAX_NUMBERS = 1 << 21  # of an answer; tens of megabytes as text

Tokens = Annotated[list[int], items(0, MAX_VALUES)]
Vector = NDArray[np.float32]


class EmbeddingBody(Fields):
    """The request. `input`: a text, a list of token ids, or a list of either."""

    input: (
        str
        | Annotated[list[str], items(0, MAX_INPUTS)]
        | Tokens
        | Annotated[list[Tokens], items(0, MAX_INPUTS)]
    )
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    pooling: Literal["last", "mean"] | None = None
    normalize: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    cache_salt: Text | None = None

    @property
    def inputs(self) -> Sequence[str | list[int]]:
        """The texts, one or several."""
        given = self.input
        if isinstance(given, str):
            return [given]
        if given and isinstance(given[0], int):
            return [[token for token in given if isinstance(token, int)]]
        return [one for one in given if not isinstance(one, int)]


async def answer(service: Service, caller: Caller, body: EmbeddingBody) -> Response:
    """The whole answer. Raises ApiError."""
    adapter = service.adapter_of(body.model)
    _check(service, body)
    tokens = await _tokens(service, body)
    count = sum(map(len, tokens))
    caller.counts["prompt_tokens"] = count
    caller.give_place()
    vectors = await _vectors(service, caller, body, tokens, adapter)
    head: dict[str, object] = {
        "object": "list",
        "model": body.model or service.settings.name,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    text = await service.prepared(lambda: _written(head, vectors, body.encoding_format == "base64"))
    return Response(text, media_type="application/json")


def _check(service: Service, body: EmbeddingBody) -> None:
    if service.backend.embed is None:
        raise ApiError(
            400, "the server makes no embeddings; start it with --embeddings, without --ray",
            param="model",
        )  # fmt: skip
    width = service.engine.config.embed_dim
    if body.dimensions not in (None, width):
        raise ApiError(
            400, f"dimensions is {body.dimensions}, the model's embeddings have {width} and are "
            "not cut", param="dimensions",
        )  # fmt: skip
    most = min(MAX_INPUTS, max(1, MAX_NUMBERS // width))
    if not 1 <= len(body.inputs) <= most:
        raise ApiError(
            400, f"input: {len(body.inputs)} inputs; expected 1 to {most}", param="input"
        )


async def _tokens(service: Service, body: EmbeddingBody) -> list[list[int]]:
    engine, keep = service.engine, body.truncate_prompt_tokens
    keep = engine.context if keep == -1 else keep

    def tokens(text: str | list[int]) -> list[int]:
        if isinstance(text, str):
            found = service.tokens(text, body.add_special_tokens, "input", keep is not None)
        else:
            found = check_token_ids(text, engine.config.vocabulary)
        found = service.truncated(found, keep, None)
        service.check_length(len(found), ("max_tokens", None), "input")
        return found

    try:
        return await service.prepared(lambda: [tokens(one) for one in body.inputs])
    except LoraError as error:
        raise from_engine(error, "input") from None


async def _vectors(
    service: Service,
    caller: Caller,
    body: EmbeddingBody,
    tokens: Sequence[Sequence[int]],
    adapter: str | None,
) -> list[Vector]:
    """In the order of the inputs, as many at once as run at once: each has its turn in the queue
    like a prompt of its own. The first that fails ends the others."""
    embed, pooling = service.backend.embed, body.pooling or service.settings.pooling
    assert embed is not None  # checked
    salt = f"{caller.client} {body.cache_salt}" if service.settings.keys else body.cache_salt
    found: dict[int, Vector] = {}
    left = iter(enumerate(tokens))

    async def work() -> None:
        for index, one in left:
            async with service.gate.place(caller.client):
                service.metrics.taken(len(one))
                try:
                    found[index] = await embed(one, pooling, body.normalize, adapter, salt)
                except LoraError as error:
                    raise service.failed(error) from error

    tasks = [asyncio.ensure_future(work()) for _ in range(min(len(tokens), service.gate.capacity))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [found[index] for index in range(len(tokens))]


def _written(head: dict[str, object], vectors: Sequence[Vector], packed: bool) -> bytes:
    """The answer's JSON, a vector at a time, so that other threads run meanwhile."""
    begin = json.dumps(head, ensure_ascii=False)[:-1]
    return f'{begin}, "data": [{", ".join(_entries(vectors, packed))}]}}'.encode()


def _entries(vectors: Sequence[Vector], packed: bool) -> Iterator[str]:
    """`packed`: base64 of little-endian FP32; else numbers that are these values exactly."""
    for index, vector in enumerate(vectors):
        value: object = vector.tolist()
        if packed:
            value = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        yield json.dumps({"object": "embedding", "index": index, "embedding": value})
