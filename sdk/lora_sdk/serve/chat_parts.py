"""What a chat says, part by part: thoughts, text and calls, for protocols that list them apart."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from lora_sdk.serve import chat
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.service import Caller, Service


@dataclass(frozen=True)
class Part:
    """A piece of thoughts ("reasoning") or of text ("text"), or a whole call ("call"), whose
    arguments are then the text."""

    kind: str
    text: str
    name: str = ""
    id: str = ""
    logprobs: list[Any] = field(default_factory=list)


@dataclass
class Ending:
    """How a chat ended. `stopped`: by this text or token; `usage` as a chat has it."""

    reason: str | None = None
    stopped: str | int | None = None
    usage: dict[str, Any] | None = None


async def whole(service: Service, caller: Caller, body: ChatBody) -> tuple[list[Part], Ending]:
    """All that a chat says. Raises ApiError."""
    got = await chat.answer(service, caller, body)
    (choice,) = got["choices"]
    ending = Ending(choice["finish_reason"], choice["stop_reason"], got["usage"])
    return _parts(choice["message"], choice["logprobs"]), ending


async def streamed(
    service: Service, caller: Caller, body: ChatBody, ending: Ending
) -> AsyncGenerator[list[Part], None]:
    """The parts as they come, none with the first chunk; `ending` is filled meanwhile. `body` asks
    for usage with each chunk. Raises ApiError."""
    async with aclosing(chat.stream(service, caller, body)) as chunks:
        async for chunk in chunks:
            ending.usage = chunk["usage"] or ending.usage
            for choice in chunk["choices"]:
                ending.reason = choice["finish_reason"] or ending.reason
                ending.stopped = choice.get("stop_reason") or ending.stopped
                yield _parts(choice["delta"], choice["logprobs"])


def _parts(said: dict[str, Any], logprobs: dict[str, Any] | None) -> list[Part]:
    found = []
    if said.get("reasoning_content"):
        found.append(Part("reasoning", said["reasoning_content"]))
    if said.get("content"):
        shown = [] if logprobs is None else logprobs["content"]
        found.append(Part("text", said["content"], logprobs=shown))
    for call in said.get("tool_calls") or ():
        function = call["function"]
        found.append(Part("call", function["arguments"], function["name"], call["id"]))
    return found
