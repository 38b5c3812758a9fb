"""How much the scrubber may do, and what a sum costs: `data/scrub.yaml`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_sdk.timing.facts import DATA


@dataclass(frozen=True)
class ScrubFacts:
    """See data/scrub.yaml."""

    share: float
    slice_bytes: int
    command_cycles: int
    loop_tokens: int


@cache
def scrub_facts() -> ScrubFacts:
    """The shipped facts."""
    return ScrubFacts(**read_yaml(DATA / "scrub.yaml", RequestError))
