"""What stands behind open boards: some are emulated though their URIs name real ones."""

from __future__ import annotations

import os

from .alveo_container import EMULATION_MARK
from .device_uri import board_type, xrt_emulates
from .naming import counted
from .overlay import Overlay
from .regular_file import read_regular

MOST_OF_AN_EMULATION = 1 << 20  # bytes of a container that is generated here


def opened_type(uri: str, overlay: Overlay | None) -> str:
    """What a board is that was opened by a checked URI: "emulated", "simulated" or "real". One
    behind XRT's emulation is emulated, and so is one that took the container of `overlay` if that
    holds no bitstream: no card does."""
    found = board_type(uri)
    if found != "real":
        return found
    under_xrt = xrt_emulates(uri, os.environ)
    return "emulated" if under_xrt or (overlay and holds_no_bitstream(overlay)) else "real"


def holds_no_bitstream(overlay: Overlay) -> bool:
    """Whether the overlay's container is one for emulations."""
    if overlay.container is None:
        return False
    try:
        return EMULATION_MARK in read_regular(overlay.container, MOST_OF_AN_EMULATION)
    except OSError:  # longer than any that is written here, or none
        return False


def counted_type(count: int, kind: str) -> str:
    """ "2 emulated boards", "1 board" of real ones."""
    return counted(count, "board" if kind == "real" else f"{kind} board")
