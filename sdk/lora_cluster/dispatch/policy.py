"""Who computes what next, first come first served (GLITCHES, III.C)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Next = Literal["prefill", "decode", "nothing"]


class Policy:
    """Prompts go to workers, and to clusters where there are none. New tokens go to an idle
    cluster. A worker decodes what it holds while no prompt that fits its memory waits."""

    def worker(self, waiting: int, held: int, room: int) -> Next:
        """What a worker does next. `waiting`: prompts in the queue; `held`: computed sequences in
        its memory that no cluster has taken; `room`: sequences that still fit."""
        if waiting and room > 0:
            return "prefill"
        return "decode" if held else "nothing"

    def cluster(self, idle: Sequence[int]) -> int | None:
        """The cluster that takes a sequence, None if all are busy."""
        return idle[0] if idle else None
