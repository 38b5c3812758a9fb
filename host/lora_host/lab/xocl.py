"""Data on an Alveo board in sysfs from the driver xocl, without opening the board: the loaded
container (any vendor's), its banks and link cores, shell and sensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from .. import axlf
from ..errors import OverlayError
from ..xclbin import Xclbin, parse_xclbin, write_xclbin
from .bare import banks_of, cores_of

# Node of the card's management controller -> (name, unit, factor)
SENSORS = {
    "xmc_fpga_temp": ("fpga_temp", "C", 1.0),
    "xmc_dimm_temp0": ("dimm_temp", "C", 1.0),
    "xmc_fan_rpm": ("fan", "rpm", 1.0),
    "xmc_vccint_vol": ("vccint", "V", 1e-3),
    "xmc_vccint_curr": ("vccint_current", "A", 1e-3),
    "xmc_12v_pex_vol": ("12v_pex", "V", 1e-3),
    "xmc_12v_aux_vol": ("12v_aux", "V", 1e-3),
    "xmc_12v_pex_curr": ("12v_pex_current", "A", 1e-3),
    "xmc_12v_aux_curr": ("12v_aux_current", "A", 1e-3),
}


@dataclass(frozen=True)
class Loaded:
    """The loaded container: banks and link cores by name."""

    uuid: str
    banks: tuple[str, ...]
    cores: tuple[str, ...]


def _first(folder: Path, pattern: str) -> bytes | None:
    for path in sorted(folder.glob(pattern)):
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None


def _text(folder: Path, pattern: str) -> str:
    return (_first(folder, pattern) or b"").decode(errors="replace").strip("\0 \r\n")


def shell(folder: Path) -> str:
    """Name of the board's shell (platform), "" if the driver does not report it."""
    return _text(folder, "rom*/VBNV")


def loaded(folder: Path) -> Loaded | None:
    """The loaded container, None if nothing is loaded or there is no driver. OverlayError if the
    driver's tables are invalid."""
    uuid = _text(folder, "xclbinuuid")
    if not uuid.strip("0-"):
        return None
    container = _sections(folder, uuid)
    return Loaded(
        uuid,
        tuple(bank.name for bank in banks_of(container)),
        tuple(core.name for core in cores_of(container)),
    )


def _sections(folder: Path, uuid: str) -> Xclbin:
    """The driver's copies of the container's sections, checked by the xclbin reader."""
    sections = []
    for kind, node in ((axlf.MEM_TOPOLOGY, "mem_topology"), (axlf.IP_LAYOUT, "ip_layout")):
        content = _first(folder, f"icap*/{node}")
        if content:
            sections.append((kind, content))
    try:
        identity = UUID(uuid)
    except ValueError as cause:
        raise OverlayError(f"{folder.name}: xclbinuuid {uuid!r}: a uuid expected") from cause
    return parse_xclbin(write_xclbin(identity, axlf.MODE_FLAT, "", sections), folder.name)


def sensors(folder: Path) -> dict[str, str]:
    """Readings by name. A value of 0 means that the card does not have the sensor."""
    found = {}
    for node, (name, unit, factor) in SENSORS.items():
        text = _text(folder, f"xmc*/{node}")
        if text.isdecimal() and int(text):
            found[name] = f"{int(text) * factor:g} {unit}"
    power = sum(_power(found, rail) for rail in ("12v_pex", "12v_aux"))
    if power:  # as xbutil reports it
        found["power"] = f"{power:.3g} W"
    return found


def _power(found: dict[str, str], rail: str) -> float:
    """Watts of a supply rail, 0 where its voltage or its current is not known."""
    volts, amperes = (found.get(name, "0").split()[0] for name in (rail, f"{rail}_current"))
    return float(volts) * float(amperes)
