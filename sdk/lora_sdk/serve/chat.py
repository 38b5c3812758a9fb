"""`/v1/chat/completions`: messages through the model's chat template, and the answer to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_host.errors import LoraError, ModelError
from lora_sdk.core.results import Delta, Output
from lora_sdk.engine.engine import Engine
from lora_sdk.serve.answers import Heading, Usage, finish_reason
from lora_sdk.serve.body import Fields
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.generation import Job, run_all, stream_all
from lora_sdk.serve.logprobs import TokenNames
from lora_sdk.serve.sampling_fields import MAX_LOGPROBS, SamplingFields
from lora_sdk.serve.service import Caller, Service
from lora_sdk.text.chat import find_template, render


class TextPart(Fields):
    """A part of a message's content; texts alone are supported."""

    type: Literal["text"]
    text: str


class ChatMessage(Fields):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    def as_template(self) -> dict[str, str]:
        """As chat templates know messages: content is one text, and instructions are "system"."""
        content = self.content
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": content, **named}


class ChatBody(SamplingFields):
    """The request."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    add_generation_prompt: bool = True

    def check(self) -> None:
        super().check()
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs", param="top_logprobs")


@dataclass(frozen=True)
class _Prepared:
    body: ChatBody
    heading: Heading
    job: Job
    names: TokenNames


async def answer(service: Service, caller: Caller, body: ChatBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    prepared = await _prepare(service, body, "chat.completion")
    (result,) = await run_all(service, caller, [prepared.job])
    more: dict[str, Any] = {}
    if body.prompt_logprobs is not None:
        more["prompt_logprobs"] = prepared.names.prompt(result.prompt_logprobs or ())
    return prepared.heading.answer(
        [_choice(prepared, output) for output in result.outputs],
        usage=Usage(result.prompt_tokens, result.completion_tokens).as_dict(),
        **more,
    )


async def stream(
    service: Service, caller: Caller, body: ChatBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's chunks. Raises ApiError."""
    prepared = await _prepare(service, body, "chat.completion.chunk")
    options, usage = body.stream_options, Usage(len(prepared.job.tokens))
    more: dict[str, Any] = {}
    if options is not None and options.include_usage:
        more["usage"] = None
    begun: set[int] = set()
    async with aclosing(stream_all(service, caller, [prepared.job])) as deltas:
        async for _, delta in deltas:
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            if delta.index not in begun:
                begun.add(delta.index)
                first = {"role": "assistant", "content": ""}
                yield prepared.heading.answer([_chunk_choice(delta.index, first)], **more)
            usage.completion += delta.token_id is not None
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            choice = _delta_choice(prepared, delta)
            if delta.text or choice["logprobs"] or delta.finish_reason:
                yield prepared.heading.answer([choice], **more)
    if options is not None and options.include_usage:
        yield prepared.heading.answer([], usage=usage.as_dict())


def chat_tokens(
    engine: Engine, messages: list[ChatMessage], add_generation_prompt: bool = True
) -> list[int]:
    """The prompt that the model's template makes of the messages. ApiError 400 where the model has
    no template or it refuses them."""
    try:
        template = find_template(engine.model_path, engine.tokenizer)
    except ModelError:
        raise ApiError(
            400, "the model has no chat template; use /v1/completions", param="messages"
        ) from None
    try:
        text = render(
            template,
            [message.as_template() for message in messages],
            engine.tokenizer,
            add_generation_prompt,
        )
        return engine.tokenizer.encode(text, special=False)  # the template wrote BOS itself
    except LoraError as error:
        raise from_engine(error) from None


async def _prepare(service: Service, body: ChatBody, kind: str) -> _Prepared:
    body.check()
    engine = service.engine
    limit = body.max_completion_tokens
    params = body.params(
        adapter=service.adapter_of(body.model),
        allowed_tokens=await service.constraint(body, body.n),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        max_tokens=body.max_tokens if limit is None else limit,
    )
    tokens = await asyncio.to_thread(chat_tokens, engine, body.messages, body.add_generation_prompt)
    service.check_length(len(tokens))
    return _Prepared(
        body,
        Heading("chatcmpl", kind, body.model or service.settings.name),
        Job(tokens, params),
        TokenNames(engine.tokenizer, body.return_tokens_as_token_ids),
    )


def _choice(prepared: _Prepared, output: Output) -> dict[str, Any]:
    logprobs = None if output.logprobs is None else prepared.names.chat(output.logprobs)
    return {
        "index": output.index,
        "message": {"role": "assistant", "content": output.text, "refusal": None},
        "logprobs": logprobs,
        "finish_reason": finish_reason(output.finish_reason),
        "stop_reason": output.stop_reason,
    }


def _delta_choice(prepared: _Prepared, delta: Delta) -> dict[str, Any]:
    choice = _chunk_choice(delta.index, {"content": delta.text} if delta.text else {})
    if delta.logprobs is not None:
        choice["logprobs"] = prepared.names.chat([delta.logprobs])
    choice["finish_reason"] = finish_reason(delta.finish_reason)
    if delta.finish_reason is not None:
        choice["stop_reason"] = delta.stop_reason
    return choice


def _chunk_choice(index: int, delta: dict[str, str]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
