"""Messages of a chat, and the prompt that the model's template makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from lora_host.errors import LoraError
from lora_sdk.serve.body import Fields, items
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.service import Service
from lora_sdk.serve.tool_fields import CalledTool, Tool
from lora_sdk.text.chat import render


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
    content: str | Annotated[list[Part], items()] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    name: str | None = None
    tool_calls: Annotated[list[CalledTool], items(0, 1024)] | None = None
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
        thought = self.reasoning_content or self.reasoning
        if thought:
            more["reasoning_content"] = thought
            if not content:  # gpt-oss' name; its template takes no text beside it
                more["thinking"] = thought
        if self.tool_call_id is not None:
            more["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            more["tool_calls"] = [call.as_template() for call in self.tool_calls]
        return {"role": role, "content": content, **more}


class TemplateFields(Fields):
    """What a request may say of the prompt, as vLLM has it. `chat_template_kwargs`: variables of
    the template."""

    add_generation_prompt: bool = True
    add_special_tokens: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    enable_thinking: bool | None = None
    reasoning_effort: Annotated[str, Field(max_length=32)] | None = None
    tools: Annotated[list[Tool], items(0, 128)] = Field(default_factory=list)

    @property
    def variables(self) -> dict[str, Any]:
        """The template's: no effort is no thinking."""
        found: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            found["reasoning_effort"] = self.reasoning_effort
            if self.reasoning_effort == "none":
                found["enable_thinking"] = False
        if self.enable_thinking is not None:
            found["enable_thinking"] = self.enable_thinking
        return {**found, **self.chat_template_kwargs}

    @property
    def begins_answer(self) -> bool:
        """Whether the template begins the answer. ApiError 400 where the last one goes on, too."""
        if not self.continue_final_message:
            return self.add_generation_prompt
        if self.add_generation_prompt and "add_generation_prompt" in self.model_fields_set:
            raise ApiError(
                400, "continue_final_message and add_generation_prompt exclude each other",
                param="continue_final_message",
            )  # fmt: skip
        return False


@dataclass(frozen=True)
class ChatPrompt:
    """A rendered prompt, as text and as tokens."""

    text: str
    tokens: list[int]


def chat_prompt(
    service: Service,
    messages: list[ChatMessage],
    fields: TemplateFields,
    tools: list[Tool],
    counted: bool = False,
) -> ChatPrompt:
    """The prompt that the model's template makes of the messages; with `add_special_tokens` the
    tokenizer adds its own, too, which most templates write themselves. ApiError 400 where the model
    has no template or it refuses them, and as for `Service.tokens`."""
    tokenizer = service.engine.tokenizer
    try:
        text = render(
            service.chat_template(bool(tools)),
            [message.as_template() for message in messages],
            tokenizer,
            fields.begins_answer,
            [tool.as_template() for tool in tools] if tools else None,
            fields.variables,
            fields.continue_final_message,
        )
        special = bool(fields.add_special_tokens)
        return ChatPrompt(text, service.tokens(text, special, "messages", counted))
    except LoraError as error:
        raise from_engine(error, "messages") from None
