"""Drives a Runner row by row without the engine: opens boards, feeds tokens in given chunks, keeps
its own slots and pages. Tests compare the results as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.overlay import Overlay, load_overlay
from lora_host.selection import default_overlay
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.rope import at_context
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.plan.overlay_choice import choose_overlay
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.topology import route
from lora_sdk.step.runner import KvOp, Row, Runner
from tests import kernel_option
from tests.quantized import QuantizedModel
from tests.transports import Transport

Logits = npt.NDArray[np.float32]


@contextmanager
def open_runner(
    folder: Path,
    boards: int,
    *,
    kernels: str = "native",
    context: int | None = None,
    sequences: int = 4,
    overlay: Overlay | None = None,
    devices: Sequence[str] = (),
    transport: Transport | None = None,
    timeouts: Mapping[str, int] | None = None,
    trace: bool = False,
    hidden_taps: Sequence[int] = (),
    adapters: AdapterOptions | None = None,
    model: QuantizedModel | None = None,
    stages: int = 1,
    final_states: bool = False,
) -> Iterator[Runner]:
    """A model on boards, emulated unless `devices` names others. `model`: used instead of the
    folder's checkpoint. For native kernels those that `--kernels` names."""
    if kernels == "native":
        kernels = kernel_option.chosen
    config = at_context(load_config(folder) if model is None else model.config, context)
    if transport is not None:
        devices, timeouts = transport.devices(boards), timeouts or transport.timeouts
    board = load_overlay(default_overlay(devices, None)).board
    overlay = overlay or load_overlay(choose_overlay(config, board.name))
    with Cluster.open(
        boards=boards,
        devices=tuple(devices),
        overlay=overlay,
        kernels=kernels,
        trace=trace,
        timeouts=timeouts,
    ) as cluster:
        path = route(cluster.cables, boards)
        plan = make_plan(
            config,
            overlay,
            overlay.board,
            boards,
            context=context,
            sequences=sequences,
            route=path,
            hidden_taps=tuple(hidden_taps),
            adapters=adapters,
            stages=stages,
            final_states=final_states,
        )
        yield Runner(cluster, config, model or Checkpoint.open(folder, config), plan)


@dataclass
class Sequence_:
    """The driver's state of one sequence on the boards."""

    number: int
    length: int = 0  # committed
    pending: list[int] = field(default_factory=list)  # slots computed but not committed
    tables: int = 0  # tiles that have a page


class Driver:
    """Feeds a Runner. Steps use the two halves of the slots alternately, so that a step never uses
    a slot that its own header commits."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.sequences: dict[int, Sequence_] = {}
        self.adapters: dict[int, int] = {}  # sequence -> adapter slot
        self._next_page = -(-abi.MAX_SCRATCH // abi.TILE_POSITIONS)
        self._half = 0

    def start(self, number: int) -> list[KvOp]:
        self.sequences[number] = Sequence_(number)
        if len(self.sequences) > 1:
            return [KvOp.length(number, 0)]
        # a new driver frees the state that an earlier one left on the boards
        return [KvOp.length(n, 0) for n in range(self.runner.plan.max_sequences)]

    def _pages(self, sequence: Sequence_, upto: int) -> list[KvOp]:
        ops = []
        while sequence.tables * abi.TILE_POSITIONS < upto:
            ops.append(KvOp.table(sequence.number, sequence.tables, self._next_page))
            sequence.tables += 1
            self._next_page += 1
        return ops

    def _commits(self, numbers: Sequence[int], path: list[int]) -> list[KvOp]:
        ops = []
        for number in numbers:
            sequence = self.sequences[number]
            if sequence.pending:
                ops.append(KvOp.commit(number, sequence.length, len(path), len(sequence.pending)))
                path.extend(sequence.pending)
                sequence.length += len(sequence.pending)
                sequence.pending = []
        return ops

    def step(
        self, chunks: dict[int, Sequence[int]], *, interleave: bool = False
    ) -> dict[int, Logits]:
        """Runs each sequence's tokens as a chain, all in one step. Returns logits of every row."""
        ops: list[KvOp] = []
        path: list[int] = []
        for number in chunks:
            if number not in self.sequences:
                ops += self.start(number)
        ops += self._commits(list(self.sequences), path)
        for number, tokens in chunks.items():
            sequence = self.sequences[number]
            ops += self._pages(sequence, sequence.length + len(tokens))
        rows, owners = self._rows(chunks, interleave)
        result = self.runner.step(rows, ops, path)
        assert result.logits is not None
        out: dict[int, list[Logits]] = {number: [] for number in chunks}
        for row, number in enumerate(owners):
            out[number].append(result.logits[row])
        return {number: np.stack(values) for number, values in out.items()}

    def _rows(
        self, chunks: dict[int, Sequence[int]], interleave: bool
    ) -> tuple[list[Row], list[int]]:
        base = self._half * abi.MAX_ROWS
        self._half ^= 1
        order = [(n, i) for n, tokens in chunks.items() for i in range(len(tokens))]
        if interleave:
            order.sort(key=lambda item: (item[1], -item[0]))
        rows, owners, slot = [], [], base
        for number, index in order:
            sequence = self.sequences[number]
            parent = sequence.pending[-1] if sequence.pending else -1
            position = sequence.length + len(sequence.pending)
            adapter = self.adapters.get(number, -1)
            token = int(chunks[number][index])
            rows.append(Row(number, position, token, slot, parent, adapter, want_logits=True))
            owners.append(number)
            sequence.pending.append(slot)
            slot += 1
        return rows, owners

    def feed(self, number: int, tokens: Sequence[int], cuts: Sequence[int]) -> Logits:
        """Logits of all tokens of one sequence, cut into steps of the given sizes (repeated)."""
        out, at, turn = [], 0, 0
        while at < len(tokens):
            size = min(cuts[turn % len(cuts)], len(tokens) - at)
            out.append(self.step({number: tokens[at : at + size]})[number])
            at, turn = at + size, turn + 1
        return np.concatenate(out)
