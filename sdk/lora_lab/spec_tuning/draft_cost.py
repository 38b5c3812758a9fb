"""Modelled time of a proposal for each kind of draft. A draft runs on one separate board."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lora_lab.spec_tuning.modelled import OverlayCost, StepCost, TreeUse
from lora_lab.timing import step as steps
from lora_lab.timing.costs import matrix_cycles
from lora_lab.timing.step import StepShape

if TYPE_CHECKING:
    from lora_sdk.spec.eagle3_config import HeadConfig


class NoDraftCost:
    """Prompt look-up: nothing runs on a board. Modelled time excludes the search on the host."""

    def seconds(self, use: TreeUse, context: int) -> float:
        """See DraftCost."""
        return 0.0


class ModelDraftCost:
    """A draft model: one step per level of the tree that has children."""

    def __init__(self, cost: StepCost, window: int | None = None) -> None:
        """`window`: max positions that the draft attends to (LongSpec). Each time the window moves
        by half its length, the draft runs that half again. None: the whole context."""
        self._cost = cost
        self._window = window

    def seconds(self, use: TreeUse, context: int) -> float:
        """The pending token (with the last accepted one if that was a leaf), then each level."""
        if use.tree.size == 1:
            return 0.0
        seen = context if self._window is None else min(context, self._window)
        committed = round(use.aat)
        one = self._cost.seconds(StepShape(1, seen, seen, 1, committed))
        two = self._cost.seconds(StepShape(2, 2 * seen - 1, seen, 1, committed))
        total = one + use.leaf_share * (two - one)
        total += sum(self._cost.seconds(shape) for shape in levels_below(use, seen))
        if self._window is not None and context > self._window:
            hop = self._window // 2
            total += use.aat * self._cost.seconds(steps.prefill(hop)) / hop
        return total


class HeadDraftCost:
    """An EAGLE-3 head, timed as if it ran on a board: a model of its one layer, plus the additional
    matmuls of such a layer."""

    def __init__(self, overlay: str, config: HeadConfig, taps: int) -> None:
        """`taps`: number of hidden states of the target that the head concatenates."""
        self._layer = replace(config.layer, vocabulary=config.draft_vocabulary)
        self._cost = OverlayCost(overlay, self._layer, 1)
        self._joined = taps * config.target_hidden

    def seconds(self, use: TreeUse, context: int) -> float:
        """Entries of the accepted tokens (their states are fused first), then each level."""
        if use.tree.size == 1:
            return 0.0
        rows = max(1, round(use.aat))
        visible = rows * context - rows * (rows - 1) // 2
        first = StepShape(rows, visible, context, 1, rows)
        total = self._cost.seconds(first) + self._matmul(rows, self._joined, self._layer.hidden)
        for shape in (first, *levels_below(use, context)):
            if shape is not first:
                total += self._cost.seconds(shape)
            # q, k and v read the embedding and the state: twice the inputs of a plain layer
            columns = (self._layer.heads + 2 * self._layer.kv_heads) * self._layer.head_dim
            total += self._matmul(shape.rows, self._layer.hidden, columns)
        return total

    def _matmul(self, rows: int, k: int, n: int) -> float:
        """Seconds of a matmul: compute or weight streaming, whichever is longer."""
        machine = self._cost.machine
        stream = k * n * machine.weight_bytes / machine.stream_rate
        return machine.seconds(
            machine.start_cycles + max(matrix_cycles(machine, rows, k, n), stream)
        )


def levels_below(use: TreeUse, context: int) -> list[StepShape]:
    """The draft steps below the root's children: the nodes of each level that have children."""
    found = []
    for depth, level in enumerate(use.tree.levels[1:-1], 1):
        rows = sum(1 for node in level if use.tree.children(node))
        found.append(StepShape(rows, rows * (context + depth), context + depth, rows))
    return found
