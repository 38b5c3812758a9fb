"""T_v(x) and T_d(x) from the timing model, for an overlay's command lists or a design."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import Acceptance, lengths_of, rounds_of
from lora_lab.timing import step as steps
from lora_lab.timing.step import StepShape
from lora_lab.timing.target import OverlayTarget, Target
from lora_sdk.step.tree_shape import TreeShape

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


@dataclass(frozen=True)
class TreeUse:
    """The use of a tree in decoding. `lengths`: share of the rounds by rows verified, which are
    fewer than the tree has if the draft lacks candidates. `leaf_share`: share of the rounds that
    end with a token that the draft has not run. `aat`: mean emitted tokens."""

    tree: TreeShape
    lengths: Mapping[int, float]
    leaf_share: float
    aat: float


def use_of(tree: TreeShape, found: Acceptance, span: range | None = None) -> TreeUse:
    """The use of the tree in decoding these texts, for roots that attend to a number of positions
    in `span` (None: all)."""
    rounds = rounds_of(tree, found, span)
    counts = lengths_of(rounds, found)
    total = sum(counts.values())
    shares = {rows: count / total for rows, count in sorted(counts.items())}
    return TreeUse(tree, shares, rounds.leaf_share, rounds.aat)


UsesAt = Callable[[int], Mapping[int, TreeUse]]
"""Context -> the use of each tree there, by size."""


class StepCost(Protocol):
    """Times a step of any shape."""

    def seconds(self, shape: StepShape) -> float:
        """Modelled seconds of one step."""


class DraftCost(Protocol):
    """Time of drafting."""

    def seconds(self, use: TreeUse, context: int) -> float:
        """Modelled seconds of one proposal for the tree at `context` positions."""


class OverlayCost:
    """Steps of a model placed on boards with an overlay, with dispatch by its firmware, the host's
    accesses and checksums of weights: the times of `lora plan` and `lora lab model`."""

    def __init__(self, overlay: str, config: ModelConfig, boards: int) -> None:
        """Errors of the placement pass through."""
        self._target = OverlayTarget(overlay, config, boards)
        self.name, self.board, self.boards = self._target.name, self._target.board, boards
        self.row_limit = self._target.row_limit
        self.context = self._target.timing.plan.context
        self.machine = self._target.timing.machine

    def seconds(self, shape: StepShape) -> float:
        """See StepCost."""
        timing = self._target.timing
        return timing.machine.seconds(timing.whole(shape).cycles)


class BoardTimes:
    """StepTimes of trees on boards."""

    def __init__(self, target: StepCost, draft: DraftCost, uses: UsesAt) -> None:
        """`uses`: the use of each tree at a context, by size."""
        self._target, self._draft, self._uses = target, draft, uses

    def plain(self, context: int) -> float:
        """See StepTimes."""
        return self._target.seconds(steps.decode(context))

    def verify(self, rows: int, context: int) -> float:
        """Mean over all rounds, including those with fewer rows than the tree."""
        use = self._use(rows, context)
        return sum(
            share * self._target.seconds(verification(use.tree.first(length), context, use.aat))
            for length, share in use.lengths.items()
        )

    def draft(self, rows: int, context: int) -> float:
        """See StepTimes."""
        return self._draft.seconds(self._use(rows, context), context) if rows > 1 else 0.0

    def _use(self, rows: int, context: int) -> TreeUse:
        uses = self._uses(context)
        if rows not in uses:
            raise RequestError(f"no tree of {rows} rows was measured; measured: {list(uses)}")
        return uses[rows]


def verification(tree: TreeShape, context: int, aat: float) -> StepShape:
    """The step that verifies the tree, after a round that emitted `aat` tokens. Its root attends to
    `context` positions."""
    rows = [(0, context - 1 + depth, -1) for depth in tree.depths]
    return steps.of_rows(rows, range(tree.size), round(aat))


class DesignTimes:
    """StepTimes of a design with the draft model in its data: the published cases."""

    def __init__(self, target: Target) -> None:
        """RequestError: the design has no draft model."""
        if target.draft is None:
            raise RequestError(
                f"design {target.name} has no draft model; use one with `speculation`: "
                "flightllm-sd, own-u280 or own-v80"
            )
        self._target, self._published = target, target.draft

    def plain(self, context: int) -> float:
        """See StepTimes."""
        return self._target.decode(context).seconds

    def verify(self, rows: int, context: int) -> float:
        """See StepTimes."""
        return self._target.verify(rows, context).seconds

    def draft(self, rows: int, context: int) -> float:
        """A share of the plain step, read from the paper's table I."""
        return self._published.draft_share(rows) * self.plain(context)
