"""The card of tests/unit/card_core.py in hardware: a board's control is simulated; host, board
memory and units are played here."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from tests.rtl.core_rig import build
from tests.unit.card_core import PAGE, Card

SLICE_CYCLES = 1_000_000
BANK_BYTES = 1 << 36  # between the arenas of two banks
HANGS = 0xFFFFFFFF
ENDS = 1 << 31
MOST_EVENTS = 4096
MEMORY = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
START = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint32))


def load(path: Path) -> Any:
    """tests/rtl/core/card.cpp."""
    found = ctypes.CDLL(str(path))
    card, word = ctypes.c_void_p, ctypes.c_uint32
    for name, result, arguments in (
        ("new", card, [word, MEMORY, START]),
        ("delete", None, [card]),
        ("begin", None, [card, ctypes.c_char_p, word]),
        ("reset", None, [card]),
        ("run", None, [card, ctypes.c_uint64]),
        ("host_read", word, [card, word]),
        ("host_write", None, [card, word, word]),
        ("cycles", ctypes.c_uint64, [card]),
        ("instructions", ctypes.c_uint64, [card]),
        ("stopped", word, [card, ctypes.POINTER(word)]),
        ("identity", word, [card, word]),
        ("difference", ctypes.c_char_p, [card]),
        ("read_cycles", None, [card, word]),
        ("bad_line", None, [card, ctypes.c_uint64]),
        ("duration", None, [card, word, ctypes.c_uint64]),
        ("measured", None, [card, ctypes.POINTER(ctypes.c_uint64)]),
        ("end_in_order", None, [card, ctypes.POINTER(word), word]),
        ("events", word, [card, ctypes.POINTER(word), word]),
    ):
        function = getattr(found, f"card_{name}")
        function.restype, function.argtypes = result, arguments
    return found


@cache
def library() -> Any:
    """The one over the source as it is."""
    return load(build("libcard.so"))


class HostRegisters:
    """lora_ctrl's registers by number, as the host reads and writes them."""

    def __init__(self, built: Any, card: int) -> None:
        self._library, self._card = built, card

    def __getitem__(self, number: int) -> int:
        return int(self._library.card_host_read(self._card, number))

    def __setitem__(self, number: int | slice, value: Any) -> None:
        first = number.start if isinstance(number, slice) else number
        for place, word in enumerate(np.atleast_1d(value).tolist()):
            self._library.card_host_write(self._card, first + place, word)


@dataclass(frozen=True)
class Measured:
    """Commands of a list; cycles from the doorbell to the first, between them while no unit runs,
    and from the last one's end to the done bit."""

    commands: int
    before: int
    between: int
    after: int


class SimulatedCard(Card):
    """The control's hardware runs the image; units are done at once."""

    def __init__(self, seed: int = 1, built: Any = None) -> None:
        self._seed, self._library = seed, built or library()
        self._failure = ""
        self.ends: dict[int, int] = {}  # how the n-th command of a run ends, HANGS: not at all
        super().__init__()

    def _boot(self, code: bytes, entry: int) -> None:
        assert entry == 0  # where a reset begins
        self._callbacks = MEMORY(self._memory), START(self._start)
        self._card = self._library.card_new(self._seed, *self._callbacks)
        self.code = code
        self.registers = HostRegisters(self._library, self._card)
        self.restart()

    def restart(self, cycles: int = 0) -> None:
        """The control program is loaded and begins, some cycles from now."""
        self._library.card_run(self._card, cycles)
        self._library.card_begin(self._card, self.code, len(self.code))

    def wait(self, cycles: int) -> None:
        """Until the done bit, at most so long."""
        self._library.card_run(self._card, cycles)

    def reset(self, cycles: int) -> None:
        """All of the control, some cycles from now; then the control program begins."""
        self.wait(cycles)
        self._library.card_reset(self._card)
        self.restart()

    def set_arenas(self, arenas: dict[int, int]) -> None:
        """One arena a bank, from offset 0, at an address of its own."""
        super().set_arenas(arenas)
        size = abi.dtype("arena_record").itemsize // 4
        for place, bank in enumerate(sorted(arenas)):
            base = abi.REG_ARENAS // 4 + place * size
            self.registers[base + 1] = (bank + 1) * BANK_BYTES >> 32

    def _run(self) -> None:
        self._library.card_run(self._card, SLICE_CYCLES)
        cause, pc = self.stop()
        differs = self._library.card_difference(self._card).decode()
        if cause or self._failure or differs:
            stop = f"the core stands at {pc:#x}, cause {cause}" if cause else ""
            pytest.fail("; ".join(filter(None, (stop, self._failure, differs))))

    def _memory(self, address: int, lanes: int, data: int) -> int:
        try:
            bank, offset = divmod(address, BANK_BYTES)
            self.window = [bank - 1, offset // PAGE]
            if not lanes:
                return int(self._read_window(None, offset % PAGE, 4, None))
            shift = (lanes & -lanes).bit_length() - 1
            size = lanes.bit_count()
            value = data >> 8 * shift & (1 << 8 * size) - 1
            self._write_window(None, offset % PAGE + shift, size, value, None)
        except Exception as error:  # it would be lost on its way through C
            self._failure = repr(error)
        return 0

    def _start(self, unit: int, words: Any) -> int:
        try:
            command = b"".join(words[i].to_bytes(4, "little") for i in range(16))
            self._arrive()
            self.started.append((unit, command))
            if self.on_start is not None:
                self.on_start(command)
            return self.ends.get(len(self.started) - 1, 0)
        except Exception as error:
            self._failure = repr(error)
        return 0

    def take_time(self, durations: dict[int, int], read_cycles: int) -> None:
        """Cycles of a unit's commands and of a read of board memory."""
        for unit, cycles in durations.items():
            self._library.card_duration(self._card, unit, cycles)
        self._library.card_read_cycles(self._card, read_cycles)

    def fail_line(self, bank: int, offset: int) -> None:
        """Accesses of that line of board memory are answered with an error."""
        self._library.card_bad_line(self._card, (bank + 1) * BANK_BYTES + offset // 64 * 64)

    def stop(self) -> tuple[int, int]:
        """(cause, address) of the core's stop by its ports; cause 0: it runs."""
        pc = ctypes.c_uint32()
        cause = self._library.card_stopped(self._card, ctypes.byref(pc))
        return cause, pc.value

    def identity(self) -> list[int]:
        """What the board tells the control of itself: its kind, its serial, the image's CRC."""
        return [self._library.card_identity(self._card, which) for which in range(3)]

    def measured(self) -> Measured:
        """What the last doorbell's run took."""
        found = (ctypes.c_uint64 * 4)()
        self._library.card_measured(self._card, found)
        commands, before, idle, ended = found
        return Measured(commands, before, idle, self.counts()[1] - ended)

    def end_in_order(self, indices: list[int]) -> None:
        """Results of a list's commands come in this order, by number in the list."""
        words = (ctypes.c_uint32 * len(indices))(*indices)
        self._library.card_end_in_order(self._card, words, len(indices))

    def events(self) -> list[tuple[int, bool]]:
        """(command, whether it ends) since end_in_order; at most MOST_EVENTS."""
        words = (ctypes.c_uint32 * MOST_EVENTS)()
        count = self._library.card_events(self._card, words, MOST_EVENTS)
        assert count <= MOST_EVENTS
        return [(word & ENDS - 1, bool(word & ENDS)) for word in words[:count]]

    def counts(self) -> tuple[int, int]:
        """(instructions, cycles) since the card began."""
        return self._library.card_instructions(self._card), self._library.card_cycles(self._card)

    def close(self) -> None:
        """The simulation is given back."""
        self._library.card_delete(self._card)
