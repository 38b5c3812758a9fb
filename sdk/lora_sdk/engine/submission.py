"""Requests of one call: made from prompts and parameters, with all checks that are possible early,
and their ends reported to the caller's functions."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from lora_host.errors import ModelError, RequestError
from lora_sdk.engine.requests import OnDelta, Request, Sample
from lora_sdk.sampling import BeamSearchParams, Sampler, SamplingParams
from lora_sdk.sampling.beam_search import BeamSearch
from lora_sdk.text.ends import end_tokens
from lora_sdk.text.streaming import TextStream
from lora_sdk.text.tokenizer import Tokenizer, check_token_ids

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
from functools import partial

from lora_host.errors import LoraError
from lora_sdk.step.results import Result

Prompt: TypeAlias = "str | Sequence[int]"


def prompts_of(prompts: Prompt | Sequence[Prompt]) -> tuple[list[Prompt], bool]:
    """The prompts as a list, and whether a single prompt was given."""
    if isinstance(prompts, str):
        return [prompts], True
    if isinstance(prompts, (bytes, Mapping)) or not isinstance(prompts, Iterable):
        raise RequestError(
            f"the prompt is {prompts!r:.60}; expected a text, token ids, or a list of those"
        )
    several = list(prompts)
    if not several:
        raise RequestError("no prompt was given; expected a text, token ids, or a list of those")
    if all(hasattr(token, "__index__") for token in several):
        return [several], True  # type: ignore[list-item]
    return several, False  # type: ignore[return-value]


def params_of(
    params: SamplingParams | Sequence[SamplingParams] | None,
    fields: Mapping[str, Any],
    count: int,
) -> list[SamplingParams]:
    """Sampling parameters of each of `count` prompts: individual, or the same for all. `fields`
    replace those of `params`."""
    if params is None or isinstance(params, SamplingParams):
        return [one_params(params, fields)] * count
    if isinstance(params, (str, bytes, Mapping)) or not isinstance(params, Iterable):
        raise RequestError(f"params is {params!r:.60}; expected SamplingParams, or one per prompt")
    each = list(params)
    if len(each) != count:
        raise RequestError(f"{len(each)} sampling parameters for {count} prompts")
    return [one_params(one, fields) for one in each]


def one_params(params: SamplingParams | None, fields: Mapping[str, Any]) -> SamplingParams:
    """Sampling parameters of one prompt. RequestError: not SamplingParams, an unknown or bad
    field."""
    if params is None:
        return SamplingParams(**fields)
    if not isinstance(params, SamplingParams):
        raise RequestError(f"params is {params!r:.60}; expected SamplingParams")
    return replace(params, **fields) if fields else params


def beam_params_of(
    params: BeamSearchParams | Sequence[BeamSearchParams] | None,
    fields: Mapping[str, Any],
    count: int,
) -> list[SamplingParams]:
    """As params_of, for beam search. RequestError for other parameters."""
    each = params_of(BeamSearchParams() if params is None else params, fields, count)
    for one in each:
        if not isinstance(one, BeamSearchParams):
            raise RequestError(f"params is {one!r:.60}; expected BeamSearchParams")
    return each


def one_prompt(prompt: Prompt) -> Prompt:
    """`prompt`. RequestError if it is more than one."""
    several, single = prompts_of(prompt)
    if not single:
        raise RequestError(f"{len(several)} prompts; expected one text or one list of token ids")
    return several[0]


class RequestMaker:
    """Makes the requests and samplers of one engine."""

    def __init__(
        self,
        config: ModelConfig,
        context: int,
        tokenizer: Callable[[], Tokenizer],
        check_adapter: Callable[[str], None],
        by_name: bool = False,
    ) -> None:
        """`tokenizer` raises ModelError if the model has none. `check_adapter` raises AdapterError
        if no adapter of that name is loaded. `by_name`: a worker has prompts under names."""
        self._by_name = by_name
        self._config = config
        self._context = context
        self._tokenizer = tokenizer
        self._check_adapter = check_adapter

    def request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_delta: OnDelta | None = None,
        index: int | None = None,
    ) -> Request:
        """A request ready to be submitted. RequestError: an empty or too long prompt. `index`: the
        prompt's, to be named in errors, if it is one of several."""
        try:
            request = self._request(prompt, params, on_delta)
        except RequestError as error:
            if index is None:
                raise
            raise RequestError(f"prompt {index}: {error}") from None
        if index is not None:
            request.name = f"prompt {index}"
        return request

    def sampler(self, params: SamplingParams, seed: int, sample: int) -> Sampler:
        """The sampler of one sample, with bad words as tokens."""
        ends = set(params.stop_token_ids)
        if not params.ignore_eos:
            ends.update(self._ends)
        words = [ids for word in params.bad_words for ids in self._tokenizer().spellings(word)]
        return Sampler(
            params=params,
            vocabulary=self._config.vocabulary,
            seed=seed,
            sample=sample,
            end_tokens=frozenset(ends),
            bad_words=tuple(words),
        )

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """The tokens that end a text of the model."""
        try:
            return end_tokens(self._config.eos, self._tokenizer(), self._config.vocabulary)
        except ModelError:  # token ids need no tokenizer
            return self._config.eos

    def _request(self, prompt: Prompt, params: SamplingParams, on_delta: OnDelta | None) -> Request:
        text = prompt if isinstance(prompt, str) else None
        if params.adapter is not None:
            self._check_adapter(params.adapter)
        if params.prefill_id is not None and not self._by_name:
            raise RequestError(
                f"prefill_id (kv_transfer_params over HTTP) is {params.prefill_id!r:.60}, but no "
                "worker has prompts under names; open the engine with prefill 'vllm:SOCKET'"
            )
        tokens = self._tokens(prompt)
        if not tokens:
            raise RequestError("the prompt is empty; expected at least one token")
        over = len(tokens) - self._context
        if over > 0:
            raise RequestError(
                f"the prompt has {len(tokens)} tokens, {over} more than the context of "
                f"{self._context}; shorten it"
            )
        seed = secrets.randbits(64) if params.seed is None else params.seed
        room = self._context - len(tokens) + 1
        max_new = room if params.max_tokens is None else min(params.max_tokens, room)
        samples = [
            Sample(self.sampler(params, seed, index), self._text(tokens, params), max_new)
            for index in range(params.n)
        ]
        request = Request(text, tokens, params, seed, samples, on_delta)
        if isinstance(params, BeamSearchParams):
            request.search = BeamSearch(samples[0].sampler, tokens, max_new)
        return request

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._tokenizer().encode(prompt)
        if isinstance(prompt, (bytes, Mapping)) or not isinstance(prompt, Iterable):
            raise RequestError(f"the prompt is {prompt!r:.60}; expected a text or token ids")
        return check_token_ids(prompt, self._config.vocabulary)

    def _text(self, tokens: Sequence[int], params: SamplingParams) -> TextStream | None:
        """The sample's text; None if the model has no tokenizer and the parameters need none."""
        try:
            tokenizer = self._tokenizer()
        except ModelError:
            if params.stops:
                raise
            return None
        return TextStream(
            tokenizer,
            tokens,
            params.stops,
            params.include_stop_str_in_output,
            params.skip_special_tokens,
        )


OnResult: TypeAlias = "Callable[[int, Result], None]"
OnError: TypeAlias = "Callable[[int, LoraError], None]"


class Ends:
    """The requests of one call, by the index of their prompt.

    `on_result` receives each result. `on_error` receives each LoraError, which is then not raised.
    If one of the two raises, the other requests are cancelled and `results` raises the same.
    """

    def __init__(self, on_result: OnResult | None, on_error: OnError | None) -> None:
        self._on_result = on_result
        self._on_error = on_error
        self._requests: dict[int, Request] = {}
        self._reported: set[int] = set()  # errors

    @property
    def requests(self) -> list[Request]:
        """The requests to run."""
        return list(self._requests.values())

    def add(self, index: int, make: Callable[[], Request]) -> None:
        """Make the request of prompt `index`."""
        try:
            request = make()
        except LoraError as error:
            if self._on_error is None:
                raise
            self._on_error(index, error)
            return
        self._requests[index] = request
        if self._on_result is not None or self._on_error is not None:
            request.on_end = lambda: self._report(index, request)

    def results(self) -> list[Result]:
        """Results of the requests, all ended, but for those whose error was reported. Raises the
        first error that was not."""
        return [
            request.result()
            for index, request in self._requests.items()
            if index not in self._reported
        ]

    def _report(self, index: int, request: Request) -> None:
        error = request.error
        try:
            if error is None:
                if self._on_result is not None:
                    self._on_result(index, request.result())
            elif self._on_error is not None and isinstance(error, LoraError):
                self._on_error(index, error)
                self._reported.add(index)
        except BaseException as raised:
            request.error = raised
            for other in self._requests.values():
                other.on_end = None  # nothing more is reported
                other.cancel()
            raise


def ends_of(
    make: Callable[..., Request],
    prompts: Prompt | Sequence[Prompt],
    params: SamplingParams | Sequence[SamplingParams] | None,
    fields: Mapping[str, Any],
    on_delta: OnDelta | None,
    on_result: OnResult | None,
    on_error: OnError | None,
) -> tuple[Ends, bool]:
    """The requests of a call of `generate`, made by RequestMaker.request, and whether it has a
    single prompt. RequestError: a bad argument; of one of several prompts only without on_error."""
    several, single = prompts_of(prompts)
    each = params_of(params, fields, len(several))
    if on_delta is not None and not single:
        raise RequestError("on_delta takes a single prompt; use stream or astream for several")
    if on_error is not None and single:
        raise RequestError("on_error takes several prompts; a single one raises its error")
    ends = Ends(on_result, on_error)
    for index, (prompt, one) in enumerate(zip(several, each, strict=True)):
        named = None if single or on_error is not None else index  # in messages
        ends.add(index, partial(make, prompt, one, on_delta, named))
    return ends, single
