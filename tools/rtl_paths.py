"""Longest paths through a mapped netlist of UltraScale+ cells: LUT levels and estimated ns.

Paths begin at flops, memories, registered outputs of DSPs and the unit's inputs; they end at flops,
memories, registered inputs of DSPs and the unit's outputs.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Bit = int | str
LUT = re.compile(r"LUT[1-6]")
FLOP = re.compile(r"FD[RSCP]E(_1)?")
LUT_MEMORY = re.compile(r"RAM\d+(M|X1D|X1S)\d*")
BLOCK_MEMORY = re.compile(r"(RAMB(18|36)E2|URAM288(_BASE)?)")
WIDE = re.compile(r"MUXF[789]")
ALIKE = {"INV", "BUFG", "IBUF", "OBUF"}  # inside of what they lead to
CLOCKS = {"C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK"}
# A DSP's inputs and the registers that may stand behind them.
DSP_INPUTS = {"A": "AREG", "B": "BREG", "C": "CREG", "D": "DREG"}


@dataclass(frozen=True)
class Path:
    """One path. `start`, `end`: registers or ports."""

    start: str
    end: str
    levels: float
    ns: float
    cells: str

    def __str__(self) -> str:
        return (
            f"{self.start} to {self.end}: {self.levels:g} levels, {self.ns:.2f} ns ({self.cells})"
        )


@dataclass
class Arc:
    """From a bit to another one within a cell."""

    source: Bit
    target: Bit
    kind: str
    levels: float
    ns: float


@dataclass
class Graph:
    """Arcs by target; where paths begin (with the clock's delay) and end (with the setup's)."""

    delays: dict[str, float]
    arcs: dict[Bit, list[Arc]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[Bit, tuple[float, str]] = field(default_factory=dict)
    ends: list[tuple[Bit, float, str]] = field(default_factory=list)
    loads: dict[Bit, int] = field(default_factory=lambda: defaultdict(int))
    drivers: dict[Bit, str] = field(default_factory=dict)

    def add(self, source: Bit, target: Bit, kind: str, levels: float, ns: float) -> None:
        if not isinstance(source, str):
            self.arcs[target].append(Arc(source, target, kind, levels, ns))

    def end(self, bit: Bit, ns: float, name: str) -> None:
        if not isinstance(bit, str):
            self.ends.append((bit, ns, name))

    def net(self, bit: Bit, kind: str) -> float:
        """Of the way from a bit's driver to a load of that kind: inside a slice, or routed."""
        driver, alone = self.drivers.get(bit, ""), self.loads[bit] == 1
        if kind == "carry chain" or (kind == "wide" and driver in ("lut", "wide")):
            return self.delays["inside"]
        if alone and (kind, driver) in (("carry", "lut"), ("flop", "lut"), ("flop", "carry")):
            return self.delays["inside"]
        beyond = max(1.0, self.loads[bit] / 8)
        return self.delays["net"] + self.delays["fanout"] * math.log2(beyond)


def parameter(cell: dict[str, Any], name: str, absent: int = 0) -> int:
    """A number of a cell."""
    value = cell["parameters"].get(name, absent)
    return (
        int(value, 2) if isinstance(value, str) and set(value) <= {"0", "1"} and value else absent
    )


def pins(cell: dict[str, Any], way: str) -> Iterator[tuple[str, int, Bit]]:
    """(pin, place, bit) of a cell's inputs or outputs."""
    for pin, bits in cell["connections"].items():
        if cell["port_directions"][pin] == way:
            for place, bit in enumerate(bits):
                yield pin, place, bit


def carry(graph: Graph, cell: dict[str, Any]) -> None:
    """Four bits of a chain: half of a CARRY8."""
    delays = graph.delays
    inputs = list(pins(cell, "input"))
    for pin, place, out in pins(cell, "output"):
        for source, of, bit in inputs:
            if source == "CI":
                ns = delays["carry_on"] if (pin, place) == ("CO", 3) else delays["carry_out"]
                graph.add(bit, out, "carry chain", 0.25, ns)
            elif (
                source == "CYINIT"
                or of < place
                or (of == place and not (pin == "O" and source == "DI"))
            ):
                graph.add(bit, out, "carry", 0.5, delays["carry"])
        graph.drivers[out] = "carry"


def dsp(graph: Graph, name: str, cell: dict[str, Any]) -> None:
    """A DSP48E2 by its registers."""
    delays = graph.delays
    last, middle = parameter(cell, "PREG", 1), parameter(cell, "MREG", 1)
    product = cell["parameters"].get("USE_MULT", "MULTIPLY") != "NONE"
    for pin, _, out in pins(cell, "output"):
        if last:
            graph.starts[out] = (delays["dsp_clock"], name)
        elif middle and product:
            graph.starts[out] = (delays["dsp_clock"] + delays["dsp_sum"], name)
        elif all(parameter(cell, register, 1) for register in ("AREG", "BREG")):
            graph.starts[out] = (delays["dsp_clock"] + delays["dsp"], name)
        graph.drivers[out] = "dsp"
        for source, _, bit in pins(cell, "input"):
            if source in CLOCKS or last or pin not in ("P", "PCOUT"):
                continue
            held = source in DSP_INPUTS and parameter(cell, DSP_INPUTS[source], 1)
            multiplies = source in ("A", "B", "D") and product
            if not held and not (multiplies and middle):
                graph.add(bit, out, "dsp", 0, delays["dsp" if multiplies else "dsp_sum"])
    for source, _, bit in pins(cell, "input"):
        if source in CLOCKS:
            continue
        multiplies = source in ("A", "B", "D") and product
        held = source in DSP_INPUTS and parameter(cell, DSP_INPUTS[source], 1)
        before = 0.0 if held else delays["dsp"] if multiplies and last and not middle else 0.0
        if held or last or (multiplies and middle):
            graph.end(bit, delays["setup"] + before, f"{name}.{source}")


def memory(graph: Graph, name: str, cell: dict[str, Any], block: bool) -> None:
    """Block memory, read by its clock, or LUTs that are memory, read without."""
    delays = graph.delays
    outputs = [bit for _, _, bit in pins(cell, "output")]
    held = parameter(cell, "DOA_REG") or parameter(cell, "DOB_REG")
    clock = "block_held" if block and held else "block_clock" if block else "memory_clock"
    for out in outputs:
        graph.starts[out] = (delays[clock], name)
        graph.drivers[out] = "memory"
    for pin, _, bit in pins(cell, "input"):
        if pin in CLOCKS:
            continue
        graph.end(bit, delays["setup"], f"{name}.{pin}")
        if not block and (
            pin.startswith("ADDR") or pin.startswith("DPRA") or re.fullmatch(r"A\d?", pin)
        ):
            for out in outputs:
                graph.add(bit, out, "lut", 1, delays["memory_read"])


def graph_of(module: dict[str, Any], delays: dict[str, float]) -> Graph:
    """Arcs, begins and ends of a netlist. Raises ValueError for a cell that is not known."""
    graph = Graph(delays)
    named = names_of(module)
    for cell in module["cells"].values():
        for pin, _, bit in pins(cell, "input"):
            if pin not in CLOCKS:
                graph.loads[bit] += 1
    for cell_name, cell in module["cells"].items():
        kind = cell["type"]
        outputs = [bit for _, _, bit in pins(cell, "output")]
        name = next((named[bit] for bit in outputs if bit in named), cell_name)
        if LUT.fullmatch(kind) or WIDE.fullmatch(kind) or kind in ALIKE:
            what = "lut" if LUT.fullmatch(kind) else "wide" if WIDE.fullmatch(kind) else "alike"
            levels = {"lut": 1.0, "wide": 0.5, "alike": 0.0}[what]
            for _, _, bit in pins(cell, "input"):
                graph.add(bit, outputs[0], what, levels, delays.get(what, 0.0))
            graph.drivers[outputs[0]] = what
        elif FLOP.fullmatch(kind):
            graph.starts[outputs[0]] = (delays["clock"], name)
            graph.drivers[outputs[0]] = "flop"
            for pin, _, bit in pins(cell, "input"):
                if pin not in CLOCKS:
                    graph.end(bit, delays["setup"], name if pin == "D" else f"{name}.{pin}")
        elif kind in ("CARRY4", "CARRY8"):
            carry(graph, cell)
        elif kind == "DSP48E2":
            dsp(graph, name, cell)
        elif LUT_MEMORY.fullmatch(kind) or BLOCK_MEMORY.fullmatch(kind):
            memory(graph, name, cell, bool(BLOCK_MEMORY.fullmatch(kind)))
        elif kind not in ("$scopeinfo", "VCC", "GND"):
            raise ValueError(f"{cell_name} is a {kind}: expected cells of UltraScale+; add it")
    for port, told in module["ports"].items():
        for place, bit in enumerate(told["bits"]):
            if told["direction"] == "input":
                graph.starts[bit] = (0.0, f"input {port}[{place}]")
            else:
                graph.end(bit, 0.0, f"output {port}[{place}]")
    return graph


def names_of(module: dict[str, Any]) -> dict[Bit, str]:
    """The shortest name of each bit that the source has given."""
    found: dict[Bit, str] = {}
    for name, net in module["netnames"].items():
        if net.get("hide_name"):
            continue
        wide = len(net["bits"]) > 1
        for place, bit in enumerate(net["bits"]):
            told = f"{name}[{place}]" if wide else name
            if bit not in found or len(told) < len(found[bit]):
                found[bit] = told
    return found


def order(graph: Graph) -> list[Bit]:
    """Bits behind arcs, each behind those that lead to it. Raises ValueError for a loop."""
    done: dict[Bit, bool] = {}
    result: list[Bit] = []
    for first in list(graph.arcs):
        waiting = [(first, False)]
        while waiting:
            bit, left = waiting.pop()
            if left:
                done[bit] = True
                result.append(bit)
                continue
            if bit in done:
                continue
            done[bit] = False
            waiting.append((bit, True))
            for arc in graph.arcs.get(bit, ()):
                if done.get(arc.source) is False:
                    raise ValueError(f"a loop without a flop passes {arc.source}")
                if arc.source not in done and arc.source in graph.arcs:
                    waiting.append((arc.source, False))
    return result


def arrivals(graph: Graph, by_levels: bool) -> dict[Bit, tuple[float, float, Arc | None]]:
    """(levels, ns, the arc before) of the worst path to each bit."""
    found: dict[Bit, tuple[float, float, Arc | None]] = {
        bit: (0.0, ns, None) for bit, (ns, _) in graph.starts.items()
    }
    for bit in order(graph):
        best = found.get(bit)
        for arc in graph.arcs[bit]:
            if arc.source not in found:
                continue  # a constant
            levels, ns, _ = found[arc.source]
            net = 0.0 if arc.kind == "alike" else graph.net(arc.source, arc.kind)
            now = (levels + arc.levels, ns + net + arc.ns, arc)
            if best is None or key(now, by_levels) > key(best, by_levels):
                best = now
        if best is not None:
            found[bit] = best
    return found


def key(one: tuple[float, float, Arc | None], by_levels: bool) -> tuple[float, float]:
    """What is worse is greater."""
    return (one[0], one[1]) if by_levels else (one[1], one[0])


def worst(
    module: dict[str, Any], delays: dict[str, float], count: int
) -> tuple[list[Path], list[Path]]:
    """The worst ends by levels and by ns, at most one a register: `count` of each."""
    graph = graph_of(module, delays)
    return ends(graph, True, count), ends(graph, False, count)


def ends(graph: Graph, by_levels: bool, count: int) -> list[Path]:
    """The worst paths, the worst first."""
    found = arrivals(graph, by_levels)
    reached = []
    for bit, setup, name in graph.ends:
        if bit in found:
            levels, ns, arc = found[bit]
            total = (levels, ns + graph.net(bit, "flop") + setup, arc)
            reached.append((key(total, by_levels), total, bit, name))
    reached.sort(key=lambda one: one[0], reverse=True)
    result: list[Path] = []
    seen: set[str] = set()
    for _, (levels, ns, _), bit, name in reached:
        register = re.sub(r"\[[\d:]+\]", "", name)
        if register not in seen and len(result) < count:
            seen.add(register)
            result.append(traced(graph, found, bit, name, levels, ns))
    return result


def traced(
    graph: Graph, found: dict[Bit, tuple[float, float, Arc | None]], bit: Bit, name: str,
    levels: float, ns: float,
) -> Path:  # fmt: skip
    """One path, from its end."""
    counts: dict[str, int] = defaultdict(int)
    while (arc := found[bit][2]) is not None:
        if arc.kind != "alike":
            counts[arc.kind.removesuffix(" chain")] += 1
        bit = arc.source
    cells = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return Path(graph.starts[bit][1], name, levels, ns, cells)
