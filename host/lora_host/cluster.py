"""A cluster of opened boards: memory, links, command lists, steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import abi, native
from .board_types import opened_type
from .callbacks import TokenCallback
from .cluster_file import Cable, ClusterFile
from .device_uri import check_cards, is_emulated, is_remote, is_simulated
from .emulated import Emulated
from .errors import RequestError, TransportError
from .handle import Handle
from .lock import BoardLock
from .overlay import Overlay
from .placing import PackTask, Placing, Range, Scratch
from .records import (
    BoardInfo,
    ClusterStats,
    EccCounts,
    GenerateResult,
    GreedyResult,
    LinkFound,
    LinkStatus,
    board_info,
    fields_of,
    link_found,
    timeout_record,
)
from .selection import Selection, select
from .sim import Cards
from .unpacked import unpacked

NO_SLOT = 0xFFFFFFFF


class Cluster:
    """Open boards with a loaded overlay. Created by `Cluster.open`; a context manager.

    `size` boards with `infos`; `cables` between them. `kernels_name`: the emulated units' kernels,
    "" on real boards. `why`: one line on why these boards were selected. `emulated`: functions that
    only emulation has, None on real boards. All calls raise errors of `lora_host.errors`. Calls may
    come from any thread, and wait for each other, except `write`."""

    def __init__(
        self,
        handle: Handle,
        selection: Selection,
        overlay: Overlay,
        emulated: Emulated | None,
        lock: BoardLock | None = None,
    ) -> None:
        self._handle = handle
        self._lock = lock
        self._ffi = native.ffi()
        self.overlay = overlay
        self.emulated = emulated
        self.size = len(selection.boards)
        self.cables = selection.cables
        self.entries = selection.boards
        self.why = selection.why
        self.kernels_name = emulated.kernels_name if emulated else ""
        for board in range(self.size):
            self._program(board)
        self.infos: tuple[BoardInfo, ...] = tuple(map(self._info, range(self.size)))
        self._check_serials(selection)

    @classmethod
    def open(
        cls,
        boards: int | None = None,
        devices: Sequence[str] = (),
        cluster_file: str | Path | ClusterFile | None = None,
        *,
        overlay: Overlay,
        kernels: str = "native",
        timeouts: Mapping[str, int] | None = None,
        trace: bool = False,
        threads: int | None = None,
    ) -> Cluster:
        """Opens boards and loads the overlay: on all boards or on none.

        `boards`: number of boards. `devices`: their URIs. `cluster_file`: boards and cabling.
        Without the last two: emulated boards in a ring; one URI of emulated boards stands for all
        `boards`. `kernels` of emulated boards: "native", "numpy" or "rtl"; simulated cards take
        none, and keep no trace. `timeouts`: overrides by field of struct lora_timeouts. `trace`:
        emulated boards record their commands. `threads` of native kernels: None for one per CPU.
        Raises RequestError, OverlayError, TransportError."""
        selection = select(boards, devices, cluster_file, overlay)
        record = timeout_record(timeouts)
        if not is_emulated(selection.boards[0].uri):
            return cls._open_real(selection, overlay, record)
        serials = [entry.serial or board + 1 for board, entry in enumerate(selection.boards)]
        check_cards([entry.uri for entry in selection.boards], kernels, trace)
        simulated = is_simulated(selection.boards[0].uri)
        cards = Cards(overlay, len(serials)) if simulated else None
        emulated = Emulated(overlay, serials, selection.cables, kernels, trace, threads, cards)
        handle: Handle | None = None
        try:
            uris = [emulated.uri(board) for board in range(len(serials))]
            handle = Handle(uris, record, emulated.kernel_failure)
            return cls(handle, selection, overlay, emulated)
        except BaseException:
            if handle is not None:
                handle.close()
            emulated.close()
            raise

    @classmethod
    def _open_real(cls, selection: Selection, overlay: Overlay, timeouts: Any) -> Cluster:
        uris = [entry.uri for entry in selection.boards]
        lock = BoardLock([uri for uri in uris if not is_remote(uri)])  # a daemon holds its own
        handle: Handle | None = None
        try:
            handle = Handle(uris, timeouts)
            return cls(handle, selection, overlay, None, lock)
        except BaseException:
            if handle is not None:
                handle.close()
            lock.close()
            raise

    @cached_property
    def board_type(self) -> str:
        """What the boards are: "emulated", "simulated" or "real"; see `opened_type`."""
        return opened_type(self.entries[0].uri, self.overlay)

    @property
    def closed(self) -> bool:
        """Whether the boards have been released."""
        return self._handle.closed

    def close(self) -> None:
        """Releases the boards, cancelling a call in another thread. May be called twice."""
        self._handle.close()
        if self.emulated is not None:
            self.emulated.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- memory ---

    def reserve(self, board: int, bank: int, bytes: int, offset: int = 0) -> None:
        """Reserves [offset, offset+bytes) of a bank. PlacementError with requested, free and total
        bytes if the bank is full."""
        self._check_unsigned(board=board, bank=bank, offset=offset, bytes=bytes)
        self._handle.call("reserve", board, bank, offset, bytes)

    def write(self, board: int, bank: int, offset: int, buffer: Any) -> None:
        """Writes a contiguous buffer (bytes, array, memory map) to a reserved range. Does not wait
        for a call of another thread, which must not use the range meanwhile."""
        data = self._buffer(buffer, writable=False)
        self._check_unsigned(board=board, bank=bank, offset=offset)
        self._handle.beside("write", board, bank, offset, data, len(data))

    def read(self, board: int, bank: int, offset: int, bytes: int) -> bytearray:
        """Reads a reserved range."""
        self._check_unsigned(board=board, bank=bank, offset=offset, bytes=bytes)
        if bytes > sum(self.infos[board].banks) if board < self.size else False:
            raise RequestError(f"board {board}: {bytes} B requested, more than the board has")
        data = bytearray(bytes)
        self.read_into(board, bank, offset, data)
        return data

    def read_into(self, board: int, bank: int, offset: int, array: Any) -> None:
        """Fills a contiguous, writable buffer from a reserved range."""
        data = self._buffer(array, writable=True)
        self._check_unsigned(board=board, bank=bank, offset=offset)
        self._handle.call("read", board, bank, offset, data, len(data))

    def read_each(self, bank: int, parts: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint8]:
        """What each board has at its (offset, bytes) of a bank, one after another."""
        data = np.empty(sum([size for _, size in parts]), np.uint8)
        out, count = self._ffi.from_buffer(data), len(parts)
        self._handle.call("read_each", bank, self._ffi.new("struct lora_part[]", parts), count, out)
        return data

    def place(self, tasks: Sequence[PackTask], scratch: Scratch) -> list[Range]:
        """Converts, packs and writes tensors on `scratch.threads` threads. Returns the written
        ranges with checksums. ModelError names the first weight that FP16 cannot represent."""
        if not tasks:
            return []
        placing = Placing(tasks, scratch)
        self._handle.call("place", placing.record)
        return placing.ranges

    def checksum(self, board: int, bank: int, offset: int, bytes: int) -> int:
        """CRC-32 (zlib's) of a reserved range, computed by the board itself."""
        self._check_unsigned(board=board, bank=bank, offset=offset, bytes=bytes)
        out = self._ffi.new("uint32_t *")
        self._handle.call("checksum", board, bank, offset, bytes, out)
        return int(out[0])

    def regions(self, board: int, offset: int) -> None:
        """The board takes the table of weight regions at `offset` of its control bank (struct
        lora_scrub) and sums them from now on. CommandError names what it refuses."""
        self._check_unsigned(board=board, offset=offset)
        self._handle.call("regions", board, offset)

    def scrub(self, bytes: int = 0) -> None:
        """All boards sum about so many bytes of their regions now, each; 0: all of them."""
        self._check_unsigned(bytes=bytes)
        self._handle.call("scrub", bytes)

    def ecc(self, board: int) -> EccCounts | None:
        """Errors of the board's memory that its ECC has met; None where its runtime does not tell.
        No access to memory."""
        self._check_unsigned(board=board)
        out = self._ffi.new("struct lora_ecc *")
        self._handle.call("ecc", board, out)
        if not out.size:
            return None
        corrected, uncorrected = list(out.corrected), list(out.uncorrected)
        return EccCounts(
            {bank: int(count) for bank, count in enumerate(corrected) if count},
            {bank: int(count) for bank, count in enumerate(uncorrected) if count},
        )

    def register(self, board: int, block: int, offset: int) -> int:
        """A register of lora_ctrl (block 0) or of a link core (1, 2)."""
        self._check_unsigned(board=board, block=block, offset=offset)
        out = self._ffi.new("uint32_t *")
        self._handle.call("register_read", board, block, offset, out)
        return int(out[0])

    # --- links ---

    def links_up(self, cables: Sequence[Cable]) -> None:
        """Brings these links up on both ends and tests each: test frames and the peer's identity.
        LinkError names both ends."""
        ends = self._ffi.new("struct lora_cable[]", max(1, len(cables)))
        for end, cable in zip(ends, cables, strict=False):
            self._check_unsigned(
                board_a=cable.board_a,
                port_a=cable.port_a,
                board_b=cable.board_b,
                port_b=cable.port_b,
            )
            end.board_a, end.port_a = cable.board_a, cable.port_a
            end.board_b, end.port_b = cable.board_b, cable.port_b
        configuration = self.overlay.link_configuration
        mask = self.overlay.link_configuration_mask
        self._handle.call("links_up", ends, len(cables), configuration, mask)

    def links_discover(self) -> list[list[LinkFound]]:
        """Brings every port up and identifies its peer, independently of the cabling map:
        [board][port]. Links in use must be brought up again afterwards."""
        found = self._ffi.new("struct lora_link_found[]", self.size * abi.PORTS)
        self._handle.call("links_discover", found)
        return [
            [link_found(found[board * abi.PORTS + port]) for port in range(abi.PORTS)]
            for board in range(self.size)
        ]

    def link_status(self, board: int, port: int) -> LinkStatus:
        """A port's registers."""
        self._check_unsigned(board=board, port=port)
        record = self._ffi.new("struct lora_link_status *")
        self._handle.call("link_status", board, port, record)
        return LinkStatus(**fields_of(record, *LinkStatus.__dataclass_fields__))

    # --- lists and steps ---

    def register_list(self, board: int, list_id: int, offset: int) -> None:
        """Registers the list at `offset` of the control bank; the board checks and seals it.
        CommandError names the invalid command."""
        self._check_unsigned(board=board, list_id=list_id, offset=offset)
        self._handle.call("register_list", board, list_id, offset)

    def step(self, block: bytearray, block_offset: int) -> npt.NDArray[np.void]:
        """Runs one step on all boards. `block` is a struct lora_step and the data it refers to; its
        `step` and `epoch` are filled in. Returns the completion records, [size] of
        abi.dtype("completion"). After an error or Ctrl-C the same step may be run again."""
        self._check_unsigned(block_offset=block_offset)
        records = np.zeros(self.size, abi.dtype("completion"))
        out = self._ffi.from_buffer("struct lora_completion[]", records, require_writable=True)
        data = self._buffer(block, writable=True)
        self._handle.call("step", data, len(data), block_offset, out)
        return records

    def repeat(self) -> None:
        """The last step's results did not arrive: the next step is the same one again."""
        self._handle.call("repeat")

    def completions(self) -> npt.NDArray[np.void]:
        """Every board's last completion record, [size] of abi.dtype("completion"). No access."""
        records = np.zeros(self.size, abi.dtype("completion"))
        out = self._ffi.from_buffer("struct lora_completion[]", records, require_writable=True)
        self._handle.call("completions", out)
        return records

    def argmax(self, board: int, count: int) -> npt.NDArray[np.void]:
        """The board's records of the last step's first `count` selected rows, [count] of
        abi.dtype("argmax"). No further access: they came with its completion record."""
        self._check_unsigned(board=board, count=count)
        records = np.zeros(count, abi.dtype("argmax"))
        out = self._ffi.from_buffer("struct lora_argmax[]", records, require_writable=True)
        self._handle.call("argmax", board, count, out)
        return records

    def greedy(
        self,
        sequence: int,
        position: int,
        token: int,
        slots: tuple[int, int, int],
        max_tokens: int,
        block_offset: int,
        *,
        list_id: int = 0,
        pending_slot: int | None = None,
        stop_tokens: Sequence[int] = (),
        on_token: Callable[[int], bool | None] | None = None,
        adapter: int = -1,
    ) -> GreedyResult:
        """Greedy decoding in C from the pending `token` at `position`; its pages must be mapped.
        `slots` are used in turn. `pending_slot`: slot of the previous row, if it is not
        committed.
        `on_token` receives each token, stop tokens included; True ends the loop; its exceptions are
        raised here. `adapter`: slot of the rows, -1 for none. ModelError: a non-finite logit."""
        self._check_unsigned(sequence=sequence, position=position, token=token, slot_a=slots[0])
        self._check_unsigned(slot_b=slots[1], slot_c=slots[2], max_tokens=max_tokens)
        self._check_unsigned(block_offset=block_offset)
        stops = self._ffi.new("uint32_t[]", list(stop_tokens))
        loop = self._ffi.new("struct lora_greedy *")
        loop.size = self._ffi.sizeof("struct lora_greedy")
        loop.list_id, loop.block_offset = list_id, block_offset
        loop.sequence, loop.position, loop.token = sequence, position, token
        loop.slots = list(slots)
        loop.pending_slot = NO_SLOT if pending_slot is None else pending_slot
        loop.max_tokens, loop.adapter = max_tokens, adapter + 1
        loop.stop_tokens, loop.stop_count = stops, len(stop_tokens)
        callback = None if on_token is None else TokenCallback(on_token)
        if callback is not None:
            context = self._ffi.new_handle(callback)  # lives while the loop runs
            loop.on_token, loop.context = native.lib().lora_py_token, context
        self._handle.call("greedy", loop)
        if callback is not None and callback.raised is not None:
            raise callback.raised
        last = int(loop.last_slot)
        return GreedyResult(
            int(loop.emitted), int(loop.last_token), None if last == NO_SLOT else last
        )

    def generate(
        self,
        sequence: int,
        position: int,
        token: int,
        slots: tuple[int, int, int],
        max_tokens: int,
        block_offset: int,
        ring: tuple[int, int],
        *,
        list_id: int = 0,
        pages: Sequence[int] = (),
        stop_tokens: Sequence[int] = (),
        on_token: Callable[[int], bool | None] | None = None,
        adapter: int = -1,
        ended: Callable[[GenerateResult], None] = lambda _result: None,
    ) -> GenerateResult:
        """As `greedy`, but the boards choose the tokens and go on by themselves: one doorbell for
        up to abi.MAX_GENERATE of them. `ring`: board of rank 0, offset of its ring. `pages`: pages
        of the sequence's tiles that the headers map. `ended` receives the counts, also before an
        error is raised."""
        self._check_unsigned(sequence=sequence, position=position, token=token, slot_a=slots[0])
        self._check_unsigned(slot_b=slots[1], slot_c=slots[2], max_tokens=max_tokens)
        self._check_unsigned(block_offset=block_offset, board=ring[0], ring_offset=ring[1])
        new = self._ffi.new
        stops = new("uint32_t[]", list(stop_tokens))
        mapped = new("uint16_t[]", list(pages))
        record = new("struct lora_generation *")
        record.size = self._ffi.sizeof("struct lora_generation")
        record.list_id, record.block_offset = list_id, block_offset
        record.sequence, record.position, record.token = sequence, position, token
        record.slots, record.adapter, record.max_tokens = list(slots), adapter + 1, max_tokens
        record.first_board, record.ring_offset = ring
        record.stop_tokens = stops
        record.stop_count, record.pages, record.page_count = len(stop_tokens), mapped, len(pages)
        callback = None if on_token is None else TokenCallback(on_token)
        if callback is not None:
            context = self._ffi.new_handle(callback)  # lives while boards generate
            record.on_token, record.context = native.lib().lora_py_token, context
        try:
            self._handle.call("generate", record)
        finally:
            result = GenerateResult(int(record.emitted), int(record.rows))
            ended(result)
        if callback is not None and callback.raised is not None:
            raise callback.raised
        return result

    # --- state ---

    def stats(self) -> ClusterStats:
        """Counts since opening."""
        names = ClusterStats.__dataclass_fields__
        return ClusterStats(**fields_of(self._handle.stats(), *names))

    @property
    def last_step(self) -> int:
        """`stats().step`: number of the last step, without the other counts."""
        return int(self._handle.stats().step)

    def report(self) -> str:
        """Registers, last commands, units and links at the last failure or hang."""
        return self._handle.report()

    def reset(self) -> None:
        """After a failure: resets all boards, loads the overlay and reserves the same arenas.
        Links and lists must then be set up again. Memory may have lost its bytes: check it."""
        self._handle.call("reset")
        for board in range(self.size):
            self._program(board)

    # --- internal ---

    def _program(self, board: int) -> None:
        overlay = self.overlay
        image = self._ffi.from_buffer(overlay.image)
        program = self._ffi.new("struct lora_program *")
        program.size = self._ffi.sizeof("struct lora_program")
        program.board_kind = overlay.board.kind
        program.abi = overlay.abi
        program.onchip_bytes = overlay.onchip_bytes
        program.block_base = list(overlay.block_base)
        program.image = self._ffi.cast("uint8_t *", image)
        program.image_bytes = len(image)
        program.clock_hz = overlay.clock_hz
        with unpacked(overlay.container) as path:
            container = self._ffi.NULL
            if path is not None:
                container = self._ffi.new("char[]", str(path).encode())
            program.container = container
            self._handle.call("program", board, program, overlay.control_bank)

    def _info(self, board: int) -> BoardInfo:
        record = self._ffi.new("struct lora_board_info *")
        self._handle.call("info", board, record)
        return replace(board_info(record), address=self.entries[board].uri)  # as it was named

    def _check_serials(self, selection: Selection) -> None:
        for board, (entry, info) in enumerate(zip(selection.boards, self.infos, strict=True)):
            if entry.serial not in (None, info.serial):
                raise TransportError(
                    f"board {board} ({entry.uri}): serial {info.serial} found, {entry.serial} "
                    "expected; correct the cluster file"
                )

    def _buffer(self, buffer: Any, *, writable: bool) -> Any:
        try:
            return self._ffi.from_buffer(buffer, require_writable=writable)
        except (TypeError, ValueError, BufferError) as cause:
            raise RequestError(f"a contiguous buffer was expected: {cause}") from cause

    @staticmethod
    def _check_unsigned(**values: int) -> None:
        for name, value in values.items():
            limit = 64 if name in ("offset", "bytes") else 32
            if not 0 <= value < 1 << limit:
                raise RequestError(f"{name}: {value} found, 0..2^{limit}-1 expected")
