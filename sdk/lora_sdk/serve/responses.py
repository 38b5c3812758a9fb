"""`/v1/responses`: thoughts, texts and calls as items. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from lora_sdk.serve.answers import Heading
from lora_sdk.serve.chat_parts import Ending, Part, streamed, whole
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.response_fields import NAMES, ResponseBody
from lora_sdk.serve.service import Caller, Service

__all__ = ["ResponseBody", "answer", "stream"]


async def answer(service: Service, caller: Caller, body: ResponseBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    try:
        parts, ending = await whole(service, caller, await body.fitting(service))
    except ApiError as error:
        raise renamed(error, NAMES) from None
    made = _Response(service, body)
    for part in parts:
        list(made.push(part))
    return made.whole(ending)


async def stream(
    service: Service, caller: Caller, body: ResponseBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's events. Raises ApiError."""
    made, ending, begun = _Response(service, body), Ending(), False
    try:
        chat = await body.fitting(service)
        async with aclosing(streamed(service, caller, chat, ending)) as pieces:
            async for parts in pieces:
                if not begun:
                    begun = True
                    for event in made.begin():
                        yield event
                for part in parts:
                    for event in made.push(part):
                        yield event
    except ApiError as error:
        raise renamed(error, NAMES) from None
    for event in made.end(ending):
        yield event


class _Item:
    """An item of the answer, open until it is done."""

    def __init__(self, kind: str, id: str, part: Part) -> None:
        self.kind, self.id, self.text = kind, id, ""
        self.name, self.call_id = part.name, part.id
        self.logprobs: list[Any] = []

    def content(self) -> dict[str, Any]:
        """The one part that it has."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": self.logprobs,
        }

    def as_dict(self, status: str) -> dict[str, Any]:
        """As `output` has it."""
        if self.kind == "call":
            return {
                "id": self.id,
                "type": "function_call",
                "status": status,
                "call_id": self.call_id,
                "name": self.name,
                "arguments": self.text,
            }
        content = [] if status == "in_progress" else [self.content()]
        if self.kind == "reasoning":
            return {
                "id": self.id, "type": "reasoning", "status": status, "summary": [],
                "content": content,
            }  # fmt: skip
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }


_PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc"}
_EVENTS = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}


class _Response:
    """The object that answers describe, and the events that tell of its making."""

    def __init__(self, service: Service, body: ResponseBody) -> None:
        self._body = body
        self._heading = Heading("resp", "response", body.model or service.settings.name)
        self._items: list[_Item] = []
        self._open = False  # the last item
        self._number = -1

    def event(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """An event of the stream."""
        self._number += 1
        return {"type": f"response.{name}", "sequence_number": self._number, **fields}

    def begin(self) -> list[dict[str, Any]]:
        """Events before all items."""
        empty = self._object("in_progress", [], None)
        return [self.event("created", response=empty), self.event("in_progress", response=empty)]

    def push(self, part: Part) -> Iterator[dict[str, Any]]:
        """Take a part; the events that tell of it."""
        if self._open and self._items[-1].kind != part.kind:
            yield from self._close("completed")
        if not self._open:
            yield from self._begin_item(part)
        item = self._items[-1]
        item.text += part.text
        item.logprobs += part.logprobs
        more: dict[str, Any] = {"logprobs": part.logprobs} if part.kind == "text" else {}
        yield self.event(f"{_EVENTS[item.kind]}.delta", **self._where(), delta=part.text, **more)
        if part.kind == "call":
            yield from self._close("completed")

    def end(self, ending: Ending) -> Iterator[dict[str, Any]]:
        """Events after the last part."""
        if not self._items:
            yield from self._begin_item(Part("text", ""))
        status = _status(ending)
        if self._open:
            yield from self._close(status)
        yield self.event(status, response=self.whole(ending))

    def whole(self, ending: Ending) -> dict[str, Any]:
        """The finished object."""
        if not self._items:
            list(self._begin_item(Part("text", "")))
        status = _status(ending)
        last = status if self._items[-1].kind != "call" else "completed"
        output = [item.as_dict("completed") for item in self._items[:-1]]
        return self._object(status, [*output, self._items[-1].as_dict(last)], ending.usage)

    def _begin_item(self, part: Part) -> Iterator[dict[str, Any]]:
        count = len(self._items)
        id = f"{_PREFIXES[part.kind]}_{self._heading.id}" + (f"_{count}" if count else "")
        item = _Item(part.kind, id, part)
        self._items.append(item)
        self._open = True
        shown = item.as_dict("in_progress")
        yield self.event("output_item.added", output_index=count, item=shown)
        if item.kind != "call":
            yield self.event("content_part.added", **self._where(), part=item.content())

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        self._open = False
        item = self._items[-1]
        if item.kind == "call":
            more: dict[str, Any] = {"arguments": item.text, "name": item.name}
        else:
            more = {"text": item.text}
        if item.kind == "text":
            more["logprobs"] = item.logprobs
        yield self.event(f"{_EVENTS[item.kind]}.done", **self._where(), **more)
        if item.kind != "call":
            yield self.event("content_part.done", **self._where(), part=item.content())
        where = {"output_index": len(self._items) - 1}
        yield self.event("output_item.done", **where, item=item.as_dict(status))

    def _where(self) -> dict[str, Any]:
        item = self._items[-1]
        place = {} if item.kind == "call" else {"content_index": 0}
        return {"item_id": item.id, "output_index": len(self._items) - 1, **place}

    def _object(self, status: str, output: list[Any], usage: Any) -> dict[str, Any]:
        body, heading = self._body, self._heading
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        given = body.model_dump(
            mode="json", by_alias=True, exclude_none=True,
            include={"tools", "tool_choice", "text", "reasoning", "truncation", "top_logprobs"},
        )  # fmt: skip
        return {
            "id": f"resp_{heading.id}",
            "object": "response",
            "created_at": heading.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": cut,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata,
            "model": heading.model,
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": None,
            "store": False,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "usage": None if usage is None else _usage(usage),
            **given,
        }


def _status(ending: Ending) -> str:
    return "incomplete" if ending.reason == "length" else "completed"


def _usage(counts: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": counts["prompt_tokens_details"],
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counts["total_tokens"],
    }
