"""Paths from one clock's flops into another's, in the netlist of a module of overlays/rtl.

`python -m tools.rtl_crossings [TOP] [--json]` (TOP: control_clocks, or another of
overlays/rtl/crossings.yaml) prints a line a crossing: cell, instance, from, to, bits. A path
that is not in one of the listed cells, at its place there, is an error. `--sources DIR` judges
other sources.
Exit: 0 all right, 1 a path that is none of these, 2 wrong use. Needs the extra `rtl` (pyosys).

    python -m tools.rtl_crossings
    python -m tools.rtl_crossings memory_port --json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.rtl_cells import RTL, quiet_output, sources
from tools.rtl_gray import counts_in_gray
from tools.rtl_netlist import Bit, Flop, Gate, Memory, Netlist, netlist_of

DECLARED = RTL / "crossings.yaml"
LIMIT = 20  # lines of errors
CLEARS = ["from_clear", "to_clear"]  # of async_fifo
# Registers that take another clock's bits, by cell, and where these come from.
WORDS = {("word_cross", "taken"): "held", ("async_fifo", "out_word"): "words"}


@dataclass(frozen=True)
class Source:
    """Where a path begins: a flop or a port, or a memory (its name) that has no bit of its own."""

    bit: Bit | None
    memory: str
    domain: str


@dataclass(frozen=True)
class Sink:
    """Where it ends: a flop's pin, a memory's or a port."""

    pin: str
    bit: Bit
    domain: str
    flop: Flop | None = None
    name: str = ""


@dataclass(frozen=True, order=True)
class Crossing:
    """A cell between two clocks. `bits`: that it takes over."""

    cell: str
    instance: str
    source: str
    target: str
    bits: int


def shares(declared: Any, bits: list[Bit]) -> list[str]:
    """Domain of each bit of a port."""
    names = declared if isinstance(declared, list) else [declared]
    each = len(bits) // len(names)
    return [names[place // each] for place in range(len(bits))]


class Domains:
    """Which clock's flops reach a bit without one between."""

    def __init__(self, netlist: Netlist, declared: dict[str, Any]) -> None:
        self.netlist = netlist
        self.gates = {bit: gate for gate in netlist.gates for bit in gate.outputs}
        self.clocks: dict[Bit, str] = {}
        for name, domain in declared["clocks"].items():
            bits = netlist.ports[name][1]
            self.clocks |= dict(zip(bits, shares(domain, bits), strict=True))
        self.ports = {name: self._of_port(name, declared) for name in netlist.ports}
        self.sources: dict[Bit, Source] = {}
        self._find_sources()
        self.reached: dict[Bit, frozenset[str]] = {}

    def _of_port(self, name: str, declared: dict[str, Any]) -> list[str]:
        bits = self.netlist.ports[name][1]
        if name in declared["clocks"]:
            return shares(declared["clocks"][name], bits)
        for start, domain in declared["ports"].items():
            if name.startswith(start):
                return shares(domain, bits)
        raise ValueError(f"port {name} has no domain: add it to {DECLARED.name}")

    def clock(self, bit: Bit | None, what: str) -> str:
        """The domain of a clock pin. Raises ValueError where it is no declared clock."""
        if bit not in self.clocks:
            raise ValueError(
                f"{what} is clocked by {self.name(bit)}: expected a port that is a clock"
            )
        return self.clocks[bit]

    def name(self, bit: Bit | None) -> str:
        """The best name of a bit, for people."""
        if bit is None or bit not in self.netlist.names:
            return f"net {bit}"
        name, place = min(self.netlist.names[bit], key=lambda one: (one[0].count("."), one))
        return f"{name}[{place}]" if len(self.netlist.words[name]) > 1 else name

    def _find_sources(self) -> None:
        for name, (way, bits) in self.netlist.ports.items():
            if way == "input":
                for bit, domain in zip(bits, self.ports[name], strict=True):
                    self.sources[bit] = Source(bit, "", domain)
        for flop in self.netlist.flops:
            self.sources[flop.q] = Source(flop.q, "", self.clock(flop.clock, self.name(flop.q)))
        for memory in self.netlist.memories:
            self._find_memory(memory)

    def _find_memory(self, memory: Memory) -> None:
        writers = {self.clock(clock, memory.name) for clock, _ in memory.writes}
        if len(writers) > 1:
            raise ValueError(f"{memory.name} is written by {sorted(writers)}: expected one clock")
        for clock, inputs, data in memory.reads:
            domain = (
                self.clock(clock, memory.name) if clock is not None else min(writers, default="")
            )
            if not domain:
                continue  # a table
            if clock is not None and writers - {domain}:
                raise ValueError(f"{memory.name} is read by {domain}'s clock: read it without one")
            for bit in data:
                self.sources[bit] = Source(None, memory.name, domain)
            if clock is None:  # its address reaches the data too
                gate = Gate("read", {"ADDRESS": inputs}, data, {})
                self.gates |= dict.fromkeys(data, gate)

    def at(self, bit: Bit) -> frozenset[str]:
        """Domains that reach the bit."""
        waiting = [bit]
        while waiting:
            now = waiting[-1]
            if now in self.reached:
                waiting.pop()
                continue
            inputs = self._inputs(now)
            missing = [one for one in inputs if one not in self.reached]
            if missing:
                self._guard(waiting, missing)
                waiting += missing
                continue
            own = {self.sources[now].domain} if now in self.sources else set[str]()
            self.reached[now] = frozenset(own.union(*(self.reached[one] for one in inputs)))
            waiting.pop()
        return self.reached[bit]

    def _guard(self, waiting: list[Bit], missing: list[Bit]) -> None:
        if len(waiting) > 4 * len(self.gates) + 10_000_000:
            raise ValueError(f"a loop without a flop passes {self.name(missing[0])}")

    def _inputs(self, bit: Bit) -> list[Bit]:
        gate = self.gates.get(bit)
        if gate is None:
            return []
        return [one for bits in gate.inputs.values() for one in bits if not isinstance(one, str)]

    def foreign(self, sink: Sink) -> tuple[list[Source], list[tuple[Gate, str]]]:
        """(where paths from other domains begin, the gates that they pass and by which pin)."""
        found, passed, seen = list[Source](), list[tuple[Gate, str]](), {sink.bit}
        waiting = [sink.bit]
        while waiting:
            bit = waiting.pop()
            source, gate = self.sources.get(bit), self.gates.get(bit)
            if source and source.domain != sink.domain:
                found.append(source)
            for pin, bits in gate.inputs.items() if gate else ():
                for one in bits:
                    if isinstance(one, str) or not self.at(one) - {sink.domain}:
                        continue
                    assert gate
                    passed.append((gate, pin))
                    if one not in seen:
                        seen.add(one)
                        waiting.append(one)
        return found, passed


class Crossings:
    """All paths between domains: `found` those that are allowed, `wrong` the others."""

    def __init__(self, netlist: Netlist, declared: dict[str, Any], cells: list[str]) -> None:
        self.netlist, self.cells = netlist, cells
        self.domains = Domains(netlist, declared)
        self.wrong: list[str] = []
        self.bits: dict[tuple[str, str, str], int] = defaultdict(int)
        self.synchronized: dict[Bit, list[str]] = defaultdict(list)
        for sink in self._sinks():
            if self.domains.at(sink.bit) - {sink.domain}:
                self._judge(sink)
        self._single_bits()
        self._second_flops()

    @property
    def found(self) -> list[Crossing]:
        return sorted(
            Crossing(self.netlist.instances[instance], instance, source, target, count)
            for (instance, source, target), count in self.bits.items()
        )

    def _sinks(self) -> Iterator[Sink]:
        domains = self.domains
        for flop in self.netlist.flops:
            domain = domains.clock(flop.clock, domains.name(flop.q))
            for pin, bit in flop.pins.items():
                if not isinstance(bit, str):
                    yield Sink(pin, bit, domain, flop, domains.name(flop.q))
        for memory in self.netlist.memories:
            for clock, inputs in memory.writes:
                domain = domains.clock(clock, memory.name)
                for bit in inputs:
                    if not isinstance(bit, str):
                        yield Sink("write", bit, domain, name=memory.name)
        for name, (way, bits) in self.netlist.ports.items():
            for bit, domain in zip(bits, domains.ports[name], strict=True):
                if way == "output" and not isinstance(bit, str):
                    yield Sink("port", bit, domain, name=name)

    def _place(self, bit: Bit) -> Iterator[tuple[str, str, str, int]]:
        """(instance, its module, register, place in it) of a bit that is a register of a cell."""
        for name, place in self.netlist.names.get(bit, ()):
            instance, _, register = name.rpartition(".")
            if instance in self.netlist.instances:
                yield instance, self.netlist.instances[instance], register, place

    def _outermost(self, instance: str) -> str:
        """The listed cell that an instance belongs to."""
        parts = instance.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if self.netlist.instances.get(path) in self.cells:
                return path
        return ""

    def _judge(self, sink: Sink) -> None:
        sources, passed = self.domains.foreign(sink)
        instance = self._allowed(sink, sources, passed)
        listed = self._outermost(instance) if instance else ""
        if listed:
            self.bits[listed, sources[0].domain, sink.domain] += 1
            return
        first = sources[0]
        start = first.memory or self.domains.name(first.bit)
        self.wrong.append(
            f"{start} ({first.domain}) reaches {sink.name}, {sink.pin} ({sink.domain}), "
            f"through {len(passed)} gates: expected one of the cells {', '.join(self.cells)}"
        )

    def _allowed(
        self, sink: Sink, sources: list[Source], passed: list[tuple[Gate, str]]
    ) -> str | None:
        """The instance that takes the path over, if it does so as it should."""
        if sink.flop is None or len(sources) != 1:
            return None
        source = sources[0]
        for instance, module, register, place in self._place(sink.flop.q):
            if (module, register) == ("bit_sync", "first") and sink.pin == "D" and not passed:
                if source.bit is None:
                    return None
                self.synchronized[source.bit].append(instance)
                return instance
            resets = module == "reset_sync" and register in ("caught", "leaves")
            if resets and sink.pin in sink.flop.asynchronous and not passed:
                return instance
            origin = WORDS.get((module, register))
            if origin and sink.pin == "D" and self._taken(source, passed, instance, origin, place):
                return instance
        return None

    def _taken(
        self, source: Source, passed: list[tuple[Gate, str]], instance: str, origin: str, place: int
    ) -> bool:
        """From the cell's own register or memory, through nothing but the choice to take it."""
        if any(gate.kind != "$_MUX_" or pin == "S" for gate, pin in passed) or len(passed) > 1:
            return False
        if source.bit is None:
            return source.memory == f"{instance}.{origin}"
        return (f"{instance}.{origin}", place) in self.netlist.names[source.bit]

    def _single_bits(self) -> None:
        """Two bits of a word that cross by themselves arrive as no value that it had, but in Gray
        code."""
        judged = set[str]()
        for bit in list(self.synchronized):
            for name, _ in self.netlist.names[bit]:
                crossing = [one for one in self.netlist.words[name] if one in self.synchronized]
                if len(set(crossing)) < 2 or name in judged:
                    continue
                judged.add(name)
                instance = self._outermost(self.synchronized[bit][0])
                if not self._gray(instance, self.netlist.words[name]):
                    self.wrong.append(
                        f"{len(set(crossing))} bits of {name} cross one by one: expected a word in "
                        "Gray code, or word_cross"
                    )

    def _gray(self, instance: str, word: list[Bit]) -> bool:
        if self.netlist.instances.get(instance) != "async_fifo":
            return False
        return counts_in_gray(self.netlist, instance, word, CLEARS)

    def _second_flops(self) -> None:
        """A synchronizer's first flop is for its second one alone, and both are marked."""
        firsts = {
            bit: instance
            for instance, module in self.netlist.instances.items() if module == "bit_sync"
            for bit in self.netlist.words.get(f"{instance}.first", [])  # nobody needs it
        }  # fmt: skip
        users: dict[Bit, int] = defaultdict(int)
        for flop in self.netlist.flops:
            for bit in flop.pins.values():
                users[bit] += 1
        for gate in self.netlist.gates:
            for bits in gate.inputs.values():
                for bit in bits:
                    users[bit] += 1
        for bit, instance in firsts.items():
            marked = all(
                "ASYNC_REG" in self.netlist.attributes[f"{instance}.{name}"]
                for name in ("first", "second")
            )
            if users[bit] != 1 or not marked:
                self.wrong.append(
                    f"{instance}: its first flop has {users[bit]} readers, "
                    f"{'marked' if marked else 'not marked'}: expected one, ASYNC_REG"
                )


def judge(top: str, folder: Path = RTL) -> Crossings:
    """All crossings of one module. Raises ValueError where its clocks cannot be told."""
    declared = yaml.safe_load(DECLARED.read_text())
    netlist = netlist_of(top, sources(folder))
    return Crossings(netlist, declared["tops"][top], declared["cells"])


def main() -> int:
    tops = list(yaml.safe_load(DECLARED.read_text())["tops"])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("top", nargs="?", default=tops[0], choices=tops)
    parser.add_argument("--sources", type=Path, default=RTL, help="folder like overlays/rtl")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        with quiet_output():
            crossings = judge(given.top, given.sources)
    except ValueError as error:
        print(f"{given.top}: {error}", file=sys.stderr)
        return 1
    found, wrong = crossings.found, crossings.wrong
    if given.json:
        print(json.dumps({"crossings": [asdict(one) for one in found], "wrong": wrong}))
    else:
        rows = [("cell", "instance", "from", "to", "bits")]
        rows += [(one.cell, one.instance, one.source, one.target, str(one.bits)) for one in found]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print(
                "  ".join(
                    text.ljust(width) for text, width in zip(row, widths, strict=True)
                ).rstrip()
            )
    for line in wrong[:LIMIT]:
        print(f"{given.top}: {line}", file=sys.stderr)
    if len(wrong) > LIMIT:
        print(f"{given.top}: {len(wrong) - LIMIT} more", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
