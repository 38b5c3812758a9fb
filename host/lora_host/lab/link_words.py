"""What the bits of a link core's registers say (docs/lab.md, Links' registers)."""

from __future__ import annotations

from .. import abi
from ..naming import ranges

LANES = 4
# (first bit, what is said of the lanes whose bit is 0)
LANE_FIELDS = ((0, "no power at the transceivers of lanes"), (4, "lanes down:"))
# (mask, value of a healthy link, what is said of another one)
FLAGS = (
    (0x0100, True, "PLL not locked"),
    (0x0200, False, "MMCM not locked"),
    (0x0400, False, "hard error"),
    (0x0800, False, "soft error"),
    (0x1000, True, "no channel"),
)
KNOWN = 0x1FFF


def status_words(status: int) -> str:
    """What of the status register differs from a healthy link's, or "healthy"."""
    said = []
    for first, what in LANE_FIELDS:
        lanes = [lane for lane in range(LANES) if not status >> first + lane & 1]
        if lanes:
            said.append(f"{what} {ranges(lanes)}")
    said += [what for mask, healthy, what in FLAGS if bool(status & mask) != healthy]
    if status & ~KNOWN:
        said.append(f"unknown bits {status & ~KNOWN:#x}")
    return "; ".join(said) or "healthy"


def configuration_words(configuration: int) -> str:
    """Framing and width of the configuration register."""
    framing = "framing" if configuration & abi.LINK_FRAMING else "no framing"
    return f"{framing}, {configuration >> 2 & 0x1FF} B wide"
