"""The table of faults: what each is, where and when it can strike, who finds it, and how a run may
end. A further kind is a row."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lora_host import abi
from lora_lab.torture.ecc_faults import (
    Place,
    command_list,
    control_tables,
    flip,
    keys_and_values,
    weight,
)
from lora_lab.torture.faults import Fault
from lora_lab.torture.memory_faults import (
    flip_adapter,
    flip_list,
    flip_weight,
    ruin_weights,
)
from lora_lab.torture.numbers import (
    ACCESSES,
    ALL_FRAMES,
    AWAY,
    BACK,
    COMMANDS,
    CONFIGURATION,
    FILED,
    JUMP,
    LATE_FRAME,
    ONE_FRAME,
    ONE_PORT,
    PAUSE,
    PLACE,
    POLLS,
    SLOWNESS,
    TRANSFERS,
    WORD_BIT,
    Number,
)
from lora_lab.torture.target import Target

Ends = Literal["text", "text or error"]

STEPS = ("prefill", "decode", "own loop", "verify", "adapter load", "hand-over", "recovery")
"""Phases in which steps run."""
PHASES = (*STEPS, "load", "links", "close")
GUARDED = tuple(phase for phase in STEPS if phase != "hand-over")
"""Phases of requests. Logits of the token API are given out before weights are summed."""
WIRE = (*STEPS, "links")

_LINK = ("LINK_DOWN", "LINK_CRC", "LINK_STATUS", "LINK_PAYLOAD", "LINK_POISON", "LINK_CABLING")
_HANG = ("TIMEOUT", "WATCHDOG")


@dataclass(frozen=True)
class Kind:
    """A row. `names`: what an error must name: the board, the board and its unit, or one end of the
    cable. `codes`: statuses that it may have (lora_status without LORA_ERR_). `ends`: whether
    requests may end with that error, in phases where steps run. `certain`: it cannot pass
    unnoticed in a step of a phase in `sure`. `least`: boards that it needs. `numbers`: what a
    fault of it is drawn with. `loses`: a board is gone for good."""

    name: str
    group: str
    phases: tuple[str, ...]
    plant: Callable[[Target, Fault], None]
    found_by: str
    names: Literal["board", "unit", "cable", "place", "bank", "nothing"]
    codes: tuple[str, ...]
    ends: Ends = "text"
    sure: tuple[str, ...] = ()
    least: int = 1
    numbers: tuple[Number, ...] = ()
    loses: bool = False
    unit: int | None = None

    def draw(self, draws: random.Random) -> tuple[int, ...]:
        """Numbers of a fault."""
        return tuple(number.draw(draws) for number in self.numbers)

    @property
    def code_numbers(self) -> frozenset[int]:
        """`codes` as numbers."""
        return frozenset(int(getattr(abi, f"ERR_{name}")) for name in self.codes)


def _of(kind: int, *fixed: int) -> Callable[[Target, Fault], None]:
    """Plants a fault of the emulator, which a reset heals."""

    def plant(target: Target, fault: Fault) -> None:
        numbers = (*fixed, *fault.numbers)
        target.fault(fault.board, kind | abi.FAULT_UNTIL_RESET, *numbers)

    return plant


def _misconfigure(target: Target, fault: Fault) -> None:
    """All ports: a board of a path has one without a cable."""
    for port in range(abi.PORTS):
        _of(abi.FAULT_LINK_CONFIG, port)(target, fault)


def _unit(name: str, unit: int) -> Kind:
    codes = (*_HANG, "LINK_POISON", "GATHERED")
    return Kind(
        f"{name} stuck", "units", (*STEPS, "close"), _of(abi.FAULT_UNIT_STUCK, unit),
        "the board's watchdog", "unit", codes, sure=("prefill", "decode"), unit=unit,
        least=2 if unit == abi.UNIT_ROUTER else 1,
    )  # fmt: skip


def _failing(name: str, unit: int) -> tuple[Kind, ...]:
    """A command that a unit says has failed, and one of which it knows nothing."""
    faults = {"fails": abi.FAULT_UNIT_FAILS, "loses a command": abi.FAULT_UNIT_FORGETS}
    return tuple(
        Kind(
            f"{name} {what}", "units", (*STEPS, "close"), _of(kind, unit),
            "the unit's state", "unit", ("UNIT",), sure=("prefill", "decode"),
            unit=unit, numbers=COMMANDS, least=2 if unit == abi.UNIT_ROUTER else 1,
        )
        for what, kind in faults.items()
    )  # fmt: skip


def _slow(name: str, unit: int) -> Kind:
    return Kind(
        f"{name} slow", "units", (*STEPS, "close"), _of(abi.FAULT_UNIT_SLOW, unit),
        "nothing: the limits leave it time", "nothing", (), unit=unit,
        numbers=SLOWNESS,
    )  # fmt: skip


def _link(
    name: str,
    kind: int,
    found_by: str,
    numbers: tuple[Number, ...] = ONE_FRAME,
    codes: tuple[str, ...] = (*_LINK, "WATCHDOG"),
    **more: tuple[str, ...],
) -> Kind:
    return Kind(
        name, "links", (*WIRE, "close"), _of(kind), found_by, "cable", codes, least=2,
        numbers=numbers, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _record(name: str, kind: int) -> Kind:
    return Kind(
        name, "control", (*STEPS, "close"), _of(kind),
        "the record's number and epoch", "board", ("COMPLETION", *_HANG),
        sure=("prefill", "decode"),
    )  # fmt: skip


def _control(
    name: str,
    kind: int,
    found_by: str,
    codes: tuple[str, ...],
    numbers: tuple[Number, ...] = (),
    sure: tuple[str, ...] = ("prefill", "decode"),
    loses: bool = False,
) -> Kind:
    phases = (*STEPS, "load", "links", "close")
    return Kind(
        name, "control", phases, _of(kind), found_by, "board", codes, sure=sure,
        numbers=numbers, loses=loses,
    )  # fmt: skip


def _access(name: str, kind: int) -> Kind:
    """A transfer of the host that ends in an error. K and V that are handed over are not asked for
    again."""
    return Kind(
        name, "transfers", (*GUARDED, "load", "links", "close"), _of(kind), "the transfer's error",
        "board", ("TRANSPORT",), sure=("prefill", "decode"), numbers=ACCESSES,
    )  # fmt: skip


def _transfer(name: str, kind: int) -> Kind:
    codes = ("STEP", "CRC", "SIZE", "ABI", "LIST", "KV", "ROW", "ADDRESS", "GATHERED", "COMPLETION",
             "LINK_POISON", "OPERATION", "WATCHDOG", "TIMEOUT", "LINK_PAYLOAD",
             "LINK_CABLING", "LINK_CRC", "LINK_STATUS")  # fmt: skip
    return Kind(
        name, "transfers", ("load", "links", "close"), _of(kind),
        "sums of weights, seals of lists, the link test's own pattern", "board", codes,
        ends="text or error", numbers=TRANSFERS,
    )  # fmt: skip


def _ecc(
    what: str, place: Place, phases: tuple[str, ...], sure: tuple[str, ...], ends: Ends = "text"
) -> list[Kind]:
    """One wrong bit of a word, which ECC corrects and counts, and two, which it finds."""
    codes = ("ECC", "LINK_POISON", "WATCHDOG", "TIMEOUT", "CRC")
    return [
        Kind(
            f"bit of {what}, with ECC", "memory", phases, flip(place, twice=False),
            "ECC, which corrects and counts it", "nothing", (), sure=sure, numbers=WORD_BIT,
        ),
        Kind(
            f"two bits of {what}, with ECC", "memory", phases, flip(place, twice=True),
            "ECC, which fails the read", "bank", codes, ends, sure, numbers=WORD_BIT,
        ),
    ]  # fmt: skip


KINDS: tuple[Kind, ...] = (
    _link("bit flipped on a link", abi.FAULT_LINK_FLIP, "the frame's CRC"),
    _link(
        "bits flipped without end", abi.FAULT_LINK_FLIP, "the frame's CRC", ALL_FRAMES,
    ),
    _link("frame lost", abi.FAULT_LINK_DROP, "the Router's watchdog"),
    _link("frame sent twice", abi.FAULT_LINK_DUPLICATE, "its place in the gather"),
    _link("frames reordered", abi.FAULT_LINK_REORDER, "their places in the gather"),
    _link("frame of an old epoch", abi.FAULT_LINK_STALE, "its epoch, then the Router's watchdog"),
    _link("frame delayed", abi.FAULT_LINK_DELAY, "nothing: the limits leave it time", LATE_FRAME),
    _link(
        "block garbled, CRC right", abi.FAULT_LINK_GARBLE, "digests of what boards gathered",
        ONE_FRAME, (*_LINK, "WATCHDOG", "GATHERED"),
    ),
    _link("lane down", abi.FAULT_LINK_DOWN, "the Router's status, else its watchdog", ONE_PORT),
    _link(
        "ports swapped", abi.FAULT_LINK_SWAP, "places of frames; in the link test, the far board",
        (), (*_LINK, "WATCHDOG", "GATHERED"),
    ),
    Kind(
        "links configured wrongly", "links", ("links",), _misconfigure,
        "the link's configuration", "cable", ("LINK_CONFIG",), sure=("links",), least=2,
        numbers=CONFIGURATION,
    ),
    Kind(
        "blocks filed wrongly", "units", STEPS, _of(abi.FAULT_MISFILE, 0),
        "digests of what boards gathered", "cable", ("GATHERED", "LINK_POISON", "WATCHDOG"),
        least=2, numbers=FILED,
    ),
    _unit("MPU", abi.UNIT_MPU),
    _unit("VFU", abi.UNIT_VFU),
    _unit("Router", abi.UNIT_ROUTER),
    _unit("DMA", abi.UNIT_DMA),
    *_failing("MPU", abi.UNIT_MPU),
    *_failing("VFU", abi.UNIT_VFU),
    *_failing("Router", abi.UNIT_ROUTER),
    *_failing("DMA", abi.UNIT_DMA),
    _slow("MPU", abi.UNIT_MPU),
    _slow("VFU", abi.UNIT_VFU),
    _slow("DMA", abi.UNIT_DMA),
    _record("record lost", abi.FAULT_COMPLETION_LOST),
    _record("record of another step", abi.FAULT_RECORD_STEP),
    _record("record of an old epoch", abi.FAULT_RECORD_EPOCH),
    _control("done lost", abi.FAULT_DONE_LOST, "the host's limit for a step", _HANG),
    _control(
        "done too early", abi.FAULT_DONE_EARLY, "the record that is missing",
        ("COMPLETION", "TRANSPORT", "STEP", "LIST", *_HANG), sure=(),
    ),
    _control("start lost", abi.FAULT_START_LOST, "the host's limit for a step", _HANG),
    _control("firmware halts", abi.FAULT_FIRMWARE_DEAD, "the host's limit for a step", _HANG),
    _control(
        "firmware resets", abi.FAULT_FIRMWARE_RESET, "lists that it does not know, else the limit",
        ("LIST", "STEP", "COMPLETION", "KV", "ROW", "OPERATION", "LINK_POISON", *_HANG),
        POLLS, sure=(),
    ),
    _control(
        "sequencer stalls", abi.FAULT_FIRMWARE_STALL, "nothing: the limits leave it time", (),
        PAUSE, (),
    ),
    _control(
        "registers read as ones", abi.FAULT_REGISTERS_ONES, "the record, else the identity",
        ("COMPLETION", "TRANSPORT", "IDENTITY", "ABI", "OVERLAY", "LINK_STATUS", "LINK_DOWN",
         "LINK_CONFIG", *_HANG),
    ),
    _control(
        "board leaves the bus", abi.FAULT_BOARD_LOST, "every access", ("TRANSPORT",),
        AWAY, loses=True,
    ),
    _control(
        "board leaves and returns", abi.FAULT_BOARD_LOST, "every access", ("TRANSPORT",),
        BACK,
    ),
    Kind(
        "board's clock jumps", "control", (*STEPS, "close"), _of(abi.FAULT_CLOCK_JUMP),
        "nothing, or the board's watchdog", "board", ("WATCHDOG",), numbers=JUMP,
    ),
    _access("read fails", abi.FAULT_READ_FAILS),
    _access("write fails", abi.FAULT_WRITE_FAILS),
    _transfer("transfer lost", abi.FAULT_WRITE_LOST),
    _transfer("transfer cut short", abi.FAULT_WRITE_SHORT),
    _transfer("transfer misplaced", abi.FAULT_WRITE_MISPLACED),
    _transfer("transfer twice", abi.FAULT_WRITE_TWICE),
    Kind(
        "bit of a weight flipped", "memory", GUARDED, flip_weight, "sums between steps", "place",
        ("CRC", "NAN"), ends="text or error", numbers=PLACE,
    ),
    Kind(
        "weights of a board ruined", "memory", GUARDED, ruin_weights, "sums between steps", "place",
        ("CRC", "NAN"), ends="text or error", numbers=PLACE,
    ),
    Kind(
        "bit of an adapter flipped", "memory", ("adapter load",), flip_adapter,
        "sums between steps, the board if it is in the header", "place",
        ("CRC", "NAN", "ROW", "SIZE", "ADDRESS"), ends="text or error", numbers=PLACE,
    ),
    Kind(
        "bit of a command list flipped", "memory", STEPS, flip_list, "the list's seal", "board",
        ("CRC", "LINK_POISON", "SIZE", "OPCODE"), sure=("decode",), numbers=PLACE,
    ),
    *_ecc("a weight", weight, (*GUARDED, "close"), ("prefill", "decode"), "text or error"),
    *_ecc("K and V", keys_and_values, (*GUARDED, "close"), ()),
    *_ecc("a command list", command_list, (*GUARDED, "close"), ("prefill", "decode")),
    *_ecc("control tables", control_tables, (*GUARDED, "close"), ()),
)  # fmt: skip

BY_NAME = {kind.name: kind for kind in KINDS}


def kinds_of(phase: str, boards: int) -> list[Kind]:
    """Those that can strike there."""
    return [kind for kind in KINDS if phase in kind.phases and boards >= kind.least]
