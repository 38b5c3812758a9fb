"""One emulated board as XRT sees it: buffer objects at physical addresses, register blocks at
their bases. Which bytes of which bank a buffer object is, the host says through lora_ctrl's arena
records, as on the card; until then the bytes are kept aside."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lora_host import abi, native
from lora_host.emulated import Emulated
from lora_host.errors import TransportError
from lora_host.failure import to_error
from lora_host.overlay import Overlay


@dataclass
class Buffer:
    """A buffer object: where it lies, and its bytes, aside or as an arena (bank, offset)."""

    address: int
    bytes: int
    aside: npt.NDArray[np.uint8] | None = None
    arena: tuple[int, int] | None = None


class EmulatedBoard:
    """Board `index` of an emulated cluster through its transport table. Errors of the transport are
    raised as those of `lora_host.errors`."""

    def __init__(self, cluster: Emulated, overlay: Overlay, index: int) -> None:
        self._ffi = native.ffi()
        self._table = native.lib().lora_transport_emu
        self._overlay = overlay
        self._failure = self._ffi.new("struct lora_failure *")
        self._word = self._ffi.new("uint32_t *")
        self._base = self._ffi.new("uint64_t *")
        self._buffers: dict[int, Buffer] = {}
        self._starts: list[int] = []
        self._arenas: dict[tuple[int, int], int] = {}  # (bank, offset) -> bytes
        self._bases: tuple[int | None, ...] = overlay.block_base
        place = self._ffi.new("void **")
        address = cluster.uri(index).partition(":")[2]
        self._check(self._table.open(address.encode(), place, self._failure))
        self._handle = place[0]

    def close(self) -> None:
        """Gives the board back as it was: no program, no memory."""
        self._table.reset(self._handle, self._failure)
        self._table.close(self._handle)

    def program(self, bases: tuple[int | None, ...] | None = None) -> None:
        """Loads the overlay anew; memory is lost. `bases`: where the container that was loaded has
        lora_ctrl and the link cores, None for one that it has not; by default the overlay's."""
        self._bases = self._overlay.block_base if bases is None else bases
        self._check(self._table.reset(self._handle, self._failure))
        self._buffers.clear()
        self._starts.clear()
        self._arenas.clear()
        overlay = self._overlay
        image = self._ffi.from_buffer(overlay.image)
        program = self._ffi.new("struct lora_program *")
        program.size = self._ffi.sizeof("struct lora_program")
        program.board_kind = overlay.board.kind
        program.abi = overlay.abi
        program.onchip_bytes = overlay.onchip_bytes
        program.block_base = list(overlay.block_base)
        program.image = self._ffi.cast("uint8_t *", image)
        program.image_bytes = len(image)
        self._check(self._table.program(self._handle, program, self._failure))

    # --- buffer objects ---

    def allocate(self, address: int, bytes: int) -> bool:
        """The host has placed a buffer object; False when it overlaps another."""
        for other in self._buffers.values():
            if address < other.address + other.bytes and other.address < address + bytes:
                return False
        self._buffers[address] = Buffer(address, bytes)
        self._starts = sorted(self._buffers)
        return True

    def free(self, address: int) -> bool:
        """The host takes a buffer object away; False when there is none."""
        found = self._buffers.pop(address, None)
        self._starts = sorted(self._buffers)
        return found is not None

    def write(self, address: int, data: memoryview) -> None:
        """Bytes from the host. TransportError outside the buffer objects."""
        buffer = self._find(address, len(data))
        at = address - buffer.address
        if buffer.arena is None:
            if buffer.aside is None:
                buffer.aside = np.zeros(buffer.bytes, np.uint8)
            buffer.aside[at : at + len(data)] = np.frombuffer(data, np.uint8)
            return
        bank, offset = buffer.arena
        source = self._ffi.from_buffer(data)
        self._check(
            self._table.memory_write(
                self._handle, bank, offset + at, source, len(data), self._failure
            )
        )

    def read(self, address: int, bytes: int) -> memoryview:
        """Bytes for the host. TransportError outside the buffer objects."""
        buffer = self._find(address, bytes)
        at = address - buffer.address
        out = bytearray(bytes)
        if buffer.arena is None:
            if buffer.aside is not None:
                out[:] = buffer.aside.data[at : at + bytes]
            return memoryview(out)
        bank, offset = buffer.arena
        target = self._ffi.from_buffer(out, require_writable=True)
        self._check(
            self._table.memory_read(self._handle, bank, offset + at, target, bytes, self._failure)
        )
        return memoryview(out)

    def _find(self, address: int, bytes: int) -> Buffer:
        place = bisect_right(self._starts, address) - 1
        buffer = self._buffers[self._starts[place]] if place >= 0 else None
        if buffer is None or bytes > buffer.bytes - (address - buffer.address):
            raise TransportError(
                f"{bytes} B at {address:#x}: outside every buffer object; the host's fault"
            )
        return buffer

    # --- registers ---

    def register_read(self, base: int, offset: int) -> int:
        """A register of the block at `base`."""
        self._check(
            self._table.register_read(
                self._handle, self._block(base), offset, self._word, self._failure
            )
        )
        return int(self._word[0])

    def register_write(self, base: int, offset: int, value: int) -> None:
        """Writes a register. Arena records take effect with their count, as in the firmware."""
        block = self._block(base)
        self._check(self._table.register_write(self._handle, block, offset, value, self._failure))
        if block == abi.BLOCK_CONTROL and offset == abi.REG_ARENA_COUNT:
            self._follow_records(base, value)

    def _block(self, base: int) -> int:
        if base not in self._bases:
            raise TransportError(f"no register block at {base:#x}")
        return self._bases.index(base)

    def _follow_records(self, base: int, count: int) -> None:
        """Makes the emulated board's arenas those of the records."""
        wanted: dict[tuple[int, int], tuple[int, int]] = {}
        for index in range(min(count, int(abi.MAX_ARENAS))):
            words = np.array(
                [self.register_read(base, abi.REG_ARENAS + 32 * index + 4 * w) for w in range(8)],
                np.uint32,
            )
            record = words.view(abi.dtype("arena_record"))[0]
            if record["valid"]:
                place = int(record["bank"]), int(record["offset"])
                wanted[place] = int(record["base"]), int(record["bytes"])
        for bank, offset in [place for place in self._arenas if place not in wanted]:
            self._check(self._table.release(self._handle, bank, offset, self._failure))
            del self._arenas[bank, offset]
        for place, (address, bytes) in wanted.items():
            if place not in self._arenas:
                self._adopt(place, address, bytes)

    def _adopt(self, place: tuple[int, int], address: int, bytes: int) -> None:
        buffer = self._buffers.get(address)
        if buffer is None or buffer.bytes < bytes:
            raise TransportError(
                f"arena record of {bytes} B at {address:#x}: no such buffer object"
            )
        bank, offset = place
        self._check(
            self._table.reserve(self._handle, bank, offset, bytes, self._base, self._failure)
        )
        self._arenas[place] = bytes
        aside, buffer.aside, buffer.arena = buffer.aside, None, place
        if aside is not None:
            self.write(address, aside.data[:bytes])

    def _check(self, status: int) -> None:
        if status:
            raise to_error(self._failure)
