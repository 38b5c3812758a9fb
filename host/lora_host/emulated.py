"""Emulated boards: a cluster that the C library runs in this process, with functions that only
emulation has: faults, traces and byte counts of links."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from . import abi, native, rtl, sim
from .cluster_file import Cable
from .errors import RequestError
from .failure import to_error
from .naming import did_you_mean
from .overlay import Overlay

KERNELS = ("native", "numpy", "rtl")
TRACE_CAPACITY = 1 << 17  # records per board: 5 MiB
_newest: list[weakref.ref[Emulated]] = []


def kernel_table(name: str) -> Any:
    """`struct lora_kernels *` of "native", "numpy" or "rtl". RequestError for other names, for
    "native" in a build without it, and for "rtl" without the simulated units (rtl.py)."""
    ffi, lib = native.ffi(), native.lib()
    if name == "numpy":
        from .emu import register

        return register(ffi, lib)
    if name not in KERNELS:
        raise RequestError(f"kernels {name!r} are not known; {did_you_mean(name, KERNELS)}")
    if not hasattr(lib, "lora_kernels_native"):
        raise RequestError(f"kernels {name!r}: this build has none; use kernels='numpy'")
    if name == "rtl":
        return rtl.kernel_table()
    return ffi.new("struct lora_kernels *", lib.lora_kernels_native)


@dataclass(frozen=True)
class UnitSeconds:
    """Wall-clock seconds. `kernels`: the matrix and vector units, including the wait for all
    threads. `moves`: the DMA unit (KV cache, rows). `links`: the Router (frames sent, checked,
    stored; or copies in their place). `profiler`: the measurement itself."""

    kernels: float
    moves: float
    links: float
    profiler: float

    @property
    def total(self) -> float:
        """The sum: the emulator runs units sequentially."""
        return self.kernels + self.moves + self.links + self.profiler


class Emulated:
    """An emulated cluster: `len(serials)` boards of the overlay's kind, with these cables. It lives
    until `close`, or until nothing refers to it. Native kernels run on `threads` threads, None for
    one per CPU. `cards`: simulated cards in the boards' places, which run no kernels."""

    def __init__(
        self,
        overlay: Overlay,
        serials: Sequence[int],
        cables: Sequence[Cable],
        kernels: str = "native",
        trace: bool = False,
        threads: int | None = None,
        cards: sim.Cards | None = None,
    ) -> None:
        ffi, lib = native.ffi(), native.lib()
        self.cards = cards
        self.size = len(serials)
        self.dropped = [0] * self.size
        table = kernel_table(kernels)
        self.kernels_name: str = "" if cards else ffi.string(table.name).decode()
        infos = ffi.new("struct lora_board_info[]", self.size)
        for info, serial in zip(infos, serials, strict=True):
            _fill_info(info, overlay, serial)
        ends = ffi.new("struct lora_emu_cable[]", max(1, len(cables)))
        for end, cable in zip(ends, cables, strict=False):
            end.board_a, end.port_a = cable.board_a, cable.port_a
            end.board_b, end.port_b = cable.board_b, cable.port_b
        config = ffi.new("struct lora_emu_config *")
        config.size = ffi.sizeof("struct lora_emu_config")
        config.boards = self.size
        config.board_info = infos
        config.cable_count = len(cables)
        config.cables = ends
        config.clock_hz = overlay.clock_hz
        config.kernels = table
        config.link_configuration = overlay.link_configuration
        config.trace_capacity = TRACE_CAPACITY if trace else 0
        config.threads = threads or 0
        config.control = cards.control if cards else ffi.NULL
        number = ffi.new("uint32_t *")
        failure = ffi.new("struct lora_failure *")
        if lib.lora_emu_create(config, number, failure):
            if cards:
                cards.close()
            raise to_error(failure)
        self.number = int(number[0])
        # The table must outlive the cluster: the finalizer holds it.
        self._finalizer = weakref.finalize(self, _destroy, lib, self.number, table, cards)
        _newest.append(weakref.ref(self))
        del _newest[:-1]

    def close(self) -> None:
        """Ends the cluster. Boards that are still open keep it alive until they are closed."""
        self._finalizer()

    def uri(self, board: int) -> str:
        """The URI under which the C library opens a board."""
        return f"emu:{self.number}/{board}"

    def kernel_failure(self) -> str:
        """Traceback of a NumPy kernel that failed since the last call, "" if none did."""
        if self.kernels_name != "numpy":
            return ""
        from .emu import take_failure

        return take_failure()

    @property
    def variant(self) -> str:
        """Instruction set of the native kernels ("plain", "avx2", "avx512-vnni" and the
        like), "" for others."""
        if self.kernels_name in ("numpy", ""):
            return ""
        ffi, lib = native.ffi(), native.lib()
        return str(ffi.string(lib.lora_native_current()).decode())

    @property
    def simulated(self) -> str:
        """One line on what ran in simulated units and what did not; "" unless kernels are "rtl"."""
        return str(rtl.simulated_work()) if self.kernels_name == "rtl" else ""

    def simulated_cycles(self) -> list[int]:
        """Clock cycles that each board has spent on operations so far; empty unless its boards are
        simulated cards."""
        if self.cards is None or not self._finalizer.alive:
            return []
        return [self.cards.cycles(board).busy for board in range(self.size)]

    @property
    def threads(self) -> int:
        """Number of threads of the kernels."""
        return int(native.lib().lora_emu_threads(self.number))

    @property
    def unit_seconds(self) -> UnitSeconds:
        """Wall-clock time of the units' work while the profiler was on."""
        times = native.ffi().new("struct lora_emu_times *")
        native.lib().lora_emu_times(self.number, times)
        names = (field.name for field in fields(UnitSeconds))
        return UnitSeconds(*(getattr(times, f"{name}_ns") * 1e-9 for name in names))

    def profile(self, on: bool) -> None:
        """Turns the units' profiler on or off. It takes about 20 ns per command."""
        native.lib().lora_emu_profile(self.number, on)

    def fault(self, board: int, kind: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        """Injects a fault (abi.FAULT_...; abi.FAULT_NONE clears all faults of the board).
        RequestError for an unknown fault, and on simulated cards for those of emulated units."""
        self._check_board(board)
        if self.cards is not None:
            sim.check_fault(kind)
        status = native.lib().lora_emu_fault(self.number, board, kind, a, b, c)
        if status:
            raise RequestError(f"fault {kind} ({a}, {b}, {c}) on board {board}: no such fault")

    def trace(self, board: int) -> npt.NDArray[np.void]:
        """Commands run by a board since the last call, oldest first: abi.dtype("trace_record").
        Records that did not fit are counted in `dropped[board]`."""
        self._check_board(board)
        ffi = native.ffi()
        records = np.zeros(TRACE_CAPACITY, abi.dtype("trace_record"))
        lost = ffi.new("uint32_t *")
        count = native.lib().lora_emu_trace(
            self.number,
            board,
            ffi.from_buffer("struct lora_trace_record[]", records, require_writable=True),
            TRACE_CAPACITY,
            lost,
        )
        self.dropped[board] += int(lost[0])
        kept: npt.NDArray[np.void] = records[:count].copy()
        return kept

    def link_bytes(self, board: int, port: int) -> tuple[int, int]:
        """(frame bytes, payload bytes) that a port has sent since the cluster was created."""
        self._check_board(board)
        ffi = native.ffi()
        sums = ffi.new("uint64_t[2]")
        if native.lib().lora_emu_link_bytes(self.number, board, port, sums, sums + 1):
            raise RequestError(f"board {board} port {port}: no such port")
        return int(sums[0]), int(sums[1])

    def weight_bytes(self, board: int) -> int:
        """Bytes of weight blocks that a board's matmuls have read since the cluster was created; of
        experts those that some row chose."""
        self._check_board(board)
        found = native.ffi().new("uint64_t *")
        native.lib().lora_emu_weight_bytes(self.number, board, found)
        return int(found[0])

    def _check_board(self, board: int) -> None:
        if not 0 <= board < self.size:
            raise RequestError(f"board {board}: the cluster has boards 0..{self.size - 1}")


def newest() -> Emulated | None:
    """The emulated cluster that was created last, while it is referred to: for faults in boards
    that an engine is still opening."""
    return _newest[-1]() if _newest else None


def _fill_info(info: Any, overlay: Overlay, serial: int) -> None:
    info.size = native.ffi().sizeof("struct lora_board_info")
    info.board_kind = overlay.board.kind
    info.serial = serial
    info.bank_count = len(overlay.board.banks)
    for bank in overlay.board.banks:
        info.bank_bytes[bank.index] = bank.usable
    info.name = overlay.board.name.encode()


def _destroy(lib: Any, number: int, _kept: Any, cards: sim.Cards | None) -> None:
    lib.lora_emu_destroy(number)
    if cards:
        cards.close()
