"""The C library's records of boards, links and runs, as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import native
from .errors import RequestError
from .naming import did_you_mean

_NO_PEER = 0xFFFFFFFF  # LORA_NONE: a port that received nothing


@dataclass(frozen=True)
class BoardInfo:
    """An open board. `kind`: value of its identity register; `banks`: bytes of each bank."""

    address: str
    name: str
    kind: int
    serial: int
    banks: tuple[int, ...]


@dataclass(frozen=True)
class EccCounts:
    """What a board's memory controllers have counted since it was opened, by bank: reads of words
    with one wrong bit, which were corrected, and with two, which failed. Banks without are left
    out."""

    corrected: Mapping[int, int]
    uncorrected: Mapping[int, int]

    def __bool__(self) -> bool:
        return bool(self.corrected or self.uncorrected)


@dataclass(frozen=True)
class LinkStatus:
    """Registers of one port. `healthy`: power, lanes, lock and channel are up."""

    status: int
    configuration: int
    frames_received: int
    frames_with_errors: int
    channel_down: int
    rx_overflows: int

    @property
    def healthy(self) -> bool:
        """Whether the channel is up without an error bit."""
        return self.status == int(native.lib().LORA_LINK_HEALTHY)


@dataclass(frozen=True)
class LinkFound:
    """Test frames of a port: sent to it, received and wrong, and their sender, if any."""

    status: int
    sent: int
    received: int
    bad: int
    peer_serial: int | None
    peer_port: int | None

    @property
    def healthy(self) -> bool:
        """Whether the channel is up without an error bit."""
        return self.status == int(native.lib().LORA_LINK_HEALTHY)

    @property
    def clean(self) -> bool:
        """Whether all frames sent to it arrived without an error."""
        return self.sent > 0 and self.received == self.sent and self.bad == 0


@dataclass(frozen=True)
class ClusterStats:
    """Counts since the cluster was opened, and the last step's number and epoch. Accesses of all
    boards: transfers of board memory, doorbells, polls of the done bit, looks at the token register
    while boards generate `tokens` by themselves; reads and writes of registers, all of these
    among them. `waited_us`: that the host let pass in waits for boards, as it asked for it; a busy
    machine adds nothing to it. Of emulated boards it is their own time."""

    steps: int
    redone_steps: int
    frames_dropped: int
    memory_reads: int
    memory_writes: int
    doorbells: int
    polls: int
    looks: int
    tokens: int
    register_reads: int
    register_writes: int
    waited_us: int
    epoch: int
    step: int


@dataclass(frozen=True)
class GreedyResult:
    """Number of emitted tokens, the last token (pending: its K and V are not written), and the slot
    of the last uncommitted row, None if no row ran."""

    emitted: int
    last_token: int
    last_slot: int | None


@dataclass(frozen=True)
class GenerateResult:
    """Tokens told to the listener, and rows that ran on all boards: see struct lora_generation."""

    emitted: int
    rows: int


def fields_of(record: Any, *names: str) -> dict[str, int]:
    """Integer fields of a C structure by name."""
    return {name: int(getattr(record, name)) for name in names}


def board_info(record: Any) -> BoardInfo:
    """BoardInfo of a `struct lora_board_info`."""
    text = native.ffi().string
    return BoardInfo(
        address=text(record.address).decode(errors="replace"),
        name=text(record.name).decode(errors="replace"),
        kind=int(record.board_kind),
        serial=int(record.serial),
        banks=tuple(int(record.bank_bytes[bank]) for bank in range(record.bank_count)),
    )


def link_found(record: Any) -> LinkFound:
    """LinkFound of a `struct lora_link_found`."""
    values = fields_of(record, "status", "sent", "received", "bad")
    received = int(record.peer_serial) not in (0, _NO_PEER)
    return LinkFound(
        **values,
        peer_serial=int(record.peer_serial) if received else None,
        peer_port=int(record.peer_port) if received else None,
    )


def timeout_record(changes: Mapping[str, int] | None) -> Any:
    """`struct lora_timeouts *` with the defaults and these overrides (microseconds, watchdog_ms in
    milliseconds). RequestError: an unknown name, or a value below 1."""
    ffi, lib = native.ffi(), native.lib()
    record = ffi.new("struct lora_timeouts *")
    lib.lora_timeouts_default(record)
    known = [name for name, _ in ffi.typeof("struct lora_timeouts").fields if name != "size"]
    for name, value in (changes or {}).items():
        if name not in known:
            raise RequestError(f"timeout {name!r} is not known; {did_you_mean(name, known)}")
        if not 0 < value < 1 << 32:
            raise RequestError(f"timeout {name}: {value} found, 1..{(1 << 32) - 1} expected")
        setattr(record, name, value)
    if record.step_us // 1000 <= record.watchdog_ms:
        raise RequestError(
            f"timeout step_us: {record.step_us} us found, more than the watchdog's "
            f"{record.watchdog_ms} ms expected"
        )
    return record
