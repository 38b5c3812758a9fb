"""A flat netlist of a module in overlays/rtl, by Yosys: gates, flops, memories, names of bits."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Bit = int | str  # a number; constants are text
# Pins of Yosys's flops that take part in what is stored.
DATA, ENABLES, ASYNCHRONOUS = ("D", "AD"), ("E",), ("L", "R", "S")
CLOCKS = {"C", "CLK"}
PASSES = ("proc", "flatten", "opt_clean", "memory_collect", "simplemap", "opt_clean")


@dataclass(frozen=True)
class Flop:
    """One bit. `pins`: what it samples, by pin; `asynchronous`: those without the clock."""

    q: Bit
    clock: Bit
    pins: dict[str, Bit]
    asynchronous: frozenset[str]


@dataclass
class Memory:
    """`reads`: clock (None: none), inputs, data of each port. `writes`: clock, inputs."""

    name: str
    width: int
    reads: list[tuple[Bit | None, list[Bit], list[Bit]]]
    writes: list[tuple[Bit | None, list[Bit]]]


@dataclass
class Gate:
    """Combinational: every output depends on every input."""

    kind: str
    inputs: dict[str, list[Bit]]
    outputs: list[Bit]
    parameters: dict[str, Any]


@dataclass
class Netlist:
    """`instances`: module of each, by path. `module_ports`: directions, by module."""

    ports: dict[str, tuple[str, list[Bit]]]
    words: dict[str, list[Bit]]
    attributes: dict[str, dict[str, Any]]
    instances: dict[str, str]
    module_ports: dict[str, dict[str, str]]
    flops: list[Flop] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    names: dict[Bit, list[tuple[str, int]]] = field(default_factory=lambda: defaultdict(list))


def synthesize(top: str, files: list[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(modules before they are joined, the joined one), as Yosys's JSON has them."""
    from pyosys import libyosys

    design = libyosys.Design()
    with tempfile.TemporaryDirectory() as folder:
        whole, flat = Path(folder) / "whole.json", Path(folder) / "flat.json"
        for line in (
            f"read_slang -j 1 -D LORA_FLAT --keep-hierarchy --top {top} "
            + " ".join(map(str, files)),
            f"write_json {whole}",
            *PASSES,
            f"write_json {flat}",
        ):
            libyosys.run_pass(line, design)
        return json.loads(whole.read_text())["modules"], json.loads(flat.read_text())["modules"]


def base_name(module: str) -> str:
    """Without what tells instances of one module apart."""
    return module.removeprefix("\\").split("$")[0]


def instances_of(modules: dict[str, Any], top: str) -> dict[str, str]:
    """Module of every instance below, by its path."""
    found: dict[str, str] = {}

    def walk(module: str, path: str) -> None:
        for name, cell in modules[module]["cells"].items():
            if cell["type"] in modules:
                below = f"{path}{name}".removeprefix("\\")
                found[below] = base_name(cell["type"])
                walk(cell["type"], f"{below}.")

    walk(top, "")
    return found


def number(text: Any) -> int:
    """A parameter's value."""
    return int(text, 2) if isinstance(text, str) else int(text)


def memory_of(name: str, cell: dict[str, Any]) -> Memory:
    """A $mem_v2 cell, port by port."""
    parameters, pins = cell["parameters"], cell["connections"]
    width, address = number(parameters["WIDTH"]), number(parameters["ABITS"])

    def of(port: str, place: int, size: int) -> list[Bit]:
        bits: list[Bit] = pins[port][place * size : (place + 1) * size]
        return bits

    def clocked(parameter: str, place: int) -> bool:
        return bool(number(parameters[parameter]) >> place & 1)

    reads = []
    for i in range(number(parameters["RD_PORTS"])):
        clock = pins["RD_CLK"][i] if clocked("RD_CLK_ENABLE", i) else None
        inputs = of("RD_ADDR", i, address)
        if clock is not None:
            inputs = [*inputs, *(pins[pin][i] for pin in ("RD_EN", "RD_ARST", "RD_SRST"))]
        reads.append((clock, inputs, of("RD_DATA", i, width)))
    writes = []
    for i in range(number(parameters["WR_PORTS"])):
        clock = pins["WR_CLK"][i] if clocked("WR_CLK_ENABLE", i) else None
        inputs = of("WR_ADDR", i, address) + of("WR_DATA", i, width) + of("WR_EN", i, width)
        writes.append((clock, inputs))
    return Memory(name.removeprefix("\\"), width, reads, writes)


def flop_of(cell: dict[str, Any]) -> Flop:
    """A flop of one bit."""
    pins = {pin: bits[0] for pin, bits in cell["connections"].items()}
    asynchronous = frozenset(pins) & set(ASYNCHRONOUS) if "_SDFF" not in cell["type"] else set()
    sampled = {pin: bit for pin, bit in pins.items() if pin not in ("Q", "C")}
    return Flop(pins["Q"], pins["C"], sampled, frozenset(asynchronous))


def read_cells(netlist: Netlist, cells: dict[str, Any]) -> None:
    """Flops, memories and gates. A latch has no place here."""
    for name, cell in cells.items():
        kind = cell["type"]
        if kind == "$scopeinfo":
            continue
        if kind == "$mem_v2":
            netlist.memories.append(memory_of(name, cell))
        elif "DFF" in kind and "Q" in cell["connections"]:
            netlist.flops.append(flop_of(cell))
        elif kind.startswith("$") and "Q" not in cell["connections"]:
            ways = cell["port_directions"]
            pins = cell["connections"]
            inputs = {pin: bits for pin, bits in pins.items() if ways[pin] == "input"}
            outputs = [bit for pin, bits in pins.items() if ways[pin] == "output" for bit in bits]
            netlist.gates.append(Gate(kind, inputs, outputs, cell["parameters"]))
        else:
            raise ValueError(f"{name} is a {kind}: expected gates, flops and memories; change it")


def netlist_of(top: str, files: list[Path]) -> Netlist:
    """The module `top` with all below it. Raises ValueError for a cell that cannot be judged."""
    modules, flat = synthesize(top, files)
    joined = flat[top]
    ports = {name: (port["direction"], port["bits"]) for name, port in joined["ports"].items()}
    netlist = Netlist(
        ports,
        {name: word["bits"] for name, word in joined["netnames"].items() if not word["hide_name"]},
        {name: word["attributes"] for name, word in joined["netnames"].items()},
        instances_of(modules, top),
        {
            base_name(name): {pin: port["direction"] for pin, port in module["ports"].items()}
            for name, module in modules.items()
        },
    )
    for name, bits in netlist.words.items():
        for place, bit in enumerate(bits):
            netlist.names[bit].append((name, place))
    read_cells(netlist, joined["cells"])
    return netlist
