"""How much the scrubber may do, and by which accesses: `data/scrub.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
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
    loop_tokens: int
    accesses: Mapping[str, int]


@cache
def scrub_facts() -> ScrubFacts:
    """The shipped facts."""
    return ScrubFacts(**read_yaml(DATA / "scrub.yaml", RequestError))
