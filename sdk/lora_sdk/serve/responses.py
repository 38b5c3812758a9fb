"""`/v1/responses` in its basic form: a text or messages in, one text out. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_sdk.serve.answers import Heading
from lora_sdk.serve.body import Fields, StreamedFields, at_most, items, parse
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.chat import answer as chat_answer
from lora_sdk.serve.chat import stream as chat_stream
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.service import Caller, Service

_NAMES = {"messages": "input", "prompt": "input", "max_tokens": "max_output_tokens"}
"""The chat's fields as this path has them."""


class InputPart(Fields):
    """A part of an item; texts alone are supported."""

    type: Literal["input_text", "output_text"]
    text: str
    logprobs: list[Any] = Field(default_factory=list)  # of earlier answers; no effect


class InputItem(Fields):
    """A message; `status` and `phase` of earlier answers have no effect."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[InputPart], items()]
    status: str | None = None
    phase: str | None = None

    def as_message(self) -> dict[str, Any]:
        """As a chat has it."""
        content = self.content
        if not isinstance(content, str):
            content = "".join(part.text for part in content)
        return {"role": self.role, "content": content}


class Reasoning(Fields):
    """How much to think, for templates that know `reasoning_effort`."""

    effort: Annotated[str, Field(max_length=32)] | None = None


class ResponseBody(StreamedFields):
    """The request."""

    model: str | None = None
    input: str | Annotated[list[InputItem], items(1)]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    reasoning: Reasoning | None = None
    metadata: Annotated[dict[str, str], at_most(16)] = Field(default_factory=dict)
    seed: int | None = None  # not OpenAI's; the same text again

    def as_chat(self) -> ChatBody:
        """The same request as a chat. ApiError 400 names the field."""
        messages: list[dict[str, Any]] = []
        if self.instructions is not None:
            messages.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            messages.append({"role": "user", "content": self.input})
        else:
            messages += [item.as_message() for item in self.input]
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
            "stream": self.stream,
        }
        if self.stream:
            given["stream_options"] = {"include_usage": True}
        try:
            return parse(ChatBody, given)
        except ApiError as error:
            raise renamed(error, _NAMES) from None


async def answer(service: Service, caller: Caller, body: ResponseBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    try:
        got = await chat_answer(service, caller, body.as_chat())
    except ApiError as error:
        raise renamed(error, _NAMES) from None
    (choice,) = got["choices"]
    made = _Response(service, body)
    return made.whole(choice["message"]["content"], choice["finish_reason"], got["usage"])


async def stream(
    service: Service, caller: Caller, body: ResponseBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's events. Raises ApiError."""
    made = _Response(service, body)
    text, reason, usage = "", None, None
    begun = False
    try:
        async with aclosing(chat_stream(service, caller, body.as_chat())) as chunks:
            async for chunk in chunks:
                if not begun:
                    begun = True
                    for event in made.begin():
                        yield event
                usage = chunk["usage"] or usage
                for choice in chunk["choices"]:
                    reason = choice["finish_reason"] or reason
                    delta = choice["delta"].get("content")
                    if delta:
                        text += delta
                        shown = {"delta": delta, "logprobs": []}
                        yield made.event("output_text.delta", **made.where, **shown)
    except ApiError as error:
        raise renamed(error, _NAMES) from None
    for event in made.end(text, reason, usage):
        yield event


class _Response:
    """The object that answers describe, and the events that tell of its making."""

    def __init__(self, service: Service, body: ResponseBody) -> None:
        self._body = body
        self._heading = Heading("resp", "response", body.model or service.settings.name)
        self._item = f"msg_{self._heading.id}"
        self._number = -1
        self.where = {"item_id": self._item, "output_index": 0, "content_index": 0}

    def event(self, name: str, **fields: Any) -> dict[str, Any]:
        """An event of the stream."""
        self._number += 1
        return {"type": f"response.{name}", "sequence_number": self._number, **fields}

    def begin(self) -> list[dict[str, Any]]:
        """Events before the text."""
        empty = self._object("in_progress", [], None)
        return [
            self.event("created", response=empty),
            self.event("in_progress", response=empty),
            self.event("output_item.added", output_index=0, item=self._message("in_progress", [])),
            self.event("content_part.added", **self.where, part=_part("")),
        ]

    def end(self, text: str, reason: str | None, usage: Any) -> list[dict[str, Any]]:
        """Events after the text."""
        whole = self.whole(text, reason, usage)
        return [
            self.event("output_text.done", **self.where, text=text, logprobs=[]),
            self.event("content_part.done", **self.where, part=_part(text)),
            self.event("output_item.done", output_index=0, item=whole["output"][0]),
            self.event(whole["status"], response=whole),
        ]

    def whole(self, text: str, reason: str | None, usage: Any) -> dict[str, Any]:
        """The finished object."""
        status = "incomplete" if reason == "length" else "completed"
        return self._object(status, [self._message(status, [_part(text)])], usage)

    def _message(self, status: str, content: list[Any]) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _object(self, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
        body, heading = self._body, self._heading
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": f"resp_{heading.id}",
            "object": "response",
            "created_at": heading.created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata,
            "model": heading.model,
            "output": output,
            "parallel_tool_calls": False,
            "store": False,
            "temperature": body.temperature,
            "tool_choice": "none",
            "tools": [],
            "top_p": body.top_p,
            "usage": None if usage is None else _usage(usage),
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(counts: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts["total_tokens"],
    }
