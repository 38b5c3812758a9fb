"""Puts commands in order and gives each a counter to signal and one to wait on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lora_host import abi
from lora_host.errors import PlacementError
from lora_sdk.compile.isa import NO_LAYER, Attention, Command, Gather


@dataclass(frozen=True)
class Event:
    """An event that a later command can wait for: a counter (eight if `segments`) reaches `value`,
    signaled by a command of `unit`."""

    unit: int
    counter: int
    value: int = 1
    segments: bool = False


ANY = -1  # unit of an event that several units signal


class Builder:
    """Builds a command list. A list uses no counter twice, but those that `both` joins."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.layer = NO_LAYER
        self._counters = 0

    def emit(self, kind: type[Command], after: Event | None, **fields: Any) -> Event:
        """Appends a command that starts when `after` has happened and its unit is free. Units run
        in order, so an event of the same unit needs no counter."""
        flags = fields.pop("flags", 0)
        waits: dict[str, Any] = {}
        if after is not None and after.unit != kind.UNIT:
            waits = {"wait_counter": after.counter, "wait_value": after.value}
            if after.segments:
                flags |= abi.FLAG_WAIT_SEGMENTS | abi.FLAG_WAIT_GROUPS
        segments = bool(flags & abi.FLAG_SIGNAL_SEGMENTS)
        counter = fields.pop("signal_counter", None)
        if counter is None:
            counter = self._take(abi.SEGMENTS if segments else 1)
        self.commands.append(
            kind(flags=flags, signal_counter=counter, layer=self.layer, **waits, **fields)
        )
        return Event(kind.UNIT, counter, segments=segments)

    def both(self, first: Event, kind: type[Command], after: Event | None, **fields: Any) -> Event:
        """Appends a command that signals the counter of `first` too. Its event is that both have
        happened."""
        self.emit(kind, after, signal_counter=first.counter, **fields)
        return Event(ANY, first.counter, value=first.value + 1)

    def gather(self, after: Event | None, segments: bool, **fields: Any) -> Event:
        """A gather. With `segments`, its event is the arrival of each of the eight segments."""
        flags = fields.pop("flags", 0) | (abi.FLAG_SIGNAL_SEGMENTS if segments else 0)
        return self.emit(Gather, after, flags=flags, **fields)

    def attention(self, after: Event | None, **fields: Any) -> Event:
        """Attention. Its event is the completion of the last head."""
        flags = fields.pop("flags", 0) | abi.FLAG_SIGNAL_HEADS
        event = self.emit(Attention, after, flags=flags, **fields)
        return Event(event.unit, event.counter, value=fields["q_heads"])

    def finish(self, kind: type[Command], **fields: Any) -> None:
        """Appends a command that nothing waits for."""
        self.commands.append(kind(**fields))

    def _take(self, count: int) -> int:
        first = self._counters
        self._counters += count
        if self._counters > abi.MAX_COUNTERS:
            raise PlacementError(
                f"the command list needs more than {abi.MAX_COUNTERS} counters; the model has too "
                "many layers for this ABI"
            )
        return first
