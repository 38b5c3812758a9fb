"""Cycles of the firmware image: the emulated card of card_core with a clock, units that take time,
and the core of lora_lab.timing.control."""

from __future__ import annotations

from typing import Any

from lora_host import abi
from lora_lab.timing.control import Cost, control_core
from tests.unit.card_core import CARD, LOCAL_BYTES, Card, unicorn


def _bits(word: int, high: int, low: int) -> int:
    return word >> low & ((1 << (high - low + 1)) - 1)


def class_of(word: int) -> tuple[str, int]:
    """Class of an instruction, a field of Core, and its number of bytes."""
    if word & 3 == 3:
        return _class_of_long(word), 4
    return _class_of_short(word & 0xFFFF), 2


def _class_of_long(word: int) -> str:
    code, funct = word & 0x7F, _bits(word, 14, 12)
    if code == 0x33 and word >> 25 == 1:
        return "multiply" if funct < 4 else "divide"
    if code in (0x13, 0x33) and funct in (1, 5):
        return "shift"
    return {0x03: "load", 0x23: "store", 0x63: "branch", 0x6F: "jump", 0x67: "indirect_jump"}.get(
        code, "alu"
    )


def _class_of_short(half: int) -> str:
    quadrant, funct = half & 3, half >> 13
    if quadrant == 0:
        return {2: "load", 6: "store"}.get(funct, "alu")
    if quadrant == 1:
        if funct in (1, 5):
            return "jump"
        if funct in (6, 7):
            return "branch"
        if funct == 4 and _bits(half, 11, 10) in (0, 1):
            return "shift"
        return "alu"
    if funct == 0:
        return "shift"
    if funct == 4 and _bits(half, 6, 2) == 0 and _bits(half, 11, 7):
        return "indirect_jump"
    return {2: "load", 6: "store"}.get(funct, "alu")


CAUSES = ("instructions", "window", "register")


class TimedCard(Card):
    """Counts cycles of `core`. `durations`: cycles of a command by unit; without one it is done
    when it is started.

    `head`: cycles by cause before the first start. `gaps`: between starts, while no unit runs."""

    def __init__(self, clock_hz: float, durations: dict[int, int] | None = None) -> None:
        super().__init__()
        self.timing = control_core()
        self.latency = {
            "window": self.timing.window_ns * 1e-9 * clock_hz,
            "register": self.timing.register,
        }
        self.durations = durations or {}
        self.counting = False
        self._blocks: dict[tuple[int, int], tuple[int, float, float]] = {}
        self._hooked = False

    def begin(self) -> None:
        """Counts from here on, from zero, to the done bit."""
        if not self._hooked:  # not before: it slows the emulator down
            self.core.hook_add(unicorn.UC_HOOK_BLOCK, self._block)
            self.core.ctl_remove_cache(0, LOCAL_BYTES)  # code translated without the hook
            self._hooked = True
        self.counting = True
        self.instructions = 0
        self.accesses = {"window": 0, "register": 0}
        self.clock = 0.0
        self.head = dict.fromkeys(CAUSES, 0.0)
        self.gaps = dict.fromkeys(CAUSES, 0.0)
        self._pending = dict.fromkeys(CAUSES, 0.0)
        self.first = True
        self._busy_until = 0.0
        self.ends: dict[int, float] = {}
        self._ended_at = (0, 0.0)

    def step_cost(self) -> Cost:
        """Counts from the doorbell to the first start and from the last end to the done bit."""
        return self._counts([self.head, self._pending], 1)

    def command_cost(self) -> Cost:
        """Counts between two commands while no unit runs, in the mean."""
        return self._counts([self.gaps], len(self.started) - 1)

    def _counts(self, spent: list[dict[str, float]], over: int) -> Cost:
        totals = {cause: sum(part[cause] for part in spent) / over for cause in CAUSES}
        return Cost(
            totals["instructions"],
            totals["window"] / self.latency["window"],
            totals["register"] / self.latency["register"],
        )

    def _advance(self, cause: str, cycles: float) -> None:
        self.clock += cycles
        self._pending[cause] += min(cycles, max(0.0, self.clock - self._busy_until))

    def _block(self, core: Any, address: int, size: int, data: Any) -> None:
        if not self.counting:
            return
        follows, taken = self._ended_at
        cost = self._blocks.get((address, size))
        if cost is None:
            cost = self._blocks[address, size] = self._cost(address, size)
        self.instructions += cost[0]
        self._advance("instructions", cost[1] + (taken if address != follows else 0.0))
        self._ended_at = (address + size, cost[2])

    def _cost(self, address: int, size: int) -> tuple[int, float, float]:
        """(instructions, cycles, further cycles if the branch at its end is taken)."""
        code = bytes(self.core.mem_read(address, size + 2))
        at = count = 0
        cycles = 0.0
        last = ""
        while at < size:
            last, length = class_of(int.from_bytes(code[at : at + 4], "little"))
            cycles += getattr(self.timing, last)
            at, count = at + length, count + 1
        taken = self.timing.taken_branch - self.timing.branch if last == "branch" else 0.0
        return count, cycles, taken

    def _access(self, words: bool) -> None:
        if not self.counting:
            return
        cause = "window" if words else "register"
        self.accesses[cause] += 1
        self._advance(cause, self.latency[cause])

    def _read_zero(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._access(False)
        return super()._read_zero(core, offset, size, data)

    def _write_nothing(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self._access(False)

    def _read_register(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._access(False)
        return super()._read_register(core, offset, size, data)

    def _write_register(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self._access(False)
        super()._write_register(core, offset, size, value, data)
        if offset == abi.REG_AP_CTRL and value & abi.AP_DONE:
            self.counting = False

    def _write_select(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self._access(False)
        super()._write_select(core, offset, size, value, data)

    def _read_window(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._access(True)
        return super()._read_window(core, offset, size, data)

    def _write_window(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self._access(True)
        super()._write_window(core, offset, size, value, data)

    def _read_board(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._access(False)
        return super()._read_board(core, offset, size, data)

    def _read_unit(self, core: Any, offset: int, size: int, data: Any) -> int:
        self._access(False)
        unit, place = divmod(offset, CARD["CARD_UNIT_STRIDE"])
        control = place == CARD["CARD_UNIT_CONTROL"]
        if control and self.counting and self.clock < self.ends.get(unit, 0.0):
            return CARD["CARD_BUSY"]
        return super()._read_unit(core, offset, size, data)

    def _write_unit(self, core: Any, offset: int, size: int, value: int, data: Any) -> None:
        self._access(False)
        unit, place = divmod(offset, CARD["CARD_UNIT_STRIDE"])
        if self.counting and place == CARD["CARD_UNIT_CONTROL"] and value == CARD["CARD_START"]:
            spent = self.head if self.first else self.gaps
            for cause, cycles in self._pending.items():
                spent[cause] += cycles
                self._pending[cause] = 0.0
            self.first = False
            self.ends[unit] = self.clock + self.durations.get(unit, 0)
            self._busy_until = max(self._busy_until, self.ends[unit])
        super()._write_unit(core, offset, size, value, data)
