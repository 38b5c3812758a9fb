"""`/v1/chat/completions`: messages through the model's chat template, and the answer to them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_sdk.sampling import SamplingParams
from lora_sdk.serve.answers import Heading, Usage, finish_reason
from lora_sdk.serve.body import items
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.generation import Job, run_all, stream_all
from lora_sdk.serve.grammar_fields import schema_grammar
from lora_sdk.serve.harmony import HarmonyText
from lora_sdk.serve.logprobs import TokenNames
from lora_sdk.serve.messages import ChatMessage, TemplateFields, chat_prompt
from lora_sdk.serve.reasoning import (
    ReasoningFormat,
    ReasoningText,
    answer_text,
    reasoning_format,
)
from lora_sdk.serve.sampling_fields import MAX_LOGPROBS, SamplingFields
from lora_sdk.serve.service import Caller, Service
from lora_sdk.serve.tool_calls import ToolCall, ToolText
from lora_sdk.serve.tool_fields import NamedTool, forced_schema
from lora_sdk.serve.tool_formats import Schemas, ToolFormat, forced_format, tool_format
from lora_sdk.step.results import Delta, Output


class ChatBody(SamplingFields, TemplateFields):
    """The request."""

    messages: Annotated[list[ChatMessage], items(1)]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    include_reasoning: bool = True

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
    reasoning: ReasoningFormat | None
    thinks: bool | None

    @cached_property
    def schemas(self) -> Schemas:
        """Of the tools that are offered."""
        return {tool.function.name: tool.function.parameters for tool in self.body.tools}

    def answer_text(self) -> AnswerText:
        """For one sample's text."""
        return AnswerText(
            answer_text(self.reasoning, self.thinks),
            ToolText(self.format, self.schemas, single=not self.body.parallel_tool_calls),
        )


@dataclass(frozen=True)
class Said:
    """What a text makes definite."""

    content: str
    calls: list[ToolCall]
    reasoning: str


@dataclass(frozen=True)
class AnswerText:
    """One text, split into thoughts, content and calls."""

    reasoning: ReasoningText | HarmonyText
    tools: ToolText

    def push(self, text: str, ended: bool) -> Said:
        """The next part; `ended`: it is the last."""
        thoughts, content = self.reasoning.push(text)
        if ended:
            more = self.reasoning.finish()
            thoughts, content = thoughts + more[0], content + more[1]
        shown, calls = self.tools.push(content)
        if ended:
            rest, last = self.tools.finish()
            shown, calls = shown + rest, calls + last
        return Said(shown, calls, thoughts)


async def answer(service: Service, caller: Caller, body: ChatBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    prepared = await _prepare(service, body, "chat.completion")
    (result,) = await run_all(service, caller, [prepared.job])
    usage = Usage(result.prompt_tokens, result.completion_tokens)
    usage.note(result.cached_tokens, result.prefill)
    more: dict[str, Any] = {}
    if body.prompt_logprobs is not None:
        more["prompt_logprobs"] = prepared.names.prompt(result.prompt_logprobs or ())
    if body.return_token_ids:
        more["prompt_token_ids"] = list(result.prompt_token_ids)
    return prepared.heading.answer(
        [_choice(prepared, output) for output in result.outputs],
        usage=usage.as_dict(),
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
    texts: dict[int, AnswerText] = {}
    async with aclosing(stream_all(service, caller, [prepared.job], usage)) as deltas:
        async for _, delta in deltas:
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            if delta.index not in texts:
                texts[delta.index] = prepared.answer_text()
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


def _format(service: Service, body: ChatBody) -> ToolFormat | None:
    """How calls are found in the text, None where no tools are offered. ApiError 400."""
    if not body.offers_tools:
        return None
    if isinstance(body.tool_choice, NamedTool):
        return forced_format(body.tool_choice.function.name)
    if body.tool_choice == "required":
        return forced_format(None)
    found = tool_format(service.settings.tool_call_parser, service.chat_template(True))
    if found is None:
        raise ApiError(400, "the model's chat template knows no tools", param="tools")
    return found


async def _prepare(service: Service, body: ChatBody, kind: str) -> _Prepared:
    body.check()
    engine = service.engine
    limit = body.max_completion_tokens
    form = _format(service, body)
    free = body.grammar() is None  # a grammar leaves no room for thoughts
    chosen = service.settings.reasoning_parser
    reasoning = reasoning_format(chosen, service.chat_template(body.offers_tools)) if free else None
    marked = form is not None or (reasoning is not None and reasoning.special)
    shown = {"skip_special_tokens": False} if marked else {}  # which begin calls and thoughts
    params = body.params(
        **shown,
        adapter=service.adapter_of(body.model),
        allowed_tokens=await service.constraint(body, body.sequences),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        max_tokens=body.max_tokens if limit is None else limit,
    )
    tools = body.tools if body.offers_tools else []
    cut = body.truncate_prompt_tokens is not None
    prompt = await service.prepared(lambda: chat_prompt(service, body.messages, body, tools, cut))
    wanted = body.wanted if limit is None else ("max_completion_tokens", limit)
    tokens = service.truncated(prompt.tokens, body.truncate_prompt_tokens, wanted[1])
    service.check_length(len(tokens), wanted, "messages")
    return _Prepared(
        body,
        Heading("chatcmpl", kind, body.model or service.settings.name),
        Job(tokens, params),
        TokenNames(engine.tokenizer, body.return_tokens_as_token_ids),
        form,
        reasoning,
        None if reasoning is None else reasoning.thinks(prompt.text),
    )


def _choice(prepared: _Prepared, output: Output) -> dict[str, Any]:
    logprobs = None if output.logprobs is None else prepared.names.chat(output.logprobs)
    text = prepared.answer_text()
    said = text.push(output.text, ended=True)
    message: dict[str, Any] = {"role": "assistant", "content": said.content, "refusal": None}
    if said.reasoning and prepared.body.include_reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["content"] = said.content or None
        message["tool_calls"] = [call.as_dict() for call in said.calls]
    ids = {"token_ids": list(output.token_ids)} if prepared.body.return_token_ids else {}
    return {
        "index": output.index,
        "message": message,
        **ids,
        "logprobs": logprobs,
        "finish_reason": _reason(text.tools, output.finish_reason),
        "stop_reason": output.stop_reason,
    }


def _reason(text: ToolText, reason: str | None) -> str | None:
    return "tool_calls" if text.called and reason == "stop" else finish_reason(reason)


def _delta_choice(prepared: _Prepared, delta: Delta, text: AnswerText) -> dict[str, Any]:
    first = text.tools.count
    said = text.push(delta.text, delta.finish_reason is not None)
    shown: dict[str, Any] = {"content": said.content} if said.content else {}
    if said.reasoning and prepared.body.include_reasoning:
        shown["reasoning_content"] = said.reasoning
    if said.calls:
        shown["tool_calls"] = [
            {"index": first + index, **call.as_dict()} for index, call in enumerate(said.calls)
        ]
    choice = _chunk_choice(delta.index, shown)
    if delta.logprobs is not None:
        choice["logprobs"] = prepared.names.chat([delta.logprobs])
    choice["finish_reason"] = _reason(text.tools, delta.finish_reason)
    if prepared.body.return_token_ids:
        choice["token_ids"] = [] if delta.token_id is None else [delta.token_id]
    if delta.finish_reason is not None:
        choice["stop_reason"] = delta.stop_reason
    return choice


def _chunk_choice(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
