"""Overlay and buffers as PYNQ objects (pynq 3.0.1, the last release that supports Alveo cards), for
notebooks that access a board's memory with NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..errors import OverlayError, PlacementError, RequestError, TransportError
from ..overlay import Overlay
from ..xclbin import read_xclbin


@dataclass(frozen=True)
class PynqBoard:
    """An overlay of this project on one board. `pynq`: its `pynq.Overlay`."""

    overlay: Overlay
    pynq: Any

    def allocate(self, bank: int, shape: int | tuple[int, ...], dtype: Any = "u4") -> Any:
        """A `PynqBuffer`, a NumPy array with `sync_to_device`, `sync_from_device`,
        `device_address` and `freebuffer`, in bank `bank`. RequestError if there is no such bank,
        PlacementError if the bank is full."""
        banks = self.overlay.board.banks
        if not 0 <= bank < len(banks):
            raise RequestError(
                f"bank {bank}: {self.overlay.board.name} has banks 0..{len(banks) - 1}"
            )
        name = banks[bank].name
        device = self.pynq.device
        try:
            memory = device.get_memory_by_name(name)
        except RuntimeError as cause:
            raise OverlayError(f"bank {name}: the loaded container has none; {cause}") from cause
        try:
            return _module().allocate(shape, dtype, target=memory)
        except (RuntimeError, MemoryError) as cause:
            raise PlacementError(
                f"bank {bank} ({name}): no buffer of shape {shape}, {dtype}: {cause}; "
                f"the bank has {banks[bank].usable >> 20} MiB"
            ) from cause

    def close(self) -> None:
        """Frees the overlay. Buffers are freed by `freebuffer` or with the last reference."""
        self.pynq.free()


def devices() -> list[tuple[int, str]]:
    """(index, name) of the boards that PYNQ finds. TransportError without pynq."""
    found = _module().Device.devices
    return [(index, str(device.name)) for index, device in enumerate(found)]


def open_board(overlay: Overlay, index: int = 0, download: bool = True) -> PynqBoard:
    """The overlay on board `index`, loaded unless `download` is False. OverlayError if the manifest
    names no xclbin, TransportError if PYNQ finds no such board."""
    if overlay.container is None or overlay.board.shell is None:
        raise OverlayError(
            f"overlay {overlay.name}: no xclbin in its manifest, one expected: PYNQ knows Alveo "
            "cards alone"
        )
    read_xclbin(overlay.container)  # checks its fields, which PYNQ does not
    pynq = _module()
    found = pynq.Device.devices
    if not 0 <= index < len(found):
        raise TransportError(
            f"board {index}: PYNQ finds {len(found)}, an index below that expected; pynq 4 finds "
            "none: install lora-fpga[boards], and source XRT's setup.sh"
        )
    try:
        opened = pynq.Overlay(str(overlay.container), download=download, device=found[index])
    except (RuntimeError, OSError) as cause:
        raise TransportError(f"board {index}: PYNQ cannot load {overlay.name}: {cause}") from cause
    return PynqBoard(overlay, opened)


def _module() -> Any:
    try:
        return import_module("pynq")
    except Exception as cause:  # its import accesses the hardware and may raise anything
        raise TransportError(
            f"pynq: {cause}; pip install 'lora-fpga[boards]' (pynq 3.0.1, whose dependencies need "
            "Python 3.10 or older)"
        ) from cause
