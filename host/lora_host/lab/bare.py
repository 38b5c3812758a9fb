"""Alveo boards with any xclbin. Memory banks and link cores come from the container's sections. No
manifest and no lora_ctrl is needed."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import axlf, native
from ..errors import RequestError
from ..failure import to_error
from ..lock import BoardLock
from ..xclbin import Xclbin, read_xclbin

# The runtime keeps its own buffers in a bank's first page.
PAGE = 4096
_MEMORIES = (axlf.MEM_DDR3, axlf.MEM_DDR4, axlf.MEM_DRAM, axlf.MEM_HBM)
_CORE = re.compile(r"aurora\D*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class BareBank:
    """A bank of the container. `memory`: its index in the topology; `usable`: bytes."""

    name: str
    memory: int
    usable: int


@dataclass(frozen=True)
class BareCore:
    """A link core. `name`: "kernel:instance"; `port`: the number in its kernel's name."""

    name: str
    port: int
    base: int


def banks_of(container: Xclbin) -> tuple[BareBank, ...]:
    """Banks in use. Groups, which the vendor's linker appends, are skipped: their banks are already
    listed."""
    own = container.sections.get(axlf.MEM_TOPOLOGY, b"")
    count = axlf.COUNT_8.unpack_from(own)[0] if len(own) >= axlf.COUNT_8.size else 0
    return tuple(
        BareBank(memory.tag, index, memory.bytes - PAGE)
        for index, memory in enumerate(container.memories[:count])
        if memory.used and memory.kind in _MEMORIES and memory.bytes > PAGE
    )


def cores_of(container: Xclbin) -> tuple[BareCore, ...]:
    """Link cores by port: kernels without a control protocol and with aurora and a number in their
    names, as AuroraFlow's have."""
    found = []
    for ip in container.ips:
        match = _CORE.search(ip.kernel)
        if ip.kind == axlf.IP_KERNEL and ip.control == axlf.AP_CTRL_NONE and match:
            found.append(BareCore(ip.name, int(match[1]), ip.base))
    return tuple(sorted(found, key=lambda core: core.port))


class BareBoard:
    """A board with a loaded container, created by `BareBoards`. Raises errors of lora_host."""

    def __init__(self, uri: str, path: Path) -> None:
        self.uri = uri
        self._ffi, self._lib = native.ffi(), native.lib()
        self._failure = self._ffi.new("struct lora_failure *")
        out = self._ffi.new("struct lora_xrt_board **")
        address = uri.partition(":")[2]
        self._check(
            self._lib.lora_xrt_open(address.encode(), str(path).encode(), out, self._failure)
        )
        self._board = out[0]
        self._finalizer = weakref.finalize(self, self._lib.lora_xrt_close, self._board)
        self._cores: dict[str, int] = {}

    def buffer(self, memory: int, bytes: int) -> int:
        """Allocates a buffer in a memory of the topology. Returns its number."""
        out = self._ffi.new("uint32_t *")
        self._check(self._lib.lora_xrt_buffer(self._board, memory, bytes, out, self._failure))
        return int(out[0])

    def write(self, buffer: int, offset: int, data: Any) -> None:
        """Bytes to a buffer."""
        source = self._ffi.from_buffer(data)
        self._check(
            self._lib.lora_xrt_write(
                self._board, buffer, offset, source, len(source), self._failure
            )
        )

    def read(self, buffer: int, offset: int, bytes: int) -> bytearray:
        """Bytes of a buffer, from the board."""
        out = bytearray(bytes)
        target = self._ffi.from_buffer(out, require_writable=True)
        self._check(
            self._lib.lora_xrt_read(self._board, buffer, offset, target, bytes, self._failure)
        )
        return out

    def register(self, core: BareCore, offset: int) -> int:
        """A register of a link core."""
        out = self._ffi.new("uint32_t *")
        self._check(
            self._lib.lora_xrt_core_read(self._board, self._core(core), offset, out, self._failure)
        )
        return int(out[0])

    def set_register(self, core: BareCore, offset: int, value: int) -> None:
        """Writes a register of a link core."""
        self._check(
            self._lib.lora_xrt_core_write(
                self._board, self._core(core), offset, value, self._failure
            )
        )

    def close(self) -> None:
        """Releases the board. May be called twice."""
        self._finalizer()

    def _core(self, core: BareCore) -> int:
        if core.name not in self._cores:
            out = self._ffi.new("uint32_t *")
            name = core.name.encode()
            self._check(self._lib.lora_xrt_core(self._board, name, out, self._failure))
            self._cores[core.name] = int(out[0])
        return self._cores[core.name]

    def _check(self, status: int) -> None:
        if status:
            raise to_error(self._failure)


class BareBoards:
    """Boards with the same container, locked by this process; a context manager. RequestError for a
    board that does not use xclbin, OverlayError for a container that cannot be read."""

    def __init__(self, uris: Sequence[str], path: str | Path) -> None:
        for uri in uris:
            if not uri.startswith("xrt:"):
                raise RequestError(
                    f"device {uri!r}: takes no xclbin; xrt:INDEX or xrt:BDF expected"
                )
        if not uris:
            raise RequestError("a container is for boards; name them with --device xrt:INDEX")
        self.container = read_xclbin(path)
        self.banks = banks_of(self.container)
        self.cores = cores_of(self.container)
        self.boards: list[BareBoard] = []
        self._lock = BoardLock(uris)
        try:
            for uri in uris:
                self.boards.append(BareBoard(uri, Path(path)))
        except BaseException:
            self.close()
            raise

    @property
    def has_control(self) -> bool:
        """Whether the container has lora_ctrl. With a manifest all tests would then be possible."""
        return any(ip.kernel == "lora_ctrl" for ip in self.container.ips)

    def close(self) -> None:
        """Releases the boards."""
        for board in self.boards:
            board.close()
        self._lock.close()

    def __enter__(self) -> BareBoards:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
