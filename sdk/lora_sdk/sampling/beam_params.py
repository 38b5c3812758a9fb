"""BeamSearchParams: the options of one beam search, checked on construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lora_host.errors import RequestError
from lora_sdk.arguments.option import ArgumentError, documented, named_arguments, option
from lora_sdk.sampling.params import SamplingParams

NEVER = "never"
MAX_BEAMS = 1024


@documented
@named_arguments
@dataclass(frozen=True)
class BeamSearchParams(SamplingParams):
    """How beam search continues a prompt (docs/numbers.md, 8.7). The `n` best of `beam_width`
    hypotheses are returned, the best first.

    The arguments of SamplingParams act on log probabilities. With a temperature above 0 the
    candidates are drawn instead of taking the best. RequestError names the field whose value is out
    of range, or which beam search does not take: `stop` and `logprobs`.
    """

    beam_width: int = option(
        4,
        help="number of beams",
        flags=("--beams",),
        low=1,
        high=MAX_BEAMS,
    )
    length_penalty: float = option(
        1.0,
        help="a score is the sum of log probabilities divided by length ** length_penalty",
        flags=("--length-penalty",),
        low=-5.0,
        high=5.0,
    )
    early_stopping: bool | str = option(
        False,
        help="end once there are as many hypotheses as beams (true), once the best beam is not "
        "better at its present length (false), or once it cannot become better ('never')",
        flags=("--early-stopping",),
        choices=(NEVER,),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n > self.beam_width:
            raise RequestError(
                f"n is {self.n}; expected at most beam_width ({self.beam_width}) hypotheses"
            )
        if self.stops:
            expected = "none: beam search ends at tokens, see stop_token_ids"
            raise ArgumentError("stop", self.stops, expected)
        if self.logprobs is not None:
            raise ArgumentError("logprobs", self.logprobs, "none: beam search returns scores")

    @property
    def needs_logits(self) -> bool:
        """Every beam is continued from log probabilities."""
        return True

    @property
    def sequences(self) -> int:
        """One for each beam."""
        return self.beam_width


BEAM_FIELDS = tuple(BeamSearchParams.__annotations__)
"""Fields that SamplingParams has not."""


def params_from_mapping(values: Mapping[str, object]) -> SamplingParams:
    """Parameters from a JSON object: of beam search if it has a `beam_width` that is not None.
    RequestError names an unknown field."""
    if values.get("beam_width") is not None:
        return BeamSearchParams.from_mapping(values)
    if "beam_width" in values:
        values = {name: value for name, value in values.items() if name not in BEAM_FIELDS}
    return SamplingParams.from_mapping(values)
