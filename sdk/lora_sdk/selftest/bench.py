"""Runs one case on all boards of a cluster: writes its bytes, registers its list, runs its steps
and compares the memory with the expected bytes."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import LoraError
from lora_sdk.compile.isa import Command, End, counter_count, record
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.model.quantization import FP16
from lora_sdk.plan.topology import Route, route
from lora_sdk.step.step import Row, build_block

LIST, BLOCK, TABLE, RESULTS = 0x2000, 0x8000, 0x20000, 0x40000  # bytes of the control bank
RESULT_BYTES = 0x40000
WEIGHTS, TABLES, KV, BANK_BYTES = 0, 0x60000, 0x80000, 0x100000  # bytes of each other bank
BANKS = 3  # not a power of two, to expose the order of blocks
ROWS, COMMITTED, SCRATCH, PAGES = 5, 37, 32, 4
TILES = 130  # of a sequence: more than a chunk of attention
HEAD_DIM, KV_HEADS, VOCABULARY, POSITIONS = 64, 2, 96, 64
UNTOUCHED = 0xA5


@dataclass(frozen=True)
class Bytes:
    """Bytes at an offset in a bank. `what` names them in a fault."""

    bank: int
    offset: int
    data: bytes
    what: str = ""


@dataclass(frozen=True)
class StepCase:
    """A step of `rows` rows behind `committed` positions, after `kv_ops`, and the memory expected
    after it."""

    expected: tuple[Bytes, ...]
    rows: int = ROWS
    kv_ops: tuple[KvOp, ...] = ()
    path: tuple[int, ...] = ()
    committed: int = COMMITTED


@dataclass(frozen=True)
class Case:
    """The input of one board: bytes to write first, commands (without counters; they run
    sequentially), and steps. `linked`: the boards work together."""

    commands: tuple[Command, ...]
    placed: tuple[Bytes, ...]
    steps: tuple[StepCase, ...]
    linked: bool = False


@dataclass(frozen=True)
class Site:
    """The board that runs a case: its rank, the number of boards, and the banks of the case. Data
    differ between boards."""

    rank: int
    boards: int
    control: int
    banks: range
    seed: int

    def random(self, *more: int) -> np.random.Generator:
        """A generator that gives this board the same numbers in every run."""
        return np.random.Generator(np.random.Philox([self.seed, self.rank, *more]))

    def half(self, shape: tuple[int, ...], spread: float = 1.0, *more: int) -> np.ndarray:
        """FP16 values, including subnormals and signed zeros."""
        values = (self.random(*more).standard_normal(shape) * spread).astype(np.float16)
        flat = values.reshape(-1)
        flat[: min(3, flat.size)] = np.array([-0.0, 6e-8, -3e-5], np.float16)[: flat.size]
        return values


@dataclass(frozen=True)
class Test:
    """A case and the unit that it tests. `min_boards`: the fewest boards that it runs on.
    `weights`: the matmuls that an overlay must have, as listed there."""

    unit: str
    what: str
    make: Callable[[Site], Case]
    min_boards: int = 1
    weights: str = FP16.weights.overlay_weights


@dataclass(frozen=True)
class UnitResult:
    """`fault`: "" if every byte was right. `skipped`: why nothing was tested, else ""."""

    unit: str
    what: str
    fault: str = ""
    skipped: str = ""


@dataclass
class Bench:
    """Boards whose memory is reserved for the cases. The links of `cluster` must be up."""

    cluster: Cluster
    path: Route = field(init=False)
    banks: range = field(init=False)

    def __post_init__(self) -> None:
        overlay = self.cluster.overlay
        self.path = route(self.cluster.cables, self.cluster.size)
        self.banks = overlay.weight_banks[:BANKS]
        for board in range(self.cluster.size):
            self.cluster.reserve(board, overlay.control_bank, RESULTS + RESULT_BYTES)
            for bank in self.banks:
                self.cluster.reserve(board, bank, BANK_BYTES)

    def run(self, tests: Sequence[Test]) -> Iterator[UnitResult]:
        """Run each test once, on all boards at the same time."""
        for number, test in enumerate(tests):
            if test.weights not in self.cluster.overlay.weights:
                continue
            if self.cluster.size < test.min_boards:
                why = f"needs at least {test.min_boards} boards"
                yield UnitResult(test.unit, test.what, skipped=why)
                continue
            try:
                fault = self._run(test, number)
            except LoraError as error:
                fault = str(error)
            yield UnitResult(test.unit, test.what, fault)

    def _run(self, test: Test, number: int) -> str:
        control = self.cluster.overlay.control_bank
        cases: dict[int, Case] = {}
        for rank, board in enumerate(self.path.order):
            site = Site(rank, self.cluster.size, control, self.banks, number)
            cases[board] = test.make(site)
            self._prepare(board, rank, cases[board])
        for index in range(len(cases[0].steps)):
            step = cases[0].steps[index]
            rows = [_row(step.committed, index) for index in range(step.rows)]
            block = build_block(rows, step.kv_ops, step.path, 0, 0)
            self.cluster.step(block, BLOCK)
            for board, case in cases.items():
                fault = self._compare(board, case.steps[index].expected)
                if fault:
                    return fault
        return ""

    def _prepare(self, board: int, rank: int, case: Case) -> None:
        control = self.cluster.overlay.control_bank
        self.cluster.write(board, control, RESULTS, bytes([UNTOUCHED]) * RESULT_BYTES)
        for item in case.placed:
            self.cluster.write(board, item.bank, item.offset, item.data)
        self.cluster.write(board, control, LIST, self._list(rank, case))
        self.cluster.register_list(board, 0, LIST)

    def _compare(self, board: int, expected: Sequence[Bytes]) -> str:
        for item in expected:
            found = np.frombuffer(
                self.cluster.read(board, item.bank, item.offset, len(item.data)), np.uint8
            )
            correct = np.frombuffer(item.data, np.uint8)
            wrong = np.flatnonzero(found != correct)
            if wrong.size:
                at = int(wrong[0])
                return (
                    f"board {board}: {item.what}: first wrong byte {at} of {len(correct)}: "
                    f"{found[at]:#04x} found, {correct[at]:#04x} expected ({wrong.size} wrong)"
                )
        return ""

    def _list(self, rank: int, case: Case) -> bytes:
        commands = chained(case.commands)
        body = b"".join(record(command) for command in commands)
        header = np.zeros((), abi.dtype("list"))
        for name, value in self._header(rank, case, commands).items():
            header[name] = value
        header["crc"] = zlib.crc32(header.tobytes() + body)
        sealed: bytes = header.tobytes() + body
        return sealed

    def _header(self, rank: int, case: Case, commands: Sequence[Command]) -> dict[str, int]:
        overlay = self.cluster.overlay
        linked = case.linked and self.cluster.size > 1
        return {
            "size": abi.dtype("list").itemsize,
            "abi": abi.ABI_NUMBER,
            "command_count": len(commands),
            "counter_count": counter_count(commands),
            "rank": rank if linked else 0,
            "boards": self.cluster.size if linked else 1,
            "ring": int(self.path.ring) if linked else 0,
            "port_next": self.path.port_next[rank] if linked else abi.NO_PORT,
            "port_previous": self.path.port_previous[rank] if linked else abi.NO_PORT,
            "control_bank": overlay.control_bank,
            "table_bank": overlay.control_bank,
            "max_rows": ROWS,
            "max_scratch": SCRATCH,
            "max_sequences": 1,
            "max_tiles": TILES,
            "page_count": PAGES,
            "vocabulary": VOCABULARY,
            "positions": max(POSITIONS, *(ROWS + step.committed for step in case.steps)),
            "onchip_bytes": overlay.onchip_bytes,
            "kv_bank_first": self.banks.start,
            "kv_bank_count": len(self.banks),
            "kv_layers": 1,
            "kv_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "kv_line": KV // abi.LINE_BYTES,
            "table_line": TABLE // abi.LINE_BYTES,
            "results_offset": RESULTS,
            "results_bytes": RESULT_BYTES,
        }


def begin(length: int = COMMITTED) -> tuple[KvOp, ...]:
    """Sequence 0 with `length` committed positions. Its tiles are in pages 3 and 2, in no order; a
    long sequence names them again and again."""
    tiles = max(2, -(-length // abi.TILE_POSITIONS))
    return KvOp.length(0, length), *(KvOp.table(0, t, page_of(t)) for t in range(tiles))


def page_of(tile: int) -> int:
    """The page of a committed tile."""
    return 3 - tile % 2


def _row(committed: int, index: int) -> Row:
    """Rows form a chain. Their tokens are spread over the vocabulary."""
    return Row(0, committed + index, token(index), index, index - 1)


def token(index: int) -> int:
    """The token of a row."""
    return (29 * index + 7) % VOCABULARY


def chained(commands: Sequence[Command]) -> list[Command]:
    """The commands with counters that run them sequentially on any units, and the list's end."""
    out: list[Command] = []
    for index, command in enumerate(commands):
        before = index - 1 if index else int(abi.NO_COUNTER)
        out.append(
            dataclasses.replace(
                command, wait_counter=before, wait_value=min(index, 1), signal_counter=index
            )
        )
    return [*out, End(what="end")]
