"""`/infill`: llama.cpp's form of text in the middle, before a prefix and after a suffix."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from pydantic import Field

from lora_host.errors import LoraError
from lora_sdk.serve import completions
from lora_sdk.serve.body import Fields, StreamedFields, at_most, items
from lora_sdk.serve.completions import CompletionBody
from lora_sdk.serve.errors import ApiError, from_engine, renamed
from lora_sdk.serve.sampling_fields import StreamOptions, Text, Texts
from lora_sdk.serve.service import TOO_LONG, Caller, Service
from lora_sdk.text.fim import Fim
from lora_sdk.text.tokenizer import Tokenizer

NAMES = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}
"""Fields of completions by their names here."""
_SAME_NAMES = (
    *("model", "temperature", "top_k", "top_p", "min_p", "seed", "stop", "presence_penalty"),
    *("frequency_penalty", "logit_bias", "ignore_eos", "cache_salt", "stream"),
)
_LONGEST = 64  # characters of a token, at most, where a text is cut before it is encoded
_SNIPPET = "\n\n--- snippet ---\n\n"  # llama.cpp's, between files of models without marks of files
_REPOSITORY, _FILE = "myproject\n", "filename\n"  # its names for what has none


class Extra(Fields):
    """Another file."""

    text: str = ""
    filename: Text = "tmp"


class InfillBody(StreamedFields):
    """The request, with llama.cpp's names and defaults. `prompt` ends the prefix. `n_predict`: new
    tokens, -1 for as many as the context has room for."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[Extra], items(0, 1024)] = Field(default_factory=list)
    prompt: str = ""
    model: str | None = None
    n_predict: int = Field(default=-1, ge=-1)
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: Text | Texts = Field(default_factory=list)
    logit_bias: Annotated[dict[str, float], at_most(4096)] = Field(default_factory=dict)
    ignore_eos: bool = False
    cache_salt: Text | None = None

    def as_completion(self, tokens: list[int], fim: Fim, context: int) -> CompletionBody:
        """The same in OpenAI's words, of a prompt that fits the context."""
        return CompletionBody.model_construct(
            prompt=tokens,
            max_tokens=context - len(tokens) if self.n_predict < 0 else max(1, self.n_predict),
            repetition_penalty=self.repeat_penalty,
            stop_token_ids=list(fim.ends),
            stream_options=StreamOptions(include_usage=True) if self.stream else None,
            return_token_ids=True,
            **{name: getattr(self, name) for name in _SAME_NAMES},
        )


async def answer(service: Service, caller: Caller, body: InfillBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    told = _Told(service, body)
    try:
        whole = await completions.answer(service, caller, await _prompt(service, body))
    except ApiError as error:
        raise renamed(error, NAMES) from None
    (choice,) = whole["choices"]
    told.note(choice)
    return told.last(whole["usage"], choice["text"], choice["token_ids"])


async def stream(
    service: Service, caller: Caller, body: InfillBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's chunks. Raises ApiError."""
    told = _Told(service, body)
    try:
        chunks = completions.stream(service, caller, await _prompt(service, body))
        async with aclosing(chunks) as pieces:
            async for chunk in pieces:
                if not chunk["choices"]:
                    yield told.last(chunk["usage"], "", [])
                    continue
                (choice,) = chunk["choices"]
                told.note(choice)
                if body.n_predict and (choice["text"] or choice["token_ids"]):
                    yield told.part(choice["text"], choice["token_ids"])
    except ApiError as error:
        raise renamed(error, NAMES) from None


class _Told:
    """What the answer says beside its text."""

    def __init__(self, service: Service, body: InfillBody) -> None:
        self._nothing = body.n_predict == 0  # the token that the engine cannot do without
        self._model = body.model or service.settings.name
        self._reason: tuple[str | None, Any] = (None, None)

    def note(self, choice: dict[str, Any]) -> None:
        """Why it ends, once it does."""
        if choice["finish_reason"] is not None:
            self._reason = choice["finish_reason"], choice["stop_reason"]

    def part(self, text: str, tokens: Sequence[int]) -> dict[str, Any]:
        """A chunk."""
        return {"index": 0, "content": text, "tokens": list(tokens), "stop": False}

    def last(self, usage: dict[str, Any], text: str, tokens: Sequence[int]) -> dict[str, Any]:
        """The whole answer, or the last chunk."""
        reason, word = self._reason
        kind = "limit"
        if reason == "stop" and not self._nothing:
            kind = "word" if isinstance(word, str) else "eos"
        if self._nothing:
            text, tokens = "", ()
        return {
            **self.part(text, tokens),
            "stop": True,
            "model": self._model,
            "stop_type": kind,
            "stopping_word": word if kind == "word" else "",
            "tokens_predicted": 0 if self._nothing else usage["completion_tokens"],
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": usage["prompt_tokens_details"]["cached_tokens"],
            "truncated": False,
        }


async def _prompt(service: Service, body: InfillBody) -> CompletionBody:
    fim = service.fim("input_suffix")
    tokenizer, context, part = service.engine.tokenizer, service.engine.context, service.part
    new = context // 4 if body.n_predict < 0 else max(1, body.n_predict)

    def tokens() -> list[int]:
        begin = tokenizer.begins_with
        room = context - new - len(begin) - len(fim.around((), ()))
        if room < 1:
            raise ApiError(
                400, f"n_predict is {body.n_predict}; the context has {context} positions",
                param="n_predict", code=TOO_LONG,
            )  # fmt: skip
        text = (body.input_prefix + body.prompt)[-room * _LONGEST :]
        prefix = tokenizer.encode(text, special=False, part=part)
        suffix = tokenizer.encode(body.input_suffix[: room * _LONGEST], special=False, part=part)
        suffix = suffix[: max(room // 4, room - len(prefix))]
        prefix = prefix[max(0, len(prefix) - (room - len(suffix))) :]
        left = room - len(prefix) - len(suffix)
        return [*begin, *_others(tokenizer, fim, body.input_extra, left, part),
                *fim.around(prefix, suffix)]  # fmt: skip

    try:
        return body.as_completion(await service.prepared(tokens), fim, context)
    except LoraError as error:
        raise from_engine(error, "input_prefix") from None


def _others(
    tokenizer: Tokenizer, fim: Fim, extra: Sequence[Extra], room: int, part: int
) -> list[int]:
    """The other files, the last ones that there is room for, each whole."""

    def encoded(mark: int | None, text: str) -> list[int]:
        found = tokenizer.encode(text, special=False, part=part)
        return found if mark is None else [mark, *found]

    def head(name: str) -> list[int]:
        return encoded(None, _SNIPPET) if fim.file is None else encoded(fim.file, name)

    if not extra:
        return []
    first = [] if fim.repo is None else encoded(fim.repo, _REPOSITORY)
    last = [] if fim.file is None else head(_FILE)
    room -= len(first) + len(last)
    found: list[list[int]] = []
    for one in reversed(extra):
        if len(one.text) > room * _LONGEST:
            break
        tokens = [*head(f"{one.filename}\n"), *encoded(None, one.text)]
        room -= len(tokens)
        if room < 0:
            break
        found.insert(0, tokens)
    return [*first, *(token for one in found for token in one), *last] if found else []
