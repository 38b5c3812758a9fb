"""`/v1/completions`: a text, or tokens, or a batch of those, continued."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from lora_host.errors import LoraError
from lora_sdk.sampling.logprobs import PositionLogprobs
from lora_sdk.serve.answers import Heading, Usage, finish_reason
from lora_sdk.serve.body import items
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.generation import Job, run_all, stream_all
from lora_sdk.serve.json_text import MAX_VALUES
from lora_sdk.serve.logprobs import CompletionLogprobs, TokenNames, echo_offsets
from lora_sdk.serve.sampling_fields import MAX_LOGPROBS, SamplingFields
from lora_sdk.serve.service import TOO_LONG, Caller, Service
from lora_sdk.step.results import Delta, Output, Result
from lora_sdk.text.fim import Fim
from lora_sdk.text.streaming import Detokenizer, TextPlaces
from lora_sdk.text.tokenizer import Tokenizer, check_token_ids

Tokens = Annotated[list[int], items(0, MAX_VALUES)]
DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionBody(SamplingFields):
    """The request. `prompt`: a text, a list of token ids, or a list of either; what is written is
    between it and the `suffix`."""

    prompt: (
        str
        | Annotated[list[str], items(0, MAX_VALUES)]
        | Tokens
        | Annotated[list[Tokens], items(0, MAX_VALUES)]
    )
    suffix: str | None = None
    echo: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    add_special_tokens: bool = True

    def check(self) -> None:
        super().check()
        if self.max_tokens == 0 and not self.echo:
            raise ApiError(400, "max_tokens 0 needs echo", param="max_tokens")
        if self.suffix and (self.echo or self.truncate_prompt_tokens is not None):
            other = "echo" if self.echo else "truncate_prompt_tokens"
            raise ApiError(400, f"suffix excludes {other}", param="suffix")

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or several."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if prompt and isinstance(prompt[0], int):
            return [[token for token in prompt if isinstance(token, int)]]
        return [one for one in prompt if not isinstance(one, int)]


@dataclass(frozen=True)
class _Echo:
    """What echo shows of a prompt. `offsets`: of its tokens in the text, with `logprobs`."""

    text: str = ""
    offsets: Sequence[int] = ()


@dataclass(frozen=True)
class _Prepared:
    """A checked request. `echoes`: of each prompt. With `scored` the one new token that the engine
    cannot do without is left out."""

    body: CompletionBody
    heading: Heading
    jobs: list[Job]
    echoes: list[_Echo]
    names: TokenNames
    tokenizer: Tokenizer

    @property
    def scored(self) -> bool:
        return self.body.max_tokens == 0

    def finish(self, reason: str | None) -> str | None:
        """The reason that a choice shows."""
        return "length" if reason and self.scored else finish_reason(reason)

    def logprobs(self, job: int) -> CompletionLogprobs:
        """Of one choice of a prompt."""
        prompt, skip_special = self.jobs[job].tokens, self.body.skip_special_tokens
        detokenizer = Detokenizer(self.tokenizer, prompt, skip_special)
        places = TextPlaces(detokenizer, len(self.echoes[job].text))
        return CompletionLogprobs(self.names, places)

    @property
    def usage(self) -> Usage:
        """Prompt tokens alone."""
        return Usage(sum(len(job.tokens) for job in self.jobs))


async def answer(service: Service, caller: Caller, body: CompletionBody) -> dict[str, Any]:
    """The whole answer. Raises ApiError."""
    prepared = await _prepare(service, body)
    results = await run_all(service, caller, prepared.jobs)
    usage = prepared.usage
    choices = []
    for index, result in enumerate(results):
        usage.note(result.cached_tokens, result.prefill)
        usage.completion += 0 if prepared.scored else result.completion_tokens
        choices += [_choice(prepared, index, result, output) for output in result.outputs]
    return prepared.heading.answer(choices, usage=usage.as_dict())


async def stream(
    service: Service, caller: Caller, body: CompletionBody
) -> AsyncGenerator[dict[str, Any], None]:
    """The answer's chunks. Raises ApiError."""
    prepared = await _prepare(service, body)
    options, usage = body.stream_options, prepared.usage
    more: dict[str, Any] = {}
    if options is not None and options.include_usage:
        more["usage"] = None
    choices = _Choices(prepared)
    async with aclosing(stream_all(service, caller, prepared.jobs, usage)) as deltas:
        async for job, delta in deltas:
            if not prepared.scored:
                usage.completion += delta.token_id is not None
            if options is not None and options.continuous_usage_stats:
                more["usage"] = usage.as_dict()
            choice = choices.chunk(job, delta)
            told = choice["text"] or choice["logprobs"] or body.return_token_ids
            if told or delta.finish_reason:
                yield prepared.heading.answer([choice], **more)
    if options is not None and options.include_usage:
        yield prepared.heading.answer([], usage=usage.as_dict())


async def _prepare(service: Service, body: CompletionBody) -> _Prepared:
    body.check()
    prompts = body.prompts
    limit = service.settings.max_prompts
    if not 1 <= len(prompts) <= limit:
        raise ApiError(
            400, f"prompt: {len(prompts)} prompts; expected 1 to {limit}", param="prompt"
        )
    engine = service.engine
    fim = service.fim("suffix") if body.suffix else None
    if fim is not None:
        body.stop_token_ids = [*body.stop_token_ids, *fim.ends]
    params = body.params(
        adapter=service.adapter_of(body.model),
        logprobs=body.logprobs,
        max_tokens=_max_tokens(body),
        allowed_tokens=await service.constraint(body, len(prompts) * body.sequences),
        prompt_logprobs=body.logprobs if body.echo else body.prompt_logprobs,
    )

    try:
        encoded = await service.prepared(lambda: list(_encoded(service, body, fim)))
    except LoraError as error:
        raise from_engine(error, "prompt") from None
    shown = [one if cut else prompt for prompt, (one, cut) in zip(prompts, encoded, strict=True)]
    tokens = [one for one, _ in encoded]
    echoes = await service.prepared(
        lambda: [_echo(engine.tokenizer, body, *one) for one in zip(shown, tokens, strict=True)]
    )
    return _Prepared(
        body,
        Heading("cmpl", "text_completion", body.model or service.settings.name),
        [Job(one, params) for one in tokens],
        echoes,
        TokenNames(engine.tokenizer, body.return_tokens_as_token_ids),
        engine.tokenizer,
    )


def _encoded(
    service: Service, body: CompletionBody, fim: Fim | None
) -> Iterator[tuple[list[int], bool]]:
    """The tokens of each prompt, and whether some were cut off. The first that does not fit the
    context ends it."""
    keep = body.truncate_prompt_tokens
    whole = (
        (_tokens(service, one, body.add_special_tokens, keep is not None) for one in body.prompts)
        if fim is None
        else _around(service, fim, body)
    )
    for tokens in whole:
        kept = service.truncated(tokens, keep, body.wanted[1])
        service.check_length(len(kept), body.wanted)
        yield kept, len(kept) < len(tokens)


def _tokens(
    service: Service, prompt: str | list[int], special: bool, counted: bool = False
) -> list[int]:
    if isinstance(prompt, str):
        return service.tokens(prompt, special, counted=counted)
    return check_token_ids(prompt, service.engine.config.vocabulary)


def _around(service: Service, fim: Fim, body: CompletionBody) -> Iterator[list[int]]:
    """Prompts for what is between them and the suffix, which is encoded once."""
    engine = service.engine
    suffix = service.tokens(body.suffix or "", special=False, field="suffix")
    if len(suffix) > engine.context:
        raise ApiError(
            400, f"This model's maximum context length is {engine.context} tokens. However, your "
            f"suffix resulted in {len(suffix)} tokens; shorten it", param="suffix",
            code=TOO_LONG,
        )  # fmt: skip
    begin = engine.tokenizer.begins_with if body.add_special_tokens else ()
    for one in body.prompts:
        prefix = _tokens(service, one, False)
        yield [*(begin if isinstance(one, str) else ()), *fim.around(prefix, suffix)]


def _echo(
    tokenizer: Tokenizer, body: CompletionBody, prompt: str | list[int], tokens: list[int]
) -> _Echo:
    if not body.echo:
        return _Echo()
    if isinstance(prompt, str):
        text = prompt
        added = tokenizer.begins_with if body.add_special_tokens else ()
    else:
        text, added = tokenizer.decode(prompt, skip_special=False), ()
    offsets = [] if body.logprobs is None else echo_offsets(tokenizer, tokens, text, added)
    return _Echo(text, offsets)


def _max_tokens(body: CompletionBody) -> int:
    if body.max_tokens is None:
        return max(DEFAULT_MAX_TOKENS, body.min_tokens)
    return 1 if body.max_tokens == 0 else body.max_tokens


def _choice(prepared: _Prepared, job: int, result: Result, output: Output) -> dict[str, Any]:
    body = prepared.body
    text = "" if prepared.scored else output.text
    if body.echo:
        text = prepared.echoes[job].text + text
    choice: dict[str, Any] = {
        "index": job * body.n + output.index,
        "text": text,
        "logprobs": None,
        "finish_reason": prepared.finish(output.finish_reason),
        "stop_reason": None if prepared.scored else output.stop_reason,
    }
    if output.logprobs is not None:
        tokens = [] if prepared.scored else list(output.token_ids)
        entries: list[PositionLogprobs | None] = [] if prepared.scored else list(output.logprobs)
        if body.echo:
            tokens = [*result.prompt_token_ids, *tokens]
            entries = [*(result.prompt_logprobs or ()), *entries]
        offsets = prepared.echoes[job].offsets
        choice["logprobs"] = prepared.logprobs(job).part(tokens, entries, offsets)
    if body.return_token_ids:
        choice["prompt_token_ids"] = list(result.prompt_token_ids)
        choice["token_ids"] = [] if prepared.scored else list(output.token_ids)
    if body.prompt_logprobs is not None:
        choice["prompt_logprobs"] = prepared.names.prompt(result.prompt_logprobs or ())
    return choice


class _Choices:
    """The choices of a stream, chunk by chunk. The first chunk of each has what echo shows."""

    def __init__(self, prepared: _Prepared) -> None:
        self._prepared = prepared
        self._prompts: dict[int, Sequence[PositionLogprobs | None]] = {}  # by job
        self._parts: dict[int, CompletionLogprobs] = {}  # by choice, once it has begun

    def chunk(self, job: int, delta: Delta) -> dict[str, Any]:
        """The choice that a delta is a part of."""
        prepared, body = self._prepared, self._prepared.body
        number = job * body.n + delta.index
        if delta.prompt_logprobs is not None:
            self._prompts[job] = delta.prompt_logprobs
        text = "" if prepared.scored else delta.text
        tokens: list[int] = []
        entries: list[PositionLogprobs | None] = []
        offsets: Sequence[int] = ()
        ids: dict[str, Any] = {}
        if body.return_token_ids:
            ids["token_ids"] = [] if delta.token_id is None or prepared.scored else [delta.token_id]
        if number not in self._parts:
            self._parts[number] = prepared.logprobs(job)
            if body.return_token_ids:
                ids["prompt_token_ids"] = list(prepared.jobs[job].tokens)
            if body.echo:
                text = prepared.echoes[job].text + text
                entries += self._prompts.get(job, ())
                tokens += prepared.jobs[job].tokens[: len(entries)]
                offsets = prepared.echoes[job].offsets[: len(entries)]
        if delta.logprobs is not None and delta.token_id is not None and not prepared.scored:
            tokens.append(delta.token_id)
            entries.append(delta.logprobs)
        return {
            "index": number,
            "text": text,
            "logprobs": self._parts[number].part(tokens, entries, offsets) if tokens else None,
            "finish_reason": prepared.finish(delta.finish_reason),
            "stop_reason": None if prepared.scored else delta.stop_reason,
            **ids,
        }
