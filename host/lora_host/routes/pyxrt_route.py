"""Boards through `pyxrt`, the Python module of an XRT installation: an alternative to the C driver
for listing boards and loading containers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import OverlayError, TransportError
from ..xclbin import read_xclbin


@dataclass(frozen=True)
class PyxrtBoard:
    """A board as reported by pyxrt. `sensors`: readings by name, e.g. "47 C". `xclbin`: uuid of the
    loaded container, "" for none. `clock_mhz`: max clock of the shell."""

    index: int
    uri: str
    shell: str
    xclbin: str
    clock_mhz: int
    sensors: dict[str, str]


def boards() -> list[PyxrtBoard]:
    """All boards that XRT finds. TransportError if pyxrt is not installed or fails."""
    pyxrt = _module()
    return [_board(pyxrt, index) for index in range(_call(pyxrt.enumerate_devices))]


def load(index: int, container: str | Path) -> str:
    """Loads an xclbin on board `index`. Returns the uuid that the board then reports. OverlayError
    if it is not the container's, TransportError if XRT refuses."""
    pyxrt = _module()
    expected = str(read_xclbin(container).uuid)
    device = _call(pyxrt.device, index)
    _call(device.load_xclbin, str(container))
    found = _call(device.get_xclbin_uuid).to_string()
    if found != expected:
        raise OverlayError(
            f"xrt:{index}: uuid {found} found on the board after loading, {expected} expected; "
            "another process may have loaded something else"
        )
    return str(found)


def _module() -> Any:
    try:
        return import_module("pyxrt")
    except ImportError as cause:
        raise TransportError(
            f"pyxrt: {cause}; it comes with XRT and not from PyPI: source "
            "/opt/xilinx/xrt/setup.sh, whose Python it must be"
        ) from cause


def _call(function: Any, *arguments: Any) -> Any:
    """The result of a pyxrt function. Its C++ exceptions are raised as RuntimeError."""
    try:
        return function(*arguments)
    except RuntimeError as cause:
        raise TransportError(f"pyxrt: {cause}; lora doctor shows what is missing") from cause


def _board(pyxrt: Any, index: int) -> PyxrtBoard:
    device = _call(pyxrt.device, index)
    keys = pyxrt.xrt_info_device

    def info(key: Any) -> str:
        return str(_call(device.get_info, key))

    uuid = str(_call(device.get_xclbin_uuid).to_string())
    clock = info(keys.max_clock_frequency_mhz)
    return PyxrtBoard(
        index,
        f"xrt:{info(keys.bdf)}",
        info(keys.name),
        uuid if uuid.strip("0-") else "",
        int(clock) if clock.isdecimal() else 0,
        _sensors(info(keys.thermal), info(keys.electrical)),
    )


def _sensors(thermal: str, electrical: str) -> dict[str, str]:
    """Readings that are present, from two JSON texts whose values are strings."""
    found = {}
    for it in _rows(thermal, "thermals"):
        if it.get("is_present") == "true":
            found[str(it.get("location_id"))] = f"{it.get('temp_C')} C"
    for it in _rows(electrical, "power_rails"):
        for kind, field, unit in (("voltage", "volts", "V"), ("current", "amps", "A")):
            value = it.get(kind)
            if isinstance(value, dict) and value.get("is_present") == "true":
                found[f"{it.get('id')} {kind}"] = f"{value.get(field)} {unit}"
    return found


def _rows(text: str, name: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(text)
    except ValueError:
        return []  # "NA" from a shell without such sensors
    rows = content.get(name) if isinstance(content, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
