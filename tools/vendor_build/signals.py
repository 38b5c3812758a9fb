"""Signals of the interfaces that a kernel has, as AMBA names them."""

from __future__ import annotations

from dataclasses import dataclass

ADDRESS_BITS = 64  # of a memory port: the vendor's shells ask for that many
LINE_BITS = 512  # LORA_LINE_BYTES
LITE_BITS = 32


@dataclass(frozen=True)
class Signal:
    """A wire of an interface. `output`: of the kernel."""

    logical: str
    width: int
    output: bool


@dataclass(frozen=True)
class Interface:
    """A bus interface of a kernel. `name` is also how its ports begin. `type`: aximm, axis, clock,
    reset or interrupt. `bank`: what a memory port leads to."""

    name: str
    type: str
    master: bool
    signals: tuple[Signal, ...]
    width: int
    bank: str = ""

    @property
    def ports(self) -> dict[str, str]:
        """Logical name -> port."""
        if self.type in ("clock", "reset", "interrupt"):
            return {signal.logical: self.name for signal in self.signals}
        return {one.logical: f"{self.name}_{one.logical.lower()}" for one in self.signals}


def registers(name: str, address_bits: int) -> Interface:
    """An AXI4-Lite slave."""
    return Interface(
        name,
        "aximm",
        False,
        _channels(address=address_bits, data=LITE_BITS, master=False),
        LITE_BITS,
    )


def memory(name: str, bank: str, id_bits: int) -> Interface:
    """An AXI4 master of lines."""
    signals = _channels(address=ADDRESS_BITS, data=LINE_BITS, master=True, id_bits=id_bits)
    return Interface(name, "aximm", True, signals, LINE_BITS, bank)


def stream(name: str, master: bool, data_bytes: int) -> Interface:
    """AXI4-Stream of frames."""
    rows = (("TDATA", 8 * data_bytes), ("TKEEP", data_bytes), ("TLAST", 1), ("TVALID", 1))
    signals = (
        *(Signal(name, width, master) for name, width in rows),
        Signal("TREADY", 1, not master),
    )
    return Interface(name, "axis", master, signals, 8 * data_bytes)


def wire(name: str, kind: str) -> Interface:
    """A clock, a reset (active low) or the interrupt."""
    logical = {"clock": "CLK", "reset": "RST", "interrupt": "INTERRUPT"}[kind]
    output = kind == "interrupt"
    return Interface(name, kind, output, (Signal(logical, 1, output),), 1)


def _channels(address: int, data: int, master: bool, id_bits: int = 0) -> tuple[Signal, ...]:
    """Of AXI4-Lite where there are no IDs."""
    lite = not id_bits
    burst = () if lite else (("ID", id_bits), ("LEN", 8), ("SIZE", 3), ("BURST", 2))
    identity = () if lite else (("ID", id_bits),)
    last = () if lite else (("LAST", 1),)
    rows: list[tuple[str, int, bool]] = []  # of the master's side
    for channel, forward, fields in (
        ("AW", True, (("ADDR", address), *burst)),
        ("W", True, (("DATA", data), ("STRB", data // 8), *last)),
        ("B", False, (*identity, ("RESP", 2))),
        ("AR", True, (("ADDR", address), *burst)),
        ("R", False, (*identity, ("DATA", data), ("RESP", 2), *last)),
    ):
        rows += [(f"{channel}{field}", width, forward) for field, width in (("VALID", 1), *fields)]
        rows.append((f"{channel}READY", 1, not forward))
    return tuple(Signal(name, width, forward == master) for name, width, forward in rows)
