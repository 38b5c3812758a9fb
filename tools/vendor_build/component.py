"""Compares the component.xml that the packager has written with the plan: what was packed is what
the manifest says, before hours of synthesis."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from lora_host.bounded_xml import XmlFault, parse_xml
from lora_host.regular_file import read_regular
from tools.vendor_build.errors import BuildError
from tools.vendor_build.plan import CLOCK, CONTROL, INTERRUPT, RESET, Plan
from tools.vendor_build.signals import Interface

SPIRIT = "{http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009}"
MAX_BYTES = 16 << 20
_TYPES = {
    "aximm": "interface",
    "axis": "interface",
    "clock": "signal",
    "reset": "signal",
    "interrupt": "signal",
}


def check_component(plan: Plan, path: Path) -> list[str]:
    """Differences, one line each. BuildError where the file cannot be read."""
    try:
        root = parse_xml(read_regular(path, MAX_BYTES))
    except (OSError, XmlFault) as cause:
        raise BuildError(f"{path}: cannot be read: {cause}; did the packager write it?") from cause
    buses = {_text(bus, "name"): bus for bus in root.iter(f"{SPIRIT}busInterface")}
    return [
        *_differ("kernel", _text(root, "name"), plan.name),
        *_differ("bus interfaces", sorted(buses), sorted(one.name for one in plan.interfaces)),
        *(
            line
            for one in plan.interfaces
            if one.name in buses
            for line in _bus(one, buses[one.name])
        ),
        *(_clock(plan, buses[CLOCK]) if CLOCK in buses else ()),
        *(_interrupt(buses[INTERRUPT]) if INTERRUPT in buses else ()),
        *_registers(plan, root),
        *_sources(plan, root),
    ]


def _differ(what: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{what}: {found} found, {expected} expected"


def _text(node: ET.Element, path: str) -> str:
    return (node.findtext("/".join(f"{SPIRIT}{part}" for part in path.split("/"))) or "").strip()


def _parameters(node: ET.Element) -> dict[str, str]:
    rows = node.iterfind(f"{SPIRIT}parameters/{SPIRIT}parameter")
    return {_text(row, "name"): _text(row, "value") for row in rows}


def _bus(one: Interface, bus: ET.Element) -> Iterator[str]:
    kind = bus.find(f"{SPIRIT}busType")
    found = (
        ("", "")
        if kind is None
        else (kind.get(f"{SPIRIT}library", ""), kind.get(f"{SPIRIT}name", ""))
    )
    yield from _differ(f"type of {one.name}", found, (_TYPES[one.type], one.type))
    master = bus.find(f"{SPIRIT}master") is not None
    yield from _differ(f"{one.name} is a master", master, one.master)
    maps = {
        _text(row, "logicalPort/name"): _text(row, "physicalPort/name")
        for row in bus.iter(f"{SPIRIT}portMap")
    }
    yield from _differ(
        f"ports of {one.name}", dict(sorted(maps.items())), dict(sorted(one.ports.items()))
    )


def _clock(plan: Plan, bus: ET.Element) -> Iterator[str]:
    values = _parameters(bus)
    clocked = sorted(filter(None, values.get("ASSOCIATED_BUSIF", "").split(":")))
    expected = sorted(one.name for one in plan.interfaces if one.type in ("aximm", "axis"))
    yield from _differ(f"interfaces in the clock {CLOCK}", clocked, expected)
    yield from _differ(f"reset of {CLOCK}", values.get("ASSOCIATED_RESET", ""), RESET)


def _interrupt(bus: ET.Element) -> Iterator[str]:
    yield from _differ(
        "sensitivity of the interrupt", _parameters(bus).get("SENSITIVITY"), "LEVEL_HIGH"
    )


def _registers(plan: Plan, root: ET.Element) -> Iterator[str]:
    maps = {_text(one, "name"): one for one in root.iter(f"{SPIRIT}memoryMap")}
    if CONTROL not in maps:
        yield f"memory map of {CONTROL}: none among {sorted(maps)}"
        return
    for block in maps[CONTROL].iter(f"{SPIRIT}addressBlock"):
        yield from _differ("bytes of the registers", _number(block, "range"), plan.register_bytes)
        yield from _differ("base of the registers", _number(block, "baseAddress"), 0)
        found = {
            _text(row, "name"): (
                _number(row, "addressOffset"), _number(row, "size"),
                _parameters(row).get("ASSOCIATED_BUSIF", ""),
            )
            for row in block.iter(f"{SPIRIT}register")
        }  # fmt: skip
        expected = {one.name: (one.offset, one.bits, one.port) for one in plan.registers}
        for name in sorted(found.keys() | expected.keys()):
            yield from _differ(
                f"register {name} (offset, bits, port)", found.get(name), expected.get(name)
            )
        return
    yield f"address block of {CONTROL}: none"


def _sources(plan: Plan, root: ET.Element) -> Iterator[str]:
    found = {Path(_text(file, "name")).name for file in root.iter(f"{SPIRIT}file")}
    missing = sorted({path.name for path in plan.sources} - found)
    if missing:
        yield f"sources: {', '.join(missing)} not packed"


def _number(node: ET.Element, path: str) -> int:
    try:
        return int(_text(node, path) or "0", 0)
    except ValueError:
        return -1
