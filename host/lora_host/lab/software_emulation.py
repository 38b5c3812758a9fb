"""Boards of XRT's software emulation, as its own configuration names them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ..regular_file import read_regular

_MAX_BYTES, _MAX_BOARDS = 1 << 20, 16


def driver_library(variables: Mapping[str, str]) -> str:
    """What XRT loads from $XILINX_XRT/lib with these environment variables
    (driver_library in transport_xrt_api.c)."""
    modes = {"sw_emu": "swemu", "hw_emu": "hwemu", "noop": "noop"}
    return f"libxrt_{modes.get(variables.get('XCL_EMULATION_MODE', ''), 'core')}.so.2"


def emulated_boards(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """(URI, platform) of each board that XRT would emulate with these environment variables. Empty
    outside of emulation, or if its configuration cannot be read."""
    if variables.get("XCL_EMULATION_MODE") not in ("sw_emu", "hw_emu"):
        return []
    path = Path(variables.get("EMCONFIG_PATH") or ".") / "emconfig.json"
    try:
        facts = json.loads(read_regular(path, _MAX_BYTES))
        groups = [
            (str(group["Devices"][0]["Name"])[:64], int(group["NumBoards"]))
            for group in facts["Platform"]["Boards"]
        ]
    except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return []
    names = [name for name, count in groups for _ in range(min(max(count, 0), _MAX_BOARDS))]
    return [(f"xrt:{index}", name) for index, name in enumerate(names[:_MAX_BOARDS])]
