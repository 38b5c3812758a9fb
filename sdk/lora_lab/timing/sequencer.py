"""What dispatch costs where the control in hardware runs a list: cycles of its simulation
(`data/sequencer.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from lora_host.errors import RequestError
from lora_host.yaml_file import read_yaml
from lora_lab.timing.control import Dispatch, control_core
from lora_lab.timing.facts import DATA


@cache
def sequencer_data() -> Mapping[str, Any]:
    """`lists` by number of boards, ascending, `parts` of a step, `feed` of a row."""
    found: Mapping[str, Any] = read_yaml(DATA / "sequencer.yaml", RequestError)
    return found


def sequencer_dispatch(boards: int, clock_hz: float) -> Dispatch:
    """Dispatch by the control of one of `boards` boards at `clock_hz`. Beyond the counted numbers
    of boards each further one adds, by its vote, what it adds between the two largest."""
    read = control_core().window_ns * 1e-9 * clock_hz
    lists, parts = sequencer_data()["lists"], sequencer_data()["parts"]
    of_list = max((e for e in lists if e["boards"] <= boards), key=lambda e: e["boards"])
    fewer, most = lists[-2:]
    votes = max(0, boards - most["boards"]) / (most["boards"] - fewer["boards"])

    def cycles(counts: tuple[float, float]) -> float:
        return counts[0] + counts[1] * read

    def with_votes(name: str) -> float:
        here, less, more = (cycles(entry[name]) for entry in (of_list, fewer, most))
        return float(here + votes * (more - less))

    return Dispatch(
        with_votes("step"),
        with_votes("token"),
        of_list["command"],
        cycles(parts["row"]) + sequencer_data()["feed"],
        *(cycles(parts[name]) for name in ("commit", "tile")),
    )
