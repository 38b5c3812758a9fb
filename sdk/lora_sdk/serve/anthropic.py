"""`/v1/messages`: Anthropic's form of a chat, and of its stream."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from lora_sdk.serve.answers import Heading
from lora_sdk.serve.anthropic_fields import NAMES, CountBody, MessagesBody
from lora_sdk.serve.chat_parts import Ending, Part, streamed, whole
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.messages import chat_prompt
from lora_sdk.serve.service import Caller, Service

__all__ = ["CountBody", "MessagesBody", "answer", "count", "stream"]

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
_KINDS = {"reasoning": "thinking", "text": "text", "call": "tool_use"}


async def count(service: Service, body: CountBody) -> dict[str, Any]:
    """The tokens of a prompt. Raises ApiError."""
    service.adapter_of(body.model)
    chat = body.as_chat()
    tools = chat.tools if chat.offers_tools else []
    prompt = await service.prepared(lambda: chat_prompt(service, chat.messages, chat, tools, True))
    return {"input_tokens": len(prompt.tokens)}


async def answer(service: Service, caller: Caller, body: MessagesBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    try:
        parts, ending = await whole(service, caller, body.as_chat())
    except ApiError as error:
        raise renamed(error, NAMES) from None
    content = [_block(part) for part in parts]
    return {**_message(service, body, content, ending.usage), **_stopped(ending)}


async def stream(
    service: Service, caller: Caller, body: MessagesBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's events. Raises ApiError."""
    ending, blocks = Ending(), _Blocks()
    begun = False
    try:
        async with aclosing(streamed(service, caller, body.as_chat(), ending)) as pieces:
            async for parts in pieces:
                if not begun:
                    begun = True
                    empty = _message(service, body, [], ending.usage)
                    yield {"type": "message_start", "message": empty}
                for part in parts:
                    for event in blocks.push(part):
                        yield event
    except ApiError as error:
        raise renamed(error, NAMES) from None
    for event in blocks.close():
        yield event
    yield {"type": "message_delta", "delta": _stopped(ending), "usage": _usage(ending.usage)}
    yield {"type": "message_stop"}


class _Blocks:
    """The blocks of a stream, one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._kind: str | None = None  # of the block that is open

    def push(self, part: Part) -> Iterator[dict[str, Any]]:
        """Events of a part."""
        if part.kind == "call" or part.kind != self._kind:
            yield from self.close()
            self._index += 1
            self._kind = part.kind
            block = {**_block(part), **_EMPTY[part.kind]}
            yield {"type": "content_block_start", "index": self._index, "content_block": block}
        yield self._delta(part)

    def close(self) -> Iterator[dict[str, Any]]:
        """Events that end the open block."""
        if self._kind is None:
            return
        if self._kind == "reasoning":
            yield self._event({"type": "signature_delta", "signature": ""})
        self._kind = None
        yield {"type": "content_block_stop", "index": self._index}

    def _delta(self, part: Part) -> dict[str, Any]:
        if part.kind == "call":
            return self._event({"type": "input_json_delta", "partial_json": part.text})
        kind = _KINDS[part.kind]
        return self._event({"type": f"{kind}_delta", kind: part.text})

    def _event(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


_EMPTY: dict[str, dict[str, Any]] = {
    "reasoning": {"thinking": ""},
    "text": {"text": ""},
    "call": {"input": {}},
}


def _block(part: Part) -> dict[str, Any]:
    if part.kind == "call":
        return {
            "type": "tool_use", "id": part.id, "name": part.name, "input": json.loads(part.text)
        }  # fmt: skip
    if part.kind == "reasoning":
        return {"type": "thinking", "thinking": part.text, "signature": ""}
    return {"type": "text", "text": part.text, "citations": None}


def _message(
    service: Service, body: MessagesBody, content: list[Any], usage: dict[str, Any] | None
) -> dict[str, Any]:
    heading = Heading("msg", "message", body.model or service.settings.name)
    return {
        "id": f"msg_{heading.id}",
        "type": "message",
        "role": "assistant",
        "model": heading.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _stopped(ending: Ending) -> dict[str, Any]:
    if isinstance(ending.stopped, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": ending.stopped}
    reason = _REASONS.get(ending.reason or "", "end_turn")
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(counts: dict[str, Any] | None) -> dict[str, Any]:
    """Cached tokens are counted apart."""
    counts = counts or {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": {}}
    cached = counts["prompt_tokens_details"].get("cached_tokens", 0)
    return {
        "input_tokens": counts["prompt_tokens"] - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": counts["completion_tokens"],
    }
