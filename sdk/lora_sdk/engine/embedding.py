"""Embeddings of prompts: final hidden states, pooled (docs/numbers.md, 9.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lora_host.errors import RequestError
from lora_sdk.arguments.option import ArgumentError
from lora_sdk.engine.requests import Pool, Request, Vector
from lora_sdk.engine.submission import Prompt, prompts_of
from lora_sdk.sampling import SamplingParams

if TYPE_CHECKING:
    from lora_sdk.engine.generator import Generator
    from lora_sdk.engine.submission import RequestMaker
    from lora_sdk.plan.model_plan import Plan

POOLINGS = ("last", "mean")


class EmbeddingApi:
    """Embeddings from one engine."""

    def __init__(self, generator: Generator, maker: RequestMaker, plan: Plan) -> None:
        self._generator = generator
        self._maker = maker
        self._plan = plan

    def embed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling: str = "last",
        normalize: bool = True,
        adapter: str | None = None,
        cache_salt: str | None = None,
    ) -> Vector:
        """Embeddings of texts or token ids: float32 [d] of one prompt, [n, d] of several.

        The hidden states are those that lm_head reads, of the last token or, with `pooling`
        "mean", of all tokens, those that the tokenizer adds among them. `normalize`: to length 1.
        `adapter`: the one to compute with. RequestError: a bad argument, a prompt that is empty or
        longer than the context, or an engine that was not opened with `embeddings`.
        """
        requests, single = self._requests(prompts, pooling, normalize, adapter, cache_salt)
        self._generator.run(requests)
        return _vectors(requests, single)

    async def aembed(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling: str = "last",
        normalize: bool = True,
        adapter: str | None = None,
        cache_salt: str | None = None,
    ) -> Vector:
        """`embed` for asyncio; cancelling the task cancels the requests."""
        from lora_sdk.engine.background import collect

        requests, single = self._requests(prompts, pooling, normalize, adapter, cache_salt)
        await collect(self._generator, requests)
        return _vectors(requests, single)

    def _requests(
        self,
        prompts: Prompt | Sequence[Prompt],
        pooling: str,
        normalize: bool,
        adapter: str | None,
        cache_salt: str | None,
    ) -> tuple[list[Request], bool]:
        """A request for each prompt, and whether a single one was given."""
        if not self._plan.final_states:
            raise RequestError(
                "the boards return no final hidden states; open the engine with embeddings=True"
            )
        if pooling not in POOLINGS:
            raise ArgumentError("pooling", pooling, " or ".join(map(repr, POOLINGS)))
        if not isinstance(normalize, bool):
            raise ArgumentError("normalize", normalize, "True or False")
        several, single = prompts_of(prompts)
        params = SamplingParams(max_tokens=1, adapter=adapter, cache_salt=cache_salt)
        requests = []
        for index, prompt in enumerate(several):
            request = self._maker.request(prompt, params, index=None if single else index)
            request.pool = Pool(pooling, len(request.tokens), normalize)
            requests.append(request)
        return requests, single


def _vectors(requests: Sequence[Request], single: bool) -> Vector:
    """What the ended requests hold. Raises the first error."""
    found = []
    for request in requests:
        request.result()
        assert request.pool is not None
        found.append(request.pool.vector())
    return found[0] if single else np.stack(found)
