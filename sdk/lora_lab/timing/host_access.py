"""What the host's accesses to the boards cost in a step: `data/host.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_lab.timing.facts import DATA


@dataclass(frozen=True)
class Runtime:
    """Microseconds of one access through a card's runtime. Writes are posted. `dma_us`: a record or
    a step block, each below a page."""

    register_read_us: float
    register_write_us: float
    dma_us: float


@dataclass(frozen=True)
class StepAccesses:
    """Accesses of one step to each board: before it starts and after it is done. `poll_us`: the
    pause between two polls, or `poll_share` of the wait if that is longer, up to `poll_max_us`."""

    reads_before: int
    writes_before: int
    dma_before: int
    reads_after: int
    dma_after: int
    poll_us: float
    poll_share: float
    poll_max_us: float


@dataclass(frozen=True)
class GenerateAccesses:
    """Accesses to each board of a run of up to `tokens` tokens that boards choose by themselves;
    `writes_first`: to the first board besides."""

    tokens: int
    reads_before: int
    writes_before: int
    writes_first: int
    dma_before: int
    reads_after: int
    dma_after: int


@cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = read_yaml(DATA / "host.yaml", RequestError)
    return found


@cache
def step_accesses() -> StepAccesses:
    """The accesses of the host library."""
    return StepAccesses(**_data()["step"])


@cache
def generate_accesses() -> GenerateAccesses:
    """The accesses of the host library where boards choose the tokens."""
    return GenerateAccesses(**_data()["generate"])


def a_token(name: str, boards: int) -> float:
    """Seconds of a token's share of a full run's accesses. Between its doorbell and its end boards
    do not wait for the host."""
    one, run = runtime(name), generate_accesses()
    each = (
        (run.reads_before + run.reads_after) * one.register_read_us
        + run.writes_before * one.register_write_us
        + (run.dma_before + run.dma_after) * one.dma_us
    )
    first = run.writes_first * one.register_write_us + step_accesses().poll_us / 2
    return (boards * each + first) * 1e-6 / run.tokens


@cache
def runtime(name: str) -> Runtime:
    """The runtime `name` of a board's facts."""
    return Runtime(**{key: entry["value"] for key, entry in _data()["runtimes"][name].items()})


def before(name: str, boards: int) -> float:
    """Seconds from the host's first access to the last board's doorbell. The host serves one board
    after the other."""
    one, step = runtime(name), step_accesses()
    each = (
        step.reads_before * one.register_read_us
        + step.writes_before * one.register_write_us
        + step.dma_before * one.dma_us
    )
    return boards * each * 1e-6


def after(name: str, boards: int, ran: float) -> float:
    """Seconds from the end of a run of `ran` seconds to the last record in the host's memory. The
    poll that sees the end comes half a pause late in the mean."""
    one, step = runtime(name), step_accesses()
    pause = max(step.poll_us, min(step.poll_max_us, step.poll_share * ran * 1e6))
    each = step.reads_after * one.register_read_us + step.dma_after * one.dma_us
    return (pause / 2 + boards * each) * 1e-6
