"""One V80 of the mock server: memory file, BAR and emulated board."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from typing import Any

import numpy as np

from .. import abi, native
from ..emulated import Emulated
from ..errors import LoraError
from ..failure import to_error
from ..vrtbin import SERVICE_MARK, emulation_design
from .allocator import BUFFERS, DESIGN_QUEUE, MEMORY_BYTES, Allocator, Extent

BAR_BYTES = 64 << 20
BARS = (0, 2, 4)  # of 64 bits; the kernels are behind the first
DEFAULT_CLOCK_HZ = 200_000_000
_ARENA_WORDS = abi.MAX_ARENAS * 8
_REFRESH_S = 0.005
_LINK_READABLE = range(abi.LINK_CONFIGURATION, abi.LINK_FRAMES_WITH_ERRORS + 4, 4)
_HOST_WRITES = (abi.REG_WATCHDOG_MS, abi.REG_TOKEN, abi.REG_CANCEL)  # before a run starts
_STATUS = tuple(
    register
    for register in range(abi.REG_IDENTITY_ABI, abi.REG_UNIT_STATE + 4 * abi.UNITS, 4)
    if register not in _HOST_WRITES
)
_FALLOC_PUNCH = 3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_libc = ctypes.CDLL(None, use_errno=True)


class NoQueue(Exception):
    """All queues of the board are taken."""


class Device:
    """One board. The server's threads call the requests, the clock's thread calls `tick`."""

    def __init__(self, emulated: Emulated, index: int, bdf: str, limit: int = BUFFERS) -> None:
        self.index, self.bdf = index, bdf
        self.name = f"slash_ctl{index}"  # the driver's file
        self.clock_hz = DEFAULT_CLOCK_HZ
        self.allocator = Allocator()
        self._most_queues = limit + 1
        self._queues = {DESIGN_QUEUE}
        self._queue_of: dict[int, int] = {}  # of a buffer, by its address
        self.memory = os.memfd_create(f"v80-{index}-memory", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, MEMORY_BYTES)
        self.short_bar = 0  # bytes; for tests: the BAR is a file shorter than it is said to be
        self._new_bar()
        self._emulated = emulated
        self._lock = threading.RLock()
        self._ffi, self._table = native.ffi(), native.lib().lora_transport_emu
        self._failure = self._ffi.new("struct lora_failure *")
        handle = self._ffi.new("void **")
        address = f"{emulated.number}/{index}".encode()
        self._check(self._table.open(address, handle, self._failure))
        self._handle = handle[0]
        self._bases: tuple[int, ...] = ()
        self._arenas = np.zeros(_ARENA_WORDS, np.uint32)
        self._resets: list[int] = []  # of the links' cores, as seen before the clock was read
        self.running = False
        self.starts = 0  # of lora_ctrl, seen in its register
        self.lose_design = False
        self._refreshed = 0.0

    # --- requests ---

    def program(self, pdi: bytes) -> None:
        """Loads a design. LoraError if it is not the emulation's or does not fit the board. A
        service layer, or nothing, takes the kernels' design off the board."""
        if pdi in (SERVICE_MARK, b""):
            with self._lock:
                self._withdraw_bar()
                self._power_off()
            return
        design = emulation_design(pdi)
        with self._lock:
            self._withdraw_bar()
            self._power_off()
            if self.lose_design:  # as after a DMA error that is reported as success
                return
            image = self._ffi.from_buffer(design.image)
            program = self._ffi.new("struct lora_program *")
            program.size = self._ffi.sizeof("struct lora_program")
            program.board_kind, program.abi = design.board_kind, design.abi
            program.onchip_bytes = design.onchip_bytes
            program.block_base = list(design.block_base)
            program.image = self._ffi.cast("uint8_t *", image)
            program.image_bytes = len(design.image)
            self._check(self._table.program(self._handle, program, self._failure))
            self._bases = tuple(base % BAR_BYTES // 4 for base in design.block_base)
            self._show_status()
            self._words[self._bases[0]] = abi.AP_IDLE | abi.AP_READY

    def open_buffer(self, kind: int, argument: int, size: int) -> tuple[Extent, int] | None:
        """A buffer and its own descriptor, None if memory is used up. NoQueue if queues are."""
        with self._lock:
            extent = self.allocator.take(kind, argument, size)
            if extent is None:
                return None
            try:
                self._queue_of[extent.physical] = self.add_queue()
            except NoQueue:
                self.allocator.give(extent.physical)
                raise
        return extent, self.open_memory()

    def add_queue(self) -> int:
        """The number of a queue of its own. NoQueue if there is none left."""
        with self._lock:
            free = next(n for n in range(self._most_queues + 1) if n not in self._queues)
            if free == self._most_queues:
                raise NoQueue
            self._queues.add(free)
            return free

    def has_queue(self, number: int) -> bool:
        """Whether there is such a queue."""
        return number in self._queues

    def drop_queue(self, number: int) -> None:
        """Gives a queue back."""
        with self._lock:
            self._queues.discard(number)

    def close_buffer(self, physical: int) -> bool:
        """Frees a buffer and its pages. False if there is none."""
        with self._lock:
            extent = self.allocator.give(physical)
            if extent is not None:
                self._queues.discard(self._queue_of.pop(physical))
                _libc.fallocate(
                    self.memory, _FALLOC_PUNCH, ctypes.c_long(extent.physical),
                    ctypes.c_long(extent.bytes),
                )  # fmt: skip
        return extent is not None

    def reset(self) -> None:
        """Clears design, runs and registers."""
        with self._lock:
            self._withdraw_bar()
            self._power_off()
            self._check(self._table.reset(self._handle, self._failure))

    def open_memory(self) -> int:
        """A descriptor of the memory, with a file offset of its own."""
        return os.open(f"/proc/self/fd/{self.memory}", os.O_RDWR | os.O_CLOEXEC)

    def open_bar(self, bar: int = 0) -> int:
        """A descriptor of a BAR, good until the next design or reset."""
        if bar:
            other = os.memfd_create(f"v80-{self.index}-bar{bar}", os.MFD_CLOEXEC)
            os.ftruncate(other, BAR_BYTES)
            return other
        with self._lock:
            if not self.short_bar:
                return os.dup(self._bar)
        short = os.memfd_create("short-bar", os.MFD_CLOEXEC)
        os.ftruncate(short, self.short_bar)
        return short

    def _new_bar(self) -> None:
        self._bar = os.memfd_create(f"v80-{self.index}-bar", os.MFD_CLOEXEC)
        os.ftruncate(self._bar, BAR_BYTES)
        self._words = np.frombuffer(mmap.mmap(self._bar, BAR_BYTES), np.uint32)

    def _withdraw_bar(self) -> None:
        """As the daemon: the function is removed and found again. Who touches a mapping made
        before ends with SIGBUS here, with a fatal PCIe completion timeout on a card."""
        old = self._bar
        self._new_bar()
        os.ftruncate(old, 0)
        os.close(old)

    def _power_off(self) -> None:
        self._arenas[:] = 0
        self._bases = ()
        self.running = False

    # --- clock ---

    def tick(self, microseconds: int) -> bool:
        """Applies the register writes and advances the board's clock. Returns whether it runs."""
        with self._lock:
            if not self._bases:
                return False
            control = self._bases[0]
            if self._words[control] & abi.AP_START:
                self._words[control] = 0
                self.starts += 1
                self._start()
            if self.running:
                self._write(0, abi.REG_CANCEL, int(self._words[control + abi.REG_CANCEL // 4]))
            self._check(self._table.sleep(self._handle, microseconds, self._failure))
            self._forward_links()
            if self.running:
                self._words[control + abi.REG_TOKEN // 4] = self._read(0, abi.REG_TOKEN)
                self._poll()
            if time.monotonic() - self._refreshed > _REFRESH_S:
                self._show_status()
            return self.running

    # A look that is late must not shorten a link's reset: its end counts from a look before the
    # clock is read, its begin from before the time since the last look passes.

    def see_resets(self) -> None:
        """Looks at the links' resets. Called before the clock is read."""
        with self._lock:
            self._resets = [self._link_word(p, abi.LINK_CORE_RESET) for p in self._ports()]

    def enter_resets(self) -> None:
        """Link resets that the host has set since. Called before that time passes in `tick`."""
        with self._lock:
            for port in self._ports():
                if self._link_word(port, abi.LINK_CORE_RESET):
                    self._forward_link(port, abi.LINK_CORE_RESET)

    def _start(self) -> None:
        control = self._bases[0]
        self._take_arenas()
        for register in _HOST_WRITES:
            self._write(0, register, int(self._words[control + register // 4]))
        first = control + abi.REG_OPERATION // 4
        arguments = self._ffi.new("uint32_t[11]", [int(w) for w in self._words[first : first + 11]])
        self._check(self._table.submit(self._handle, arguments, self._failure))
        self.running = True

    def _take_arenas(self) -> None:
        first = self._bases[0] + abi.REG_ARENAS // 4
        words = self._words[first : first + _ARENA_WORDS].copy()
        count = int(self._words[self._bases[0] + abi.REG_ARENA_COUNT // 4])
        self._write(0, abi.REG_ARENA_COUNT, count)
        if np.array_equal(words, self._arenas):
            return
        for index in np.flatnonzero(words != self._arenas):
            self._write(0, abi.REG_ARENAS + 4 * int(index), int(words[index]))
        records = self._ffi.from_buffer("struct lora_arena_record[]", words)
        number = min(count, abi.MAX_ARENAS)
        lib = native.lib()
        self._check(
            lib.lora_emu_attach(
                self._emulated.number, self.index, records, number, self.memory, self._failure
            )
        )
        self._arenas = words

    def _poll(self) -> None:
        state = self._ffi.new("uint32_t *")
        self._check(self._table.poll(self._handle, state, self._failure))
        if state[0] != native.lib().LORA_RUN_DONE:
            return
        self.running = False
        self._show_status()
        self._words[self._bases[0]] = abi.AP_DONE | abi.AP_IDLE

    def _ports(self) -> range:
        return range(abi.PORTS if self._bases else 0)

    def _link_word(self, port: int, register: int) -> int:
        return int(self._words[self._bases[1 + port] + register // 4])

    def _forward_links(self) -> None:
        for port in self._ports():
            self._forward_link(port, abi.LINK_COUNTER_RESET)
            if port < len(self._resets) and not self._resets[port]:
                self._forward_link(port, abi.LINK_CORE_RESET)

    def _forward_link(self, port: int, register: int) -> None:
        value = self._link_word(port, register)
        if value != self._read(1 + port, register):
            self._write(1 + port, register, value)
            self._show_link(port)

    def _show_link(self, port: int) -> None:
        base = self._bases[1 + port]
        for register in _LINK_READABLE:
            self._words[base + register // 4] = self._read(1 + port, register)

    def _show_status(self) -> None:
        for register in _STATUS:
            self._words[self._bases[0] + register // 4] = self._read(0, register)
        for port in range(abi.PORTS):
            self._show_link(port)
        self._refreshed = time.monotonic()

    def _read(self, block: int, register: int) -> int:
        value: Any = self._ffi.new("uint32_t *")
        self._check(self._table.register_read(self._handle, block, register, value, self._failure))
        return int(value[0])

    def _write(self, block: int, register: int, value: int) -> None:
        self._check(self._table.register_write(self._handle, block, register, value, self._failure))

    def _check(self, status: int) -> None:
        if status:
            error: LoraError = to_error(self._failure)
            raise error
