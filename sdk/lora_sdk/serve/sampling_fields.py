"""The fields that choose tokens, which all endpoints share: OpenAI's, and vLLM's beside them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from lora_host.errors import RequestError
from lora_sdk.arguments.prefill_name import NAME
from lora_sdk.sampling import BeamSearchParams, SamplingParams
from lora_sdk.serve.body import Fields, at_most, items
from lora_sdk.serve.errors import ApiError, from_engine
from lora_sdk.serve.grammar_fields import GrammarFields

MAX_LOGPROBS = 20

Text = Annotated[str, Field(max_length=256)]
Texts = Annotated[list[Text], items(0, 64)]

_SAME_NAMES = (
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "bad_words", "ignore_eos"),
    *(
        "cache_salt",
        "min_tokens",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "prompt_logprobs",
        "allowed_token_ids",
    ),
)
"""Fields that SamplingParams has under the same name."""


class StreamOptions(Fields):
    """`include_usage`: a last chunk with the counts of tokens; `continuous_usage_stats`: (vLLM's)
    counts in every chunk; `include_obfuscation` has no effect."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class KvTransferParams(Fields):
    """vLLM's: where K and V of the prompt are. `id`: the name under which the vLLM server that
    computes it has it."""

    do_remote_prefill: bool = False
    id: Annotated[str, Field(pattern=f"^{NAME.pattern}$")] | None = None


class SamplingFields(GrammarFields):
    """Sampling as OpenAI's protocol names it. Ranges are SamplingParams' own. With vLLM's
    `use_beam_search` the `n` best of `best_of` beams are returned; without a temperature none is
    sampled."""

    model: str | None = None
    stream_options: StreamOptions | None = None
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: Text | Texts = Field(default_factory=list)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Annotated[dict[str, float], at_most(4096)] = Field(default_factory=dict)
    max_tokens: int | None = None
    # vLLM's
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    stop_token_ids: Annotated[list[int], items(0, 256)] = Field(default_factory=list)
    bad_words: Texts = Field(default_factory=list)
    allowed_token_ids: Annotated[list[int], items(1, 1 << 18)] = Field(default_factory=list)
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MAX_LOGPROBS)
    cache_salt: Text | None = None
    kv_transfer_params: KvTransferParams | None = None
    return_tokens_as_token_ids: bool = False
    return_token_ids: bool = False
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1)
    use_beam_search: bool = False
    best_of: int | None = None
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    @property
    def sequences(self) -> int:
        """Sequences that continue one prompt: beams, or samples."""
        return self.n if self.best_of is None else self.best_of

    @property
    def wanted(self) -> tuple[str, int | None]:
        """The field that says how many new tokens there must be room for, and its value."""
        if self.max_tokens is None and self.min_tokens > 0:
            return "min_tokens", self.min_tokens
        return "max_tokens", self.max_tokens

    def check(self) -> None:
        """ApiError for combinations that cannot be served."""
        if self.use_beam_search and self.stream:
            raise ApiError(
                400, "use_beam_search: hypotheses cannot be streamed; set stream to false",
                param="use_beam_search",
            )  # fmt: skip
        if not self.use_beam_search:
            self._check_without_beams()
        if self.ignore_eos and self.grammar() is not None:
            raise ApiError(400, "ignore_eos: a grammar ends the text", param="ignore_eos")
        if self.stream_options is not None and not self.stream:
            raise ApiError(400, "stream_options needs stream", param="stream_options")
        if self.stream and self.prompt_logprobs is not None:
            raise ApiError(
                400, "prompt_logprobs cannot be streamed; set stream to false",
                param="prompt_logprobs",
            )  # fmt: skip

    def _check_without_beams(self) -> None:
        if self.best_of not in (None, self.n):
            raise ApiError(400, "best_of differs from n only with use_beam_search", param="best_of")
        for name in ("length_penalty", "early_stopping"):
            if name in self.model_fields_set:
                raise ApiError(400, f"{name} needs use_beam_search", param=name)

    def params(self, **more: Any) -> SamplingParams:
        """As the engine takes them; `more` beside the shared fields. ApiError names the field."""
        values = {name: getattr(self, name) for name in _SAME_NAMES}
        if self.seed == -1:  # llama.cpp's and vLLM's word for a random one
            values["seed"] = None
        handed = self.kv_transfer_params
        if handed is not None and handed.do_remote_prefill:
            values["prefill_id"] = handed.id
        values["logit_bias"] = {_token(key): bias for key, bias in self.logit_bias.items()}
        if self.use_beam_search:
            values.update(beam_width=self.sequences, length_penalty=self.length_penalty)
            values["early_stopping"] = self.early_stopping
            if "temperature" not in self.model_fields_set:
                values["temperature"] = 0.0
        made = BeamSearchParams if self.use_beam_search else SamplingParams
        try:
            return made(**{**values, **more})
        except RequestError as error:
            raise from_engine(error) from None


def _token(key: str) -> int:
    if not key.isascii() or not key.isdecimal() or len(key) > 9:
        raise ApiError(400, f"logit_bias: {key!r:.60} is no token id", param="logit_bias")
    return int(key)
