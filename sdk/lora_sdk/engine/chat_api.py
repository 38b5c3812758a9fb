"""Chat: messages through the model's template, and their answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lora_sdk.engine.requests import OnDelta
from lora_sdk.sampling import SamplingParams
from lora_sdk.step.results import Delta, Result
from lora_sdk.text.chat import Message, check_messages, find_template, render

if TYPE_CHECKING:
    from pathlib import Path

    from lora_sdk.text.tokenizer import Tokenizer


class Generates(Protocol):
    """What chat needs of an engine: its methods as Engine describes them."""

    @property
    def model_path(self) -> Path: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def generate(self) -> Callable[..., Any]: ...
    @property
    def stream(self) -> Callable[..., Iterator[Delta]]: ...
    @property
    def agenerate(self) -> Callable[..., Any]: ...
    @property
    def astream(self) -> Callable[..., AsyncGenerator[Delta, None]]: ...


class ChatApi:
    """Chat with one engine. Messages are objects of {'role', 'content'}. ModelError if the model
    has no chat template. `fields`: those of SamplingParams, as for `generate`."""

    def __init__(self, engine: Generates) -> None:
        self._engine = engine

    def chat(
        self,
        /,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        on_delta: OnDelta | None = None,
        **fields: Any,
    ) -> Result:
        """Apply the model's chat template to messages of {'role', 'content'} and answer them.

        `fields`: those of SamplingParams, as for `generate`. ModelError if the model has no
        template.
        """
        result = self._engine.generate(self.chat_tokens(messages), params, on_delta, **fields)
        assert isinstance(result, Result)  # a single prompt
        return result

    def stream_chat(
        self, /, messages: Sequence[Message], params: SamplingParams | None = None, **fields: Any
    ) -> Iterator[Delta]:
        """Deltas of the answer of `chat` as they arrive. Closing the iterator cancels."""
        return self._engine.stream(self.chat_tokens(messages), params, **fields)

    async def achat(
        self, /, messages: Sequence[Message], params: SamplingParams | None = None, **fields: Any
    ) -> Result:
        """`chat` for asyncio; cancelling the task cancels the request."""
        result = await self._engine.agenerate(self.chat_tokens(messages), params, **fields)
        assert isinstance(result, Result)  # a single prompt
        return result

    def astream_chat(
        self, /, messages: Sequence[Message], params: SamplingParams | None = None, **fields: Any
    ) -> AsyncGenerator[Delta, None]:
        """`stream_chat` for asyncio; leaving the loop cancels the request."""
        return self._engine.astream(self.chat_tokens(messages), params, **fields)

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt that the chat template renders from the messages."""
        return chat_tokens(self._engine.model_path, self._engine.tokenizer, messages)


def chat_tokens(folder: Path, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Token ids of the prompt that a model's chat template renders from the messages."""
    check_messages(messages)
    text = render(find_template(folder, tokenizer), messages, tokenizer, add_generation_prompt=True)
    return tokenizer.encode(text, special=False)  # the template adds BOS itself
