"""GENERATE on some boards with all that the host can see of it, and the same tokens by the host's
own loop of single steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import numpy as np

from lora_host import abi
from lora_host.errors import LoraError
from lora_host.overlay import load_overlay
from lora_host.records import ClusterStats, GenerateResult
from lora_lab.timing.host_access import generate_accesses
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.step.runner import KvOp, Runner
from tests.drive import open_runner
from tests.emu.test_generate import SLOTS, generate, pages
from tests.emu.test_host_greedy import PROMPT, greedy, prefill
from tests.quantized import SCHEMES, QuantizedModel
from tests.rtl.mailed import error_of, failing_sum, move_before_table, sums, unended_gather

AFTER = 4  # single steps behind it
TIMEOUTS = {"watchdog_ms": 4, "step_us": 60_000}  # a control's watchdog counts simulated cycles


@dataclass(frozen=True)
class Fault:
    """An emulated board's, once the host has received `at` tokens."""

    board: int
    at: int
    kind: int
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Request:
    """`end_after`: the listener ends it with that token. `scheme`: of tests/quantized.py. `mailed`:
    also what mailed.py has. `overlay`: its folder, else one that ships."""

    folder: str
    boards: int
    count: int
    stop: tuple[int, ...] = ()
    end_after: int = 0
    fault: Fault | None = None
    scheme: str = ""
    mailed: bool = False
    overlay: str = ""


@dataclass
class Seen:
    """`steps`: each board's last step, counted from the one before the run. `ring`: step, counted
    so, and token of each entry. `looks`, `reads`: at the token register, and of the ring. `cycles`:
    of operations of simulated cards. `redone`: steps. `codes`: of the boards' error records.
    `after`: tokens of single steps behind it. `kv`: K and V of all positions. `arenas`: board,
    bank, offset, size, and CRC-32 of the bytes behind the run. `mailed`: what mailed.py has
    found."""

    tokens: list[int]
    rows: int = 0
    steps: list[int] = field(default_factory=list)
    ring: list[tuple[int, int]] = field(default_factory=list)
    doorbells: int = 0
    looks: int = 0
    reads: int = 0
    cycles: int = 0
    redone: int = 0
    codes: list[int] = field(default_factory=list)
    error: str = ""
    after: list[int] = field(default_factory=list)
    kv: int = 0
    arenas: list[tuple[int, ...]] = field(default_factory=list)
    mailed: list[int] = field(default_factory=list)


def kv_of(runner: Runner, positions: int) -> int:
    """CRC-32 of K and V of sequence 0 on all boards."""
    opened = SimpleNamespace(cluster=runner.cluster, plan=runner.plan, config=runner.plan.config)
    used = pages()[: -(-positions // abi.TILE_POSITIONS)]
    arrays = KvTransfer(cast(Any, opened)).read(used, positions)
    return crc32(np.ascontiguousarray(arrays.v), crc32(np.ascontiguousarray(arrays.k)))


def arenas_of(runner: Runner, board: int) -> Iterator[tuple[int, int, int]]:
    """Bank, offset and size of each of the board's arenas."""
    kind = abi.dtype("arena_record")

    def register(offset: int) -> int:
        return runner.cluster.register(board, 0, offset)

    for i in range(register(abi.REG_ARENA_COUNT)):
        place = abi.REG_ARENAS + i * kind.itemsize
        words = [register(place + at) for at in range(0, kind.itemsize, 4)]
        record = np.array(words, "<u4").view(kind)[0]
        if record["valid"]:
            yield int(record["bank"]), int(record["offset"]), int(record["bytes"])


def sums_of_arenas(runner: Runner) -> list[tuple[int, ...]]:
    """Of all bytes but the cycles that boards have counted."""
    control, found = runner.plan.overlay.control_bank, list[tuple[int, ...]]()
    _, at = abi.dtype("completion").fields["cycles"]
    for board in range(runner.plan.size):
        for bank, offset, size in arenas_of(runner, board):
            data = runner.cluster.read(board, bank, offset, size)
            if (bank, offset) == (control, abi.COMPLETION_OFFSET):
                data[at : at + 8] = bytes(8)
            found.append((board, bank, offset, size, crc32(data)))
    return found


def end_at(runner: Runner, rows: int, wanted: int) -> None:
    """The last wanted row is committed; those that ran behind it are dropped."""
    end = len(PROMPT) + wanted
    if rows > wanted:
        runner.step([], [KvOp.length(0, end)])
    else:
        runner.step([], [KvOp.commit(0, end - 1, 0, 1)], [SLOTS[(wanted - 1) % 3]])


def go_on(runner: Runner, seen: Seen, mailed: bool) -> None:
    """The host chooses: boards are as after single steps."""
    done = len(PROMPT) + seen.rows
    seen.after, _ = greedy(runner, seen.tokens[seen.rows - 1], AFTER, done)
    seen.kv = kv_of(runner, done)
    if mailed:
        seen.mailed = [move_before_table(runner), *sums(runner), *failing_sum(runner)]
    seen.arenas = sums_of_arenas(runner)
    if mailed and runner.plan.size > 1:
        seen.mailed += unended_gather(runner)


def ring_of(runner: Runner, first: int, count: int) -> list[tuple[int, int]]:
    """The entries of steps `first` + 1 and so on, in rank 0's memory."""
    board, offset = runner.ring
    kind = abi.dtype("token")
    data = runner.cluster.read(
        board, runner.plan.overlay.control_bank, offset, abi.MAX_GENERATE * kind.itemsize
    )
    entries = np.frombuffer(data, kind)
    found = [entries[(first + 1 + i) % abi.MAX_GENERATE] for i in range(count)]
    return [(int(entry["step"]) - first, int(entry["token"])) for entry in found]


def counts(runner: Runner, seen: Seen, before: ClusterStats) -> None:
    """What the host has counted, and each board's last step."""
    after, boards = runner.cluster.stats(), range(runner.plan.size)
    steps = [runner.cluster.register(board, 0, abi.REG_LAST_STEP) for board in boards]
    seen.steps = [step - before.step for step in steps]
    charged = generate_accesses().dma_after * len(boards)
    seen.codes = [error_of(runner, board)["code"] for board in boards]
    seen.doorbells = after.doorbells - before.doorbells
    seen.looks = after.looks - before.looks
    seen.reads = after.memory_reads - before.memory_reads - charged
    seen.redone = after.redone_steps - before.redone_steps
    seen.ring = ring_of(runner, before.step, min(seen.steps))


def received(runner: Runner, token: int, request: Request) -> Seen:
    """Tokens, rows and error of the GENERATE after `token`."""
    emulated, seen, results = runner.cluster.emulated, Seen([]), list[GenerateResult]()

    def listen(found: int) -> bool:
        seen.tokens.append(found)
        fault = request.fault
        if fault and emulated and len(seen.tokens) == fault.at:
            emulated.fault(fault.board, fault.kind, *fault.numbers)
        return len(seen.tokens) == request.end_after

    options = {"on_token": listen, "ended": results.append, "stop_tokens": list(request.stop)}
    try:
        generate(runner, token, request.count, **options)
    except LoraError as error:
        seen.error = f"{type(error).__name__}: {error}"
    seen.rows = results[0].rows
    return seen


def model_of(folder: Path, scheme: str) -> QuantizedModel | None:
    """None: the checkpoint as it is."""
    return QuantizedModel(folder, SCHEMES[scheme]) if scheme else None


def run(request: Request) -> Seen:
    """GENERATE of `count` tokens, and single steps behind it."""
    folder = Path(request.folder)
    model = model_of(folder, request.scheme)
    overlay = load_overlay(request.overlay) if request.overlay else None
    with open_runner(
        folder, request.boards, timeouts=TIMEOUTS, model=model, overlay=overlay
    ) as runner:
        token = prefill(runner, 0)
        before = runner.cluster.stats()
        seen = received(runner, token, request)
        counts(runner, seen, before)
        if request.fault and runner.cluster.emulated:
            runner.cluster.emulated.fault(request.fault.board, abi.FAULT_NONE)
        rows, seen.rows = seen.rows, min(seen.rows, request.end_after or seen.rows)
        end_at(runner, rows, seen.rows)
        go_on(runner, seen, request.mailed)
        if runner.cluster.emulated:
            seen.cycles = sum(runner.cluster.emulated.simulated_cycles())
        return seen


def by_host(folder: Path, boards: int, count: int, scheme: str = "") -> Seen:
    """`count` tokens and those of the single steps after them, by the host's own loop."""
    with open_runner(folder, boards, model=model_of(folder, scheme)) as runner:
        token = prefill(runner, 0)
        runner.step([], [KvOp.table(0, tile, page) for tile, page in enumerate(pages()) if tile])
        tokens, _ = greedy(runner, token, count + AFTER)
        return Seen(
            tokens[:count], count, after=tokens[count:], kv=kv_of(runner, len(PROMPT) + count)
        )


def as_text(request: Request) -> dict[str, Any]:
    """For another process."""
    return asdict(request)


def from_text(record: dict[str, Any]) -> Request:
    """What as_text has made."""
    fault = record["fault"]
    if fault:
        fault = Fault(**{**fault, "numbers": tuple(fault["numbers"])})
    return Request(**{**record, "stop": tuple(record["stop"]), "fault": fault})
