"""Requests of `/v1/responses`, as chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_sdk.serve.body import Fields, StreamedFields, at_most, items, parse
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.messages import chat_prompt
from lora_sdk.serve.sampling_fields import MAX_LOGPROBS
from lora_sdk.serve.service import TOO_LONG, Service
from lora_sdk.serve.tool_fields import ToolName

NAMES = {
    "messages": "input",
    "prompt": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text",
    "reasoning_effort": "reasoning",
}
"""The chat's fields as this path has them."""
LOGPROBS = "message.output_text.logprobs"
Short = Annotated[str, Field(max_length=256)]


class InputPart(Fields):
    """A part of an item; texts alone are supported."""

    type: Literal["input_text", "output_text", "reasoning_text", "summary_text", "text"]
    text: str
    logprobs: Annotated[list[Any], items()] = Field(default_factory=list)  # of earlier answers


class RefusedPart(Fields):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        """Its text, as other parts have it."""
        return self.refusal


Content = (
    str | Annotated[list[Annotated[InputPart | RefusedPart, Field(discriminator="type")]], items()]
)


def _text(content: str | Sequence[InputPart | RefusedPart]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class InputItem(Fields):
    """An item: a message, a call, what a call gave, or thoughts. `status`, `phase` and
    `encrypted_content` of earlier answers have no effect."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Content | None = None
    call_id: Short | None = None
    name: Short | None = None
    arguments: str | None = None
    output: Content | None = None
    summary: Annotated[list[InputPart], items()] = Field(default_factory=list)
    status: Short | None = None
    phase: Short | None = None
    encrypted_content: str | None = None

    def add_to(self, messages: list[dict[str, Any]]) -> None:
        """Append what it says to a chat: an assistant's items are one message. ApiError 400."""
        if self.type == "function_call_output":
            output = self._needed("output", self.output)
            call = self._needed("call_id", self.call_id)
            messages.append({"role": "tool", "tool_call_id": call, "content": _text(output)})
        elif self.type == "function_call":
            function = {
                "name": self._needed("name", self.name),
                "arguments": self._needed("arguments", self.arguments),
            }
            calls = _assistant(messages).setdefault("tool_calls", [])
            calls.append({"id": self._needed("call_id", self.call_id), "function": function})
        elif self.type == "reasoning":
            thought = _text(self.content or self.summary)
            messages.append({"role": "assistant", "reasoning_content": thought})
        else:
            self._add_message(messages)

    def _add_message(self, messages: list[dict[str, Any]]) -> None:
        role = self._needed("role", self.role)
        text = _text(self._needed("content", self.content))
        if role == "assistant" and messages and _only_thinks(messages[-1]):
            messages[-1]["content"] = text
        else:
            messages.append({"role": role, "content": text})

    def _needed(self, field: str, value: Any) -> Any:
        if value is None:
            raise ApiError(400, f"input: a {self.type} has no {field}", param="input")
        return value


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message at the end."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})
    return messages[-1]


def _only_thinks(message: dict[str, Any]) -> bool:
    return message.keys() == {"role", "reasoning_content"}


class Reasoning(Fields):
    """How much to think, for templates that know `reasoning_effort`; `summary` has no effect."""

    effort: Annotated[str, Field(max_length=32)] | None = None
    summary: Short | None = None
    generate_summary: Short | None = None


class FunctionTool(Fields):
    """A tool; functions alone are supported."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChosenTool(Fields):
    """The tool that must be called."""

    type: Literal["function"]
    name: ToolName


class TextFormat(Fields):
    """How the text is written."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    def as_chat(self) -> dict[str, Any]:
        """As `response_format`."""
        if self.type != "json_schema":
            return {"type": self.type}
        if self.schema_ is None:
            raise ApiError(400, "text: the format has no schema", param="text")
        return {"type": self.type, "json_schema": {"name": self.name, "schema": self.schema_}}


class TextFields(Fields):
    """`verbosity` has no effect."""

    format: TextFormat | None = None
    verbosity: Short | None = None


class ResponseBody(StreamedFields):
    """The request."""

    model: str | None = None
    input: str | Annotated[list[InputItem], items(1)]
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    tools: Annotated[list[FunctionTool], items(0, 128)] = Field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | ChosenTool = "auto"
    parallel_tool_calls: bool = True
    text: TextFields | None = None
    reasoning: Reasoning | None = None
    include: Annotated[list[Short], items(0, 16)] = Field(default_factory=list)
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: Annotated[dict[str, str], at_most(16)] = Field(default_factory=dict)
    seed: int | None = None  # not OpenAI's; the same text again

    def as_chat(self, dropped: int = 0) -> ChatBody:
        """The same request as a chat without the first `dropped` items. ApiError 400 names the
        field."""
        messages: list[dict[str, Any]] = []
        if self.instructions is not None:
            messages.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            messages.append({"role": "user", "content": self.input})
        else:
            for item in self.input[dropped:]:
                item.add_to(messages)
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
            "stream": self.stream,
            "parallel_tool_calls": self.parallel_tool_calls,
            "tools": [_as_tool(tool) for tool in self.tools],
            "tool_choice": _as_choice(self.tool_choice),
        }
        if self.text is not None and self.text.format is not None:
            given["response_format"] = self.text.format.as_chat()
        if LOGPROBS in self.include:
            given.update(logprobs=True, top_logprobs=self.top_logprobs)
        if self.stream:
            given["stream_options"] = {"include_usage": True}
        try:
            return parse(ChatBody, given)
        except ApiError as error:
            raise renamed(error, NAMES) from None

    async def fitting(self, service: Service) -> ChatBody:
        """As a chat; with `truncation` auto, without as many of its first items as the context has
        no room for. ApiError 400."""
        body = self.as_chat()
        if self.truncation != "auto" or isinstance(self.input, str):
            return body
        low, high = 0, len(self.input) - 1
        while low < high:  # the fewest that must go
            middle = (low + high) // 2
            if await _fits(service, self.as_chat(middle)):
                high = middle
            else:
                low = middle + 1
        return self.as_chat(low) if low else body


async def _fits(service: Service, body: ChatBody) -> bool:
    tools = body.tools if body.offers_tools else []
    try:
        prompt = await service.prepared(lambda: chat_prompt(service, body.messages, body, tools))
    except ApiError as error:
        if error.code != TOO_LONG:
            raise
        return False
    return len(prompt.tokens) + (body.max_tokens or 1) <= service.engine.context


def _as_tool(tool: FunctionTool) -> dict[str, Any]:
    function = tool.model_dump(include={"name", "description", "parameters"}, exclude_none=True)
    return {"type": "function", "function": function}


def _as_choice(choice: str | ChosenTool) -> Any:
    if isinstance(choice, str):
        return choice
    return {"type": "function", "function": {"name": choice.name}}
