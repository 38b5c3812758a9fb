"""Results of a request."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from lora_sdk.sampling.logprobs import PositionLogprobs
from lora_sdk.step.speculation_statistics import SpeculationStatistics

SHOWN = 60  # characters of a text in a repr


def cut(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


@dataclass(frozen=True)
class Output:
    """One sample of a request.

    `finish_reason`: "stop" (end-of-text, stop token or stop string, named by `stop_reason`),
    "length" (max_tokens or the context is reached) or "cancelled". `token_ids` holds a stop token,
    `text` does not. `logprobs` has one entry per token if they were requested. `score`: of beam
    search, the sum of log probabilities after the length penalty; the outputs are sorted by it.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: tuple[PositionLogprobs, ...] | None = None
    score: float | None = None

    def __repr__(self) -> str:
        """The text, cut, and counts."""
        return (
            f"<Output {self.index} {cut(self.text)!r}: {self.finish_reason}, "
            f"{len(self.token_ids)} tokens>"
        )


@dataclass(frozen=True)
class Timing:
    """Measured wall-clock seconds of a request."""

    queued: float = 0.0
    """From submission to its first step."""
    first_token: float = 0.0
    """From submission to its first token."""
    total: float = 0.0


@dataclass(frozen=True)
class Result:
    """A finished request: its prompt and its n outputs.

    `prompt_logprobs`: one entry per prompt token, None for the first, if they were requested.
    `speculation`: counts of drafted and accepted tokens, if the engine speculates. `cached_tokens`:
    prompt tokens that were not computed, because the KV cache held them from earlier requests.
    `prefill`: "fast" if a worker of that mode computed the prompt: the text may differ from the
    boards' own; None if it is theirs.
    """

    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[Output, ...]
    seed: int
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    timing: Timing = field(default_factory=Timing)
    speculation: SpeculationStatistics | None = None
    cached_tokens: int = 0
    prefill: str | None = None

    def __repr__(self) -> str:
        """The first output's text, cut, and counts: the whole result is in its fields."""
        samples = f"{len(self.outputs)} outputs, " if len(self.outputs) > 1 else ""
        return (
            f"<Result {cut(self.text)!r}: {self.finish_reason}, {samples}"
            f"{self.prompt_tokens} prompt and "
            f"{self.completion_tokens} new tokens in {self.timing.total:.3f} s>"
        )

    def _repr_html_(self) -> str:
        """For notebooks: each output's text, and counts."""
        return _html(self)

    @property
    def text(self) -> str:
        """Text of the first output."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """New tokens of the first output."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> str:
        """Why the first output ended."""
        return self.outputs[0].finish_reason

    @property
    def score(self) -> float | None:
        """Score of the first output, None without beam search."""
        return self.outputs[0].score

    @property
    def prompt_tokens(self) -> int:
        """Number of prompt tokens."""
        return len(self.prompt_token_ids)

    @property
    def completion_tokens(self) -> int:
        """Number of new tokens of all outputs."""
        return sum(len(output.token_ids) for output in self.outputs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(replace(self, speculation=None))
        del values["speculation"]
        if self.prefill is None:
            del values["prefill"]
        if self.speculation is not None:
            values["speculation"] = self.speculation.as_dict()
        values["usage"] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": values.pop("cached_tokens"),
        }
        return values


@dataclass(frozen=True, init=False)
class Delta:
    """A streamed delta: of output `index`, the text that became definite with `token_id`.

    The last delta of an output has a `finish_reason`. Its `token_id` is None if only held-back text
    was left. The first delta of a request has its `prompt_logprobs`, as Result has them, if they
    were requested, and its `prefill`.
    """

    index: int
    text: str
    token_id: int | None
    logprobs: PositionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    prefill: str | None = None

    def __init__(  # runs per token: one dict update is faster than a call per field
        self,
        index: int,
        text: str,
        token_id: int | None,
        logprobs: PositionLogprobs | None = None,
        finish_reason: str | None = None,
        stop_reason: str | int | None = None,
        prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None,
        prefill: str | None = None,
    ) -> None:
        self.__dict__.update(
            index=index,
            text=text,
            token_id=token_id,
            logprobs=logprobs,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            prompt_logprobs=prompt_logprobs,
            prefill=prefill,
        )

    def __repr__(self) -> str:
        """The text and its token, and how the output ended."""
        ended = "" if self.finish_reason is None else f", {self.finish_reason}"
        token = "no token" if self.token_id is None else f"token {self.token_id}"
        return f"<Delta {self.index} {cut(self.text)!r}: {token}{ended}>"


@dataclass(frozen=True)
class Verified:
    """Result of `verify`.

    `tokens`: the accepted drafts and then the target's own token, which is the new pending token.
    `accepted`: tree nodes on the accepted path, the root (0) first. `slots`: their scratch slots,
    the path that `commit` takes. `logprobs`: one entry per token if they were requested.
    """

    tokens: tuple[int, ...]
    accepted: tuple[int, ...]
    slots: tuple[int, ...]
    logprobs: tuple[PositionLogprobs, ...] | None = None


_TEXT = "white-space:pre-wrap;margin:.2em 0"


def _html(result: Result) -> str:
    """Each output's text after the prompt, and a line of counts. All text is escaped."""
    shown = "" if result.prompt is None else escape(result.prompt)
    prompt = f"<span style='opacity:.6'>{shown}</span>" if shown else ""
    parts = []
    for output in result.outputs:
        if len(result.outputs) > 1:
            score = "" if output.score is None else f", score {output.score:.3f}"
            parts.append(f"<small>output {output.index}{score}</small>")
        parts.append(f"<pre style='{_TEXT}'>{prompt}{escape(output.text)}</pre>")
    stopped = result.outputs[0].stop_reason
    by = "" if stopped is None else f" ({escape(str(stopped))})"
    parts.append(
        f"<small>{result.prompt_tokens} prompt and {result.completion_tokens} new tokens in "
        f"{result.timing.total:.3f} s, ended by {result.finish_reason}{by}, seed {result.seed}"
        "</small>"
    )
    return f"<div>{''.join(parts)}</div>"
