"""Which kind of board stands behind a URI, as the PCI bus or the runtime's emulation tells. XRT
serves several kinds, and its URIs name none."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .boards import Board, board_names, load_board
from .device_uri import canonical, check_uri, is_remote, uri_boards, xrt_emulates
from .lab.software_emulation import emulated_boards

SYSFS = Path("/sys/bus/pci/devices")
VENDOR = 0x10EE


def pci_board(entry: Path) -> Board | None:
    """The board whose user function is this entry of the PCI bus, None if it is another device."""
    if _hex(entry / "vendor") != VENDOR:
        return None
    found = _hex(entry / "device")
    return next((b for b in map(load_board, board_names()) if b.pci_id == found), None)


def board_of_shell(name: str) -> str | None:
    """The board that a shell is for (xilinx_u280_gen3x16_..., xilinx:u280:...), None if unknown."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return next((board for board in board_names() if board in words), None)


def possible_kinds(uri: str, sysfs: Path = SYSFS) -> tuple[str, ...]:
    """The kinds of board that may stand behind a URI: one, where the URI or the card tells.
    RequestError for an invalid URI."""
    kind = check_uri(uri)[1] or _told(uri, sysfs)
    return (kind,) if kind else uri_boards(uri)


def _told(uri: str, sysfs: Path) -> str | None:
    """What the emulation's platform or the bus tells of an XRT board. Of an index on a bus with
    several kinds, nothing: the runtime alone knows the order."""
    if is_remote(uri):
        return None
    if os.environ.get("XCL_EMULATION_MODE"):
        platform = dict(emulated_boards(os.environ)).get(uri, "")
        return board_of_shell(platform) if xrt_emulates(uri, os.environ) else None
    address = canonical(uri).partition(":")[2]
    pattern = f"{address}.*" if ":" in address else "*"
    found = {board.name for board in map(pci_board, sysfs.glob(pattern)) if board is not None}
    kinds = found & set(uri_boards(uri))
    return kinds.pop() if len(kinds) == 1 else None


def _hex(path: Path) -> int | None:
    try:
        return int(path.read_text().strip(), 16)
    except (OSError, ValueError):
        return None
