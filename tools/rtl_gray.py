"""Whether a word counts in Gray code: its netlist is run, gate by gate, and at most one of its bits
may change a cycle."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from tools.rtl_netlist import Bit, Flop, Gate, Netlist, number

LEAST_CHANGES = 4  # times the word's values, so that it has gone round
GATES: dict[str, Callable[[int, int], int]] = {
    "$_AND_": lambda a, b: a & b,
    "$_OR_": lambda a, b: a | b,
    "$_XOR_": lambda a, b: a ^ b,
}


class Cone:
    """What decides about some flops, inside of one instance. Its inputs are free; those that are
    named stay as they are said to be."""

    def __init__(self, netlist: Netlist, instance: str, fixed: dict[str, int], seed: int) -> None:
        ports = netlist.module_ports[netlist.instances[instance]]
        self.fixed = {netlist.words[f"{instance}.{name}"][0]: v for name, v in fixed.items()}
        self.cut = {
            bit for name, way in ports.items() if way == "input"
            for bit in netlist.words[f"{instance}.{name}"]
        }  # fmt: skip
        self.gates = {bit: gate for gate in netlist.gates for bit in gate.outputs}
        self.flops = {flop.q: flop for flop in netlist.flops}
        self.chance = random.Random(seed)
        self.state: dict[Bit, int] = {}
        self.seen: dict[Bit, int] = {}

    def value(self, bit: Bit) -> int:
        """Now. Bits of flops that are met first begin at random."""
        if isinstance(bit, str):
            return int(bit == "1")
        if bit not in self.seen:
            self.seen[bit] = self._value(bit)
        return self.seen[bit]

    def _value(self, bit: Bit) -> int:
        if bit in self.fixed:
            return self.fixed[bit]
        if bit in self.cut or (bit not in self.flops and bit not in self.gates):
            return self.chance.getrandbits(1)
        if bit in self.flops:
            return self.state.setdefault(bit, self.chance.getrandbits(1))
        gate = self.gates[bit]
        return self._gate(gate, gate.outputs.index(bit))

    def _gate(self, gate: Gate, place: int) -> int:
        pins = {pin: [self.value(bit) for bit in bits] for pin, bits in gate.inputs.items()}
        if gate.kind in GATES:
            return GATES[gate.kind](pins["A"][0], pins["B"][0])
        if gate.kind == "$_NOT_":
            return 1 - pins["A"][0]
        if gate.kind == "$_MUX_":
            return pins["B" if pins["S"][0] else "A"][0]
        if gate.kind in ("$add", "$sub"):
            a, b = (self._integer(gate.parameters, pins, pin) for pin in "AB")
            return (a + b if gate.kind == "$add" else a - b) >> place & 1
        raise ValueError(f"a {gate.kind} decides about a pointer: it has no place here")

    @staticmethod
    def _integer(parameters: dict[str, Any], pins: dict[str, list[int]], pin: str) -> int:
        value = sum(bit << i for i, bit in enumerate(pins[pin]))
        negative = number(parameters[f"{pin}_SIGNED"]) and pins[pin][-1]
        return value - (1 << len(pins[pin])) if negative else value

    def step(self, word: Iterable[Bit]) -> list[int]:
        """Values of the word's bits behind the next edge of all clocks."""
        self.seen = {}
        bits = list(word)
        for bit in bits:
            self.value(bit)
        done: dict[Bit, int] = {}
        while len(done) < len(self.state):  # looking at one may meet others
            for q in [q for q in self.state if q not in done]:
                done[q] = self._next(self.flops[q])
        self.state = done
        self.seen = {}
        return [self.value(bit) for bit in bits]

    def _next(self, flop: Flop) -> int:
        if set(flop.pins) != {"D"}:
            raise ValueError(f"a pointer's flop has {sorted(flop.pins)}: expected D alone")
        return self.value(flop.pins["D"])


def counts_in_gray(netlist: Netlist, instance: str, word: list[Bit], clears: list[str]) -> bool:
    """At most one bit changes a cycle, over many turns of the pointer. `clears`: inputs of the
    instance that empty it; while the other side stands still they may change any bits."""
    cone = Cone(netlist, instance, dict.fromkeys(clears, 1), 1)
    for _ in range(4):
        before = cone.step(word)
    cone.fixed = dict.fromkeys(cone.fixed, 0)
    cycles, changes = 64 << len(word), 0
    for _ in range(cycles):
        now = cone.step(word)
        different = sum(a != b for a, b in zip(before, now, strict=True))
        if different > 1:
            return False
        changes += different
        before = now
        if changes >= LEAST_CHANGES << len(word):
            return True
    return False
