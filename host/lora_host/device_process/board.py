"""One emulated board as XRT sees it: buffer objects at physical addresses, register blocks at their
bases. As on the card, the host maps buffer objects to banks through lora_ctrl's arena records.
Until then their bytes are staged."""

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

BLOCK_BYTES = 0x10000


@dataclass
class Buffer:
    """A buffer object: its address, and its bytes, staged or in an arena (bank, offset)."""

    address: int
    bytes: int
    staged: npt.NDArray[np.uint8] | None = None
    arena: tuple[int, int] | None = None


class EmulatedBoard:
    """Board `index` of an emulated cluster, used through its transport table. Errors of the
    transport are raised as `lora_host.errors`."""

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
        handle = self._ffi.new("void **")
        address = cluster.uri(index).partition(":")[2]
        self._check(self._table.open(address.encode(), handle, self._failure))
        self._handle = handle[0]

    def close(self) -> None:
        """Releases the board in its initial state: no program, no memory."""
        self._table.reset(self._handle, self._failure)
        self._table.close(self._handle)

    def program(self, bases: tuple[int | None, ...] | None = None) -> None:
        """Loads the overlay again; memory is lost. `bases`: bases of lora_ctrl and the link cores
        in the loaded container, None for each that is absent; by default the overlay's."""
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
        """The host has allocated a buffer object. False if it overlaps another, or no bank is as
        large."""
        if bytes > max(bank.capacity for bank in self._overlay.board.banks):
            return False
        for other in self._buffers.values():
            if address < other.address + other.bytes and other.address < address + bytes:
                return False
        self._buffers[address] = Buffer(address, bytes)
        self._starts = sorted(self._buffers)
        return True

    def free(self, address: int) -> bool:
        """The host frees a buffer object. False if there is none."""
        found = self._buffers.pop(address, None)
        self._starts = sorted(self._buffers)
        return found is not None

    def write(self, address: int, data: memoryview) -> None:
        """Bytes from the host. TransportError outside the buffer objects."""
        buffer = self._find(address, len(data))
        start = address - buffer.address
        if buffer.arena is None:
            if buffer.staged is None:
                buffer.staged = np.zeros(buffer.bytes, np.uint8)
            buffer.staged[start : start + len(data)] = np.frombuffer(data, np.uint8)
            return
        bank, offset = buffer.arena
        source = self._ffi.from_buffer(data)
        self._check(
            self._table.memory_write(
                self._handle, bank, offset + start, source, len(data), self._failure
            )
        )

    def read(self, address: int, bytes: int) -> memoryview:
        """Bytes for the host. TransportError outside the buffer objects."""
        buffer = self._find(address, bytes)
        start = address - buffer.address
        out = bytearray(bytes)
        if buffer.arena is None:
            if buffer.staged is not None:
                out[:] = buffer.staged.data[start : start + bytes]
            return memoryview(out)
        bank, offset = buffer.arena
        target = self._ffi.from_buffer(out, require_writable=True)
        self._check(
            self._table.memory_read(
                self._handle, bank, offset + start, target, bytes, self._failure
            )
        )
        return memoryview(out)

    def _find(self, address: int, bytes: int) -> Buffer:
        index = bisect_right(self._starts, address) - 1
        buffer = self._buffers[self._starts[index]] if index >= 0 else None
        if buffer is None or bytes > buffer.bytes - (address - buffer.address):
            raise TransportError(
                f"{bytes} B at {address:#x}: outside every buffer object; an error of the host"
            )
        return buffer

    # --- registers ---

    def register_read(self, base: int, offset: int) -> int:
        """A register of the block at `base`."""
        self._check(
            self._table.register_read(
                self._handle, self._block(base, offset), offset, self._word, self._failure
            )
        )
        return int(self._word[0])

    def register_write(self, base: int, offset: int, value: int) -> None:
        """Writes a register. As on the card, writing the count activates the arena records."""
        block = self._block(base, offset)
        self._check(self._table.register_write(self._handle, block, offset, value, self._failure))
        if block == abi.BLOCK_CONTROL and offset == abi.REG_ARENA_COUNT:
            self._follow_records(base, value)

    def _block(self, base: int, offset: int) -> int:
        if base not in self._bases:
            raise TransportError(f"no register block at {base:#x}")
        if offset >= BLOCK_BYTES:
            raise TransportError(f"no register {offset:#x} in the block at {base:#x}")
        return self._bases.index(base)

    def _follow_records(self, base: int, count: int) -> None:
        """Updates the emulated board's arenas to match the records."""
        records: dict[tuple[int, int], tuple[int, int]] = {}
        for index in range(min(count, int(abi.MAX_ARENAS))):
            words = np.array(
                [self.register_read(base, abi.REG_ARENAS + 32 * index + 4 * w) for w in range(8)],
                np.uint32,
            )
            record = words.view(abi.dtype("arena_record"))[0]
            if record["valid"]:
                arena = int(record["bank"]), int(record["offset"])
                records[arena] = int(record["base"]), int(record["bytes"])
        for bank, offset in [arena for arena in self._arenas if arena not in records]:
            self._check(self._table.release(self._handle, bank, offset, self._failure))
            del self._arenas[bank, offset]
        for arena, (address, bytes) in records.items():
            if arena not in self._arenas:
                self._adopt(arena, address, bytes)

    def _adopt(self, arena: tuple[int, int], address: int, bytes: int) -> None:
        buffer = self._buffers.get(address)
        if buffer is None or buffer.bytes < bytes:
            raise TransportError(
                f"arena record of {bytes} B at {address:#x}: no such buffer object"
            )
        bank, offset = arena
        self._check(
            self._table.reserve(self._handle, bank, offset, bytes, self._base, self._failure)
        )
        self._arenas[arena] = bytes
        staged, buffer.staged, buffer.arena = buffer.staged, None, arena
        if staged is not None:
            self.write(address, staged.data[:bytes])

    def _check(self, status: int) -> None:
        if status:
            raise to_error(self._failure)
