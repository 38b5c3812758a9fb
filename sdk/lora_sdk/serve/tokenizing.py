"""`/tokenize` and `/detokenize`, as vLLM has them."""

from __future__ import annotations

from typing import Annotated, Any

from lora_host.errors import LoraError
from lora_sdk.serve.body import Fields, items
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.json_text import MAX_VALUES
from lora_sdk.serve.logprobs import TokenNames
from lora_sdk.serve.messages import ChatMessage, TemplateFields, chat_prompt
from lora_sdk.serve.service import Service
from lora_sdk.text.tokenizer import check_token_ids


class TokenizeBody(TemplateFields):
    """A text, or the messages of a chat. The tokenizer's special tokens are added to a text alone,
    unless `add_special_tokens` says otherwise."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], items()] | None = None
    return_token_strs: bool = False


class DetokenizeBody(Fields):
    """Token ids."""

    model: str | None = None
    tokens: Annotated[list[int], items(0, MAX_VALUES)]


async def tokenize(service: Service, body: TokenizeBody) -> dict[str, Any]:
    """The tokens of a text or a chat. Raises ApiError."""
    engine = service.engine
    service.adapter_of(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "expected either prompt or messages", param="prompt")

    def encode() -> list[int]:
        if body.prompt is not None:
            special = body.add_special_tokens is not False
            return service.tokens(body.prompt, special, counted=True)
        return chat_prompt(service, body.messages or [], body, body.tools, counted=True).tokens

    try:
        tokens = await service.prepared(encode)
    except LoraError as error:
        field = "messages" if body.prompt is None else "prompt"
        raise from_engine(error, field) from None
    names, strings = TokenNames(engine.tokenizer), None
    if body.return_token_strs:
        strings = await service.prepared(lambda: [names.name(token) for token in tokens])
    return {
        "count": len(tokens),
        "max_model_len": engine.context,
        "tokens": tokens,
        "token_strs": strings,
    }


async def detokenize(service: Service, body: DetokenizeBody) -> dict[str, Any]:
    """The text of tokens, special ones too. Raises ApiError."""
    engine = service.engine
    service.adapter_of(body.model)
    try:
        tokens = check_token_ids(body.tokens, engine.config.vocabulary)
    except LoraError as error:
        raise from_engine(error, "tokens") from None
    text = await service.prepared(lambda: engine.tokenizer.decode(tokens, False))
    return {"prompt": text}
