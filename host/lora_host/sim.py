"""Simulated cards as boards (`sim:u280`): a separate library next to this file, built from
overlays/rtl with Verilator by `make sim-build`. docs/rtl.md says what it simulates."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import abi, native
from .errors import OverlayError, RequestError
from .overlay import Overlay

LIBRARY = "_lora_sim.so"  # only in this package's folder
VERSION = 5  # of csrc/sim/sim.hpp
BUILD = "build it in a checkout with 'make sim-build' (it needs Verilator)"
BUILD_CHANNELS = "build it in a checkout with 'make -C csrc/sim CHANNELS={}' (it needs Verilator)"
MEMORY_NS = 122.2  # window_ns of timing/data/control.yaml: idle latency of HBM
SLICE = 500  # cycles between two looks at other boards and at the host, where links allow it
CHANNELS = (2, 4, 8, 16, 32)  # of cards whose overlays place columns
_SPACING = 1 << 16
_LINE = _BEAT = 64


_TOLD = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)


class _Config(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint32) for name in (
            "size", "boards", "cycles_per_ms", "slice", "latency", "onchip", "link_latency",
            "beat_spacing", "seed",
        )),
        ("line_spacing", ctypes.c_uint32 * (abi.MAX_BANKS + 1)),
        ("told", _TOLD),
    ]  # fmt: skip


class _Counts(ctypes.Structure):
    _fields_ = [("cycles", ctypes.c_uint64), ("busy", ctypes.c_uint64)]


@dataclass(frozen=True)
class Bench:
    """What tests want of simulated cards. `seed`: not 0, and memory and links answer now and then.
    `latency`: cycles after which memory answers; 0: latency and rates are as the board's data say.
    `onchip`: cycles after which the activation buffer answers; 0: as late as memory.
    `line_rate`: lines a cycle that each bank gives where `latency` is set; 0: of any rate.
    `told`: called as lora_sim_config says. `library`: another one than this package's."""

    seed: int = 0
    latency: int = 0
    onchip: int = 0
    line_rate: float = 0.0
    told: Callable[[int, int, int, int], None] | None = None
    library: Any = None


@dataclass(frozen=True)
class CardCycles:
    """Clock cycles of a simulated card so far: all that were simulated, and those of operations,
    from the doorbell to the done bit."""

    simulated: int
    busy: int


def load(path: Path, channels: int = 0) -> Any:
    """The library at `path`, of cards with so many channels for messages. RequestError if it is
    missing, not a plain file, cannot be loaded or has another version."""
    if path.is_symlink() or not path.is_file():
        how = BUILD if not channels else BUILD_CHANNELS.format(channels)
        raise RequestError(f"simulated cards: {path} is missing or not a plain file; {how}")
    try:
        found = ctypes.CDLL(str(path))
        found.lora_sim_version.restype = ctypes.c_uint32
        version = int(found.lora_sim_version())
    except (OSError, AttributeError) as cause:
        raise RequestError(
            f"simulated cards: {path} cannot be loaded ({cause}); {BUILD}"
        ) from cause
    if version != VERSION:
        raise RequestError(
            f"simulated cards: {path} has version {version}, {VERSION} expected; {BUILD}"
        )
    for name in ("onchip_bytes", "lanes", "channels"):
        getattr(found, f"lora_sim_{name}").restype = ctypes.c_uint32
    found.lora_sim_open.restype = ctypes.c_void_p
    found.lora_sim_open.argtypes = (ctypes.POINTER(_Config),)
    found.lora_sim_close.argtypes = (ctypes.c_void_p,)
    found.lora_sim_close.restype = None
    found.lora_sim_read_counts.restype = None
    found.lora_sim_read_counts.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.POINTER(_Counts),
    )
    return found


@cache
def library(channels: int = 0) -> Any:
    """This package's library of cards with so many channels, loaded once. Errors as in `load`."""
    name = Path(LIBRARY)
    if channels:
        name = name.with_stem(f"{name.stem}_{channels}")
    return load(Path(__file__).resolve().parent / name, channels)


class Cards:
    """Cards of one emulated cluster, in its boards' places. `lanes`: of the FP16 arrays. `latency`:
    of memory, cycles."""

    def __init__(self, overlay: Overlay, boards: int, bench: Bench = Bench()) -> None:
        _check_channels(overlay)
        wanted = bench.library
        self._library = library(overlay.channels) if wanted is None else wanted
        _check(overlay, int(self._library.lora_sim_onchip_bytes()))
        config = _config(overlay, boards, bench)
        self._told = config.told  # as long as the cards
        self.lanes = int(self._library.lora_sim_lanes())
        self.latency = int(config.latency)
        self._address = self._library.lora_sim_open(ctypes.byref(config))
        if not self._address:
            raise RequestError("simulated cards: no memory for them")
        self.control = native.ffi().cast("struct lora_control *", self._address)

    def cycles(self, board: int) -> CardCycles:
        """Of one board so far."""
        counts = _Counts()
        self._library.lora_sim_read_counts(self._address, board, ctypes.byref(counts))
        return CardCycles(int(counts.cycles), int(counts.busy))

    def close(self) -> None:
        """The cards end with their cluster. No other call is allowed then."""
        self._library.lora_sim_close(self._address)


_UNIT_FAULTS = (
    abi.FAULT_UNIT_STUCK, abi.FAULT_UNIT_SLOW, abi.FAULT_UNIT_FORGETS, abi.FAULT_MISFILE,
    abi.FAULT_CLOCK_JUMP, abi.FAULT_BLIND,
)  # fmt: skip


def check_fault(kind: int) -> None:
    """RequestError for a fault of emulated units or firmware, which simulated cards do not have."""
    if kind & ~abi.FAULT_UNTIL_RESET in _UNIT_FAULTS:
        raise RequestError(
            f"fault {kind}: it is one of emulated units; simulated cards have faults of memory, "
            "links, registers and records only"
        )


def _check_channels(overlay: Overlay) -> None:
    if overlay.channels and (overlay.weight_banks[0] or overlay.channels not in CHANNELS):
        raise OverlayError(
            f"overlay {overlay.name}: columns in banks {overlay.weight_banks[0]}.."
            f"{overlay.weight_banks[-1]} found; simulated cards have 2, 4, 8, 16 or 32 channels, a "
            "bank each from bank 0 on"
        )


def _check(overlay: Overlay, onchip: int) -> None:
    if overlay.onchip_bytes != onchip:
        raise OverlayError(
            f"overlay {overlay.name}: {overlay.onchip_bytes} B of activation buffer found, "
            f"{onchip} B expected by simulated cards; use another overlay"
        )


def line_rate(overlay: Overlay) -> float:
    """Lines a cycle that a weight bank gives on simulated cards, by the board's data."""
    bank = overlay.board.banks[overlay.weight_banks[0]]
    return min(1.0, bank.bandwidth / (_LINE * overlay.clock_hz))


def _config(overlay: Overlay, boards: int, bench: Bench) -> _Config:
    """Times of the board's data in cycles of the overlay's clock."""
    clock, links = overlay.clock_hz, overlay.links
    rate = min(links.port_bytes, links.lanes * links.lane_bits_per_second / 8 / clock)
    hop = max(1, round(links.latency_ns * 1e-9 * clock))
    spacing = [_SPACING] * (abi.MAX_BANKS + 1)
    for bank in overlay.board.banks:
        spacing[bank.index] = max(_SPACING, round(_LINE * clock / bank.bandwidth * _SPACING))
    if bench.latency:
        spacing = [round(_SPACING / bench.line_rate) if bench.line_rate else 0] * len(spacing)
    latency = bench.latency or round(MEMORY_NS * 1e-9 * clock)
    return _Config(
        size=ctypes.sizeof(_Config),
        boards=boards,
        cycles_per_ms=clock // 1000,
        slice=SLICE if boards == 1 else min(SLICE, hop),
        latency=latency,
        onchip=bench.onchip or latency,
        link_latency=hop,
        beat_spacing=round(_BEAT / rate * _SPACING),
        seed=bench.seed,
        line_spacing=(ctypes.c_uint32 * len(spacing))(*spacing),
        told=_TOLD() if bench.told is None else _TOLD(bench.told),
    )
