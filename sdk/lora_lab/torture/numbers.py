"""The numbers that a fault is drawn with: what they are of, and which there are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from lora_host import abi


@dataclass(frozen=True)
class Number:
    """`values`: those that are drawn, all as often."""

    name: str
    values: Sequence[int]

    def draw(self, draws: random.Random) -> int:
        """One of them."""
        return self.values[0] if len(self.values) == 1 else draws.choice(self.values)

    @property
    def expected(self) -> str:
        """Its values, for messages."""
        first, *_, last = (*self.values, self.values[-1])
        if isinstance(self.values, range):
            step = self.values.step
            return f"{first} to {last}" + (f" by {step}" if step > 1 else "")
        return " or ".join(map(str, self.values))


PORT = Number("port", range(abi.PORTS))
FRAMES = Number("frames to pass", range(12))
ONE_PORT = (PORT,)
ONE_FRAME = (PORT, FRAMES, Number("frames", (1,)))
ALL_FRAMES = (PORT, FRAMES, Number("frames", (1_000_000,)))
LATE_FRAME = (PORT, FRAMES, Number("microseconds", (20, 500, 20_000)))
FILED = (FRAMES, Number("frames", (1,)))
PAUSE = (Number("microseconds", (100, 3_000, 200_000)),)
SLOWNESS = (Number("microseconds", (10, 300, 2_000)),)
POLLS = (Number("polls", range(60)),)
TRANSFERS = (
    Number("transfers to pass", range(3)),
    Number("bytes by which one is misplaced", range(64, 64 * 64, 64)),
)
PLACE = (Number("place", range(1 << 20)), Number("bit", range(8)))
WORD_BIT = (Number("place", range(1 << 20)), Number("bit", range(64)))
COMMANDS = (Number("commands to pass", range(4)),)
JUMP = (
    Number("polls to pass", range(20)),
    Number("milliseconds", (10, 1_000, 5_000, 100_000)),
)
ACCESSES = (Number("transfers to pass", range(2)),)
CONFIGURATION = (Number("configuration", (0,)),)
AWAY = (Number("resets until it returns", (0,)),)
BACK = (Number("resets until it returns", (1,)),)
