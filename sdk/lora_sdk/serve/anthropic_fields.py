"""Requests of `/v1/messages`, Anthropic's form, as chats."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_sdk.serve.body import Fields, StreamedFields, items, parse
from lora_sdk.serve.chat import ChatBody
from lora_sdk.serve.errors import ApiError, renamed
from lora_sdk.serve.sampling_fields import Texts
from lora_sdk.serve.tool_fields import ToolName

NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config",
    "reasoning_effort": "output_config",
    "enable_thinking": "thinking",
}
"""The chat's fields as this path has them."""
Short = Annotated[str, Field(max_length=256)]


class TextBlock(Fields):
    """A text; `citations` of earlier answers have no effect."""

    type: Literal["text"]
    text: str
    citations: Annotated[list[Any], items()] | None = None


class ThinkingBlock(Fields):
    """Thoughts of an earlier answer; `signature` has no effect."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class HiddenBlock(Fields):
    """Thoughts that cannot be read; they are left out."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUse(Fields):
    """A call of an earlier answer."""

    type: Literal["tool_use"]
    id: Short
    name: Short
    input: dict[str, Any]


class ToolResult(Fields):
    """What a call gave; `is_error` has no effect."""

    type: Literal["tool_result"]
    tool_use_id: Short
    content: str | Annotated[list[TextBlock], items()] | None = None
    is_error: bool = False


Block = Annotated[
    TextBlock | ThinkingBlock | HiddenBlock | ToolUse | ToolResult, Field(discriminator="type")
]
Texted = str | Annotated[list[TextBlock], items()]


def _text(content: Texted | None) -> str:
    """Of a text or blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(block.text for block in content)


class Message(Fields):
    """A turn."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], items()]

    def as_chat(self) -> list[dict[str, Any]]:
        """What tools gave is a message of its own in a chat."""
        if isinstance(self.content, str):
            return [{"role": self.role, "content": self.content}]
        blocks = self.content
        found: list[dict[str, Any]] = [
            {"role": "tool", "tool_call_id": one.tool_use_id, "content": _text(one.content)}
            for one in blocks
            if isinstance(one, ToolResult)
        ]
        said: dict[str, Any] = {"role": self.role}
        texts = [one.text for one in blocks if isinstance(one, TextBlock)]
        if texts or not blocks:
            said["content"] = "".join(texts)
        thoughts = "".join(one.thinking for one in blocks if isinstance(one, ThinkingBlock))
        if thoughts:
            said["reasoning_content"] = thoughts
        calls = [
            {"id": one.id, "function": {"name": one.name, "arguments": json.dumps(one.input)}}
            for one in blocks
            if isinstance(one, ToolUse)
        ]
        if calls:
            said["tool_calls"] = calls
        return [*found, said] if len(said) > 1 else found


class AnthropicTool(Fields):
    """A tool; those that the server would run itself are not supported."""

    type: Literal["custom"] = "custom"
    name: ToolName
    description: str = ""
    input_schema: dict[str, Any]
    strict: bool = False
    input_examples: Annotated[list[Any], items()] | None = None


class ToolChoice(Fields):
    """Whether tools are called."""

    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool = False

    def as_chat(self) -> Any:
        """As `tool_choice`. ApiError 400."""
        if self.type != "tool":
            return {"any": "required"}.get(self.type, self.type)
        if self.name is None:
            raise ApiError(400, "tool_choice has no name", param="tool_choice")
        return {"type": "function", "function": {"name": self.name}}


class Thinking(Fields):
    """Whether to think, for templates that know it; the budget has no effect."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Short | None = None


class OutputFormat(Fields):
    """A schema that the text keeps to."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Fields):
    """`effort`, for templates that know `reasoning_effort`."""

    effort: Annotated[str, Field(max_length=32)] | None = None
    format: OutputFormat | None = None


class CountBody(Fields):
    """A prompt whose tokens are counted."""

    model: str | None = None
    messages: Annotated[list[Message], items(1)]
    system: Texted | None = None
    tools: Annotated[list[AnthropicTool], items(0, 128)] = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None

    def as_chat(self) -> ChatBody:
        """The same request as a chat. ApiError 400 names the field."""
        try:
            return parse(ChatBody, self._given())
        except ApiError as error:
            raise renamed(error, NAMES) from None

    def _given(self) -> dict[str, Any]:
        messages = [one for message in self.messages for one in message.as_chat()]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": _text(self.system)})
        choice, output = self.tool_choice, self.output_config or OutputConfig()
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            # The answer goes on with an assistant's last words.
            "continue_final_message": bool(messages) and _is_open(messages[-1]),
            "tools": [_as_tool(tool) for tool in self.tools],
            "reasoning_effort": output.effort,
        }
        if choice is not None:
            given["tool_choice"] = choice.as_chat()
            given["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        if self.thinking is not None:
            given["enable_thinking"] = self.thinking.type != "disabled"
        form = output.format or self.output_format
        if form is not None:
            schema = {"name": "output", "schema": form.schema_}
            given["response_format"] = {"type": "json_schema", "json_schema": schema}
        return given


class MessagesBody(CountBody, StreamedFields):
    """The request."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Texts = Field(default_factory=list)
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None  # not Anthropic's; the same text again

    def _given(self) -> dict[str, Any]:
        more = {
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "seed": self.seed,
            "stream": self.stream,
        }
        if self.stream:
            more["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        return {**super()._given(), **more}


def _is_open(message: dict[str, Any]) -> bool:
    return message.keys() == {"role", "content"} and message["role"] == "assistant"


def _as_tool(tool: AnthropicTool) -> dict[str, Any]:
    function = {
        "name": tool.name, "description": tool.description, "parameters": tool.input_schema
    }  # fmt: skip
    return {"type": "function", "function": function}
