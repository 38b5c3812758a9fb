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
from lora_sdk.sampling import SamplingParams
from lora_sdk.serve.answers import Heading, Usage, finish_reason
from lora_sdk.serve.backend import ServedEngine
from lora_sdk.serve.body import Fields
from lora_sdk.serve.errors import ApiError, from_engine, renamed
from lora_sdk.serve.generation import Job, run_all, stream_all
from lora_sdk.serve.grammar_fields import schema_grammar
from lora_sdk.serve.logprobs import TokenNames
from lora_sdk.serve.sampling_fields import MAX_LOGPROBS, SamplingFields
from lora_sdk.serve.service import Caller, Service
from lora_sdk.serve.tool_calls import ToolCall, ToolFormat, ToolText, forced_format, format_of
from lora_sdk.serve.tool_fields import CalledTool, NamedTool, Tool, forced_schema
from lora_sdk.text.chat import find_template, render


class TextPart(Fields):
    """A part of a message's content; texts alone are supported."""

    type: Literal["text"]
    text: str


class RefusalPart(Fields):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """Its text, as other parts have it."""
        return self.refusal


Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]


class ChatMessage(Fields):
    """One message, also as this server's and other answers have it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None

    def as_template(self) -> dict[str, Any]:
        """As chat templates know messages: content is one text, instructions are "system", and the
        arguments of calls are objects. An assistant may have said nothing; ApiError 400 where
        another's message has no content."""
        if self.content is None and self.role != "assistant":
            raise ApiError(400, "messages: a message has no content", param="messages")
        content = self.content or self.refusal or ""
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        more: dict[str, Any] = {} if self.name is None else {"name": self.name}
        if self.tool_call_id is not None:
            more["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            more["tool_calls"] = [call.as_template() for call in self.tool_calls]
        return {"role": role, "content": content, **more}


class ChatBody(SamplingFields):
    """The request."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    tools: Annotated[list[Tool], Field(max_length=128)] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True

    @property
    def offers_tools(self) -> bool:
        """Whether the model may call a tool."""
        return bool(self.tools) and self.tool_choice != "none"

    def grammar(self) -> tuple[str, str] | None:
        forced = forced_schema(self.tools, self.tool_choice, self.parallel_tool_calls)
        if forced is None:
            return super().grammar()
        try:
            return "tools", schema_grammar(forced)
        except ValueError as error:
            raise ApiError(400, f"tools: {error!s:.300}", param="tools") from None

    def params(self, **more: Any) -> SamplingParams:
        try:
            return super().params(**more)
        except ApiError as error:
            if self.max_completion_tokens is None:
                raise
            raise renamed(error, {"max_tokens": "max_completion_tokens"}) from None

    def check(self) -> None:
        super().check()
        forced = self.tool_choice not in ("none", "auto")
        if forced and not self.tools:
            raise ApiError(400, "tool_choice needs tools", param="tool_choice")
        if forced and super().grammar() is not None:
            raise ApiError(400, "tool_choice and a grammar exclude each other", param="tool_choice")
        if self.top_logprobs and not self.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs", param="top_logprobs")


@dataclass(frozen=True)
class _Prepared:
    body: ChatBody
    heading: Heading
    job: Job
    names: TokenNames
    format: ToolFormat | None

    def tool_text(self) -> ToolText:
        """For one sample's text."""
        return ToolText(self.format, single=not self.body.parallel_tool_calls)


async def answer(service: Service, caller: Caller, body: ChatBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    prepared = await _prepare(service, body, "chat.completion")
    (result,) = await run_all(service, caller, [prepared.job])
    more: dict[str, Any] = {}
    if body.prompt_logprobs is not None:
        more["prompt_logprobs"] = prepared.names.prompt(result.prompt_logprobs or ())
    if body.return_token_ids:
        more["prompt_token_ids"] = list(result.prompt_token_ids)
    return prepared.heading.answer(
        [_choice(prepared, output) for output in result.outputs],
        usage=Usage(result.prompt_tokens, result.completion_tokens, result.cached_tokens).as_dict(),
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
    texts: dict[int, ToolText] = {}
    async with aclosing(stream_all(service, caller, [prepared.job], usage)) as deltas:
        async for _, delta in deltas:
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            if delta.index not in texts:
                texts[delta.index] = prepared.tool_text()
                first = {"role": "assistant", "content": ""}
                prompt = {"prompt_token_ids": prepared.job.tokens} if body.return_token_ids else {}
                yield prepared.heading.answer([_chunk_choice(delta.index, first)], **more, **prompt)
            usage.completion += delta.token_id is not None
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            choice = _delta_choice(prepared, delta, texts[delta.index])
            told = choice["delta"] or choice["logprobs"] or body.return_token_ids
            if told or delta.finish_reason:
                yield prepared.heading.answer([choice], **more)
    if options is not None and options.include_usage:
        yield prepared.heading.answer([], usage=usage.as_dict())


def chat_tokens(
    engine: ServedEngine,
    messages: list[ChatMessage],
    add_generation_prompt: bool = True,
    tools: list[Tool] | None = None,
    special: bool = False,
) -> list[int]:
    """The prompt that the model's template makes of the messages; with `special` also the special
    tokens that the tokenizer adds, which most templates write themselves. ApiError 400 where the
    model has no template or it refuses them."""
    try:
        text = render(
            _template(engine),
            [message.as_template() for message in messages],
            engine.tokenizer,
            add_generation_prompt,
            [tool.as_template() for tool in tools] if tools else None,
        )
        return engine.tokenizer.encode(text, special=special)
    except LoraError as error:
        raise from_engine(error) from None


def _template(engine: ServedEngine) -> str:
    try:
        return find_template(engine.model_path, engine.tokenizer)
    except ModelError:
        raise ApiError(
            400, "the model has no chat template; use /v1/completions", param="messages"
        ) from None


def _format(engine: ServedEngine, body: ChatBody) -> ToolFormat | None:
    """How calls are found in the text, None where no tools are offered. ApiError 400."""
    if not body.offers_tools:
        return None
    if isinstance(body.tool_choice, NamedTool):
        return forced_format(body.tool_choice.function.name)
    if body.tool_choice == "required":
        return forced_format(None)
    found = format_of(_template(engine))
    if found is None:
        raise ApiError(400, "the model's chat template knows no tools", param="tools")
    return found


async def _prepare(service: Service, body: ChatBody, kind: str) -> _Prepared:
    body.check()
    engine = service.engine
    limit = body.max_completion_tokens
    form = _format(engine, body)
    shown = {} if form is None else {"skip_special_tokens": False}  # calls begin with them
    params = body.params(
        **shown,
        adapter=service.adapter_of(body.model),
        allowed_tokens=await service.constraint(body, body.sequences),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        max_tokens=body.max_tokens if limit is None else limit,
    )
    tokens = await asyncio.to_thread(
        chat_tokens,
        engine,
        body.messages,
        body.add_generation_prompt,
        body.tools if body.offers_tools else None,
        body.add_special_tokens,
    )
    wanted = body.wanted if limit is None else ("max_completion_tokens", limit)
    tokens = service.truncated(tokens, body.truncate_prompt_tokens, wanted[1])
    service.check_length(len(tokens), wanted, "messages")
    return _Prepared(
        body,
        Heading("chatcmpl", kind, body.model or service.settings.name),
        Job(tokens, params),
        TokenNames(engine.tokenizer, body.return_tokens_as_token_ids),
        form,
    )


def _choice(prepared: _Prepared, output: Output) -> dict[str, Any]:
    logprobs = None if output.logprobs is None else prepared.names.chat(output.logprobs)
    text = prepared.tool_text()
    content, calls = _split(text, output.text, ended=True)
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if calls:
        message |= {"content": content or None, "tool_calls": [call.as_dict() for call in calls]}
    ids = {"token_ids": list(output.token_ids)} if prepared.body.return_token_ids else {}
    return {
        "index": output.index,
        "message": message,
        **ids,
        "logprobs": logprobs,
        "finish_reason": _reason(text, output.finish_reason),
        "stop_reason": output.stop_reason,
    }


def _split(text: ToolText, more: str, ended: bool) -> tuple[str, list[ToolCall]]:
    content, calls = text.push(more)
    if ended:
        rest, last = text.finish()
        content, calls = content + rest, calls + last
    return content, calls


def _reason(text: ToolText, reason: str | None) -> str | None:
    return "tool_calls" if text.called and reason == "stop" else finish_reason(reason)


def _delta_choice(prepared: _Prepared, delta: Delta, text: ToolText) -> dict[str, Any]:
    first = text.count
    content, calls = _split(text, delta.text, delta.finish_reason is not None)
    shown: dict[str, Any] = {"content": content} if content else {}
    if calls:
        shown["tool_calls"] = [
            {"index": first + index, **call.as_dict()} for index, call in enumerate(calls)
        ]
    choice = _chunk_choice(delta.index, shown)
    if delta.logprobs is not None:
        choice["logprobs"] = prepared.names.chat([delta.logprobs])
    choice["finish_reason"] = _reason(text, delta.finish_reason)
    if prepared.body.return_token_ids:
        choice["token_ids"] = [] if delta.token_id is None else [delta.token_id]
    if delta.finish_reason is not None:
        choice["stop_reason"] = delta.stop_reason
    return choice


def _chunk_choice(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
