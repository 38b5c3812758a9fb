"""T_v(x) and T_d(x) by the timing model: of an overlay's command lists, or of a design."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lora_host.errors import RequestError
from lora_sdk.spec.acceptance import Acceptance, lengths_of, rounds_of
from lora_sdk.spec.tree import Tree
from lora_sdk.timing import step as steps
from lora_sdk.timing.step import StepShape
from lora_sdk.timing.target import Target


@dataclass(frozen=True)
class TreeUse:
    """A tree as decoding uses it: `lengths` are shares of the rounds by the rows they verify, fewer
    than the tree has where a draft has no candidate; `leaf_share` of them end with a token that the
    draft has not run; `aat` tokens are emitted on average."""

    tree: Tree
    lengths: Mapping[int, float]
    leaf_share: float
    aat: float


def use_of(tree: Tree, found: Acceptance) -> TreeUse:
    """How decoding these texts uses the tree."""
    rounds = rounds_of(tree, found)
    counts = lengths_of(rounds, found)
    total = sum(counts.values())
    shares = {rows: count / total for rows, count in sorted(counts.items())}
    return TreeUse(tree, shares, rounds.leaf_share, rounds.aat)


class StepCost(Protocol):
    """What times a step of any shape."""

    def seconds(self, shape: StepShape) -> float:
        """Modelled seconds of one step."""


class DraftCost(Protocol):
    """What drafting takes."""

    def seconds(self, use: TreeUse, context: int) -> float:
        """Modelled seconds of one proposal for the tree at `context` positions."""


class OverlayCost:
    """Steps of a model placed on boards with an overlay."""

    def __init__(self, overlay: str, folder: str, boards: int) -> None:
        """`folder`: the model's, or a shape's name. Errors of the placement pass through."""
        from lora_sdk.model.shapes import find_config
        from lora_sdk.timing.target import OverlayTarget

        self._target = OverlayTarget(overlay, find_config(folder), boards)
        self.name, self.board, self.boards = self._target.name, self._target.board, boards
        self.row_limit = self._target.row_limit
        self.context = self._target.timing.plan.context

    def seconds(self, shape: StepShape) -> float:
        """See StepCost."""
        return self._target.run(shape).seconds


class NoDraftCost:
    """Prompt look-up: nothing runs on a board, and the host's search is not in modelled time."""

    def seconds(self, use: TreeUse, context: int) -> float:
        """See DraftCost."""
        return 0.0


class ModelDraftCost:
    """A draft model on a board of its own: one step a level of the tree that has children."""

    def __init__(self, cost: StepCost, window: int | None = None) -> None:
        """`window`: the most positions that the draft sees (LongSpec's); it then runs half of them
        anew each time its window moves by as many. None: the whole context."""
        self._cost = cost
        self._window = window

    def seconds(self, use: TreeUse, context: int) -> float:
        """The pending token, with the last accepted one where it was a leaf; then each level."""
        tree, cost = use.tree, self._cost
        if tree.size == 1:
            return 0.0
        seen = context if self._window is None else min(context, self._window)
        committed = round(use.aat)
        total = 0.0
        for rows, share in ((1, 1 - use.leaf_share), (2, use.leaf_share)):
            if share > 0:
                visible = rows * seen - rows * (rows - 1) // 2
                total += share * cost.seconds(StepShape(rows, visible, seen, 1, committed))
        for depth, level in enumerate(tree.levels[1:-1], 1):
            rows = sum(1 for node in level if tree.children(node))
            total += cost.seconds(StepShape(rows, rows * (seen + depth), seen + depth, rows))
        if self._window is not None and context > self._window:
            hop = self._window // 2
            total += use.aat * cost.seconds(steps.prefill(hop)) / hop
        return total


class BoardTimes:
    """StepTimes of trees on boards. `uses` by size."""

    def __init__(self, target: StepCost, draft: DraftCost, uses: Mapping[int, TreeUse]) -> None:
        self._target, self._draft, self._uses = target, draft, uses

    def plain(self, context: int) -> float:
        """See StepTimes."""
        return self._target.seconds(steps.decode(context))

    def verify(self, rows: int, context: int) -> float:
        """Mean over the rounds that verify fewer rows than the tree has, too."""
        use = self._use(rows)
        return sum(
            share * self._target.seconds(verification(use.tree.first(length), context, use.aat))
            for length, share in use.lengths.items()
        )

    def draft(self, rows: int, context: int) -> float:
        """See StepTimes."""
        return self._draft.seconds(self._use(rows), context) if rows > 1 else 0.0

    def _use(self, rows: int) -> TreeUse:
        if rows not in self._uses:
            raise RequestError(f"no tree of {rows} rows was measured; there is {list(self._uses)}")
        return self._uses[rows]


def verification(tree: Tree, context: int, aat: float) -> StepShape:
    """The step that verifies the tree, whose root sees `context` positions, after a round that
    emitted `aat` tokens."""
    rows = [(0, context - 1 + depth, -1) for depth in tree.depths]
    return steps.of_rows(rows, tree.size, round(aat))


class DesignTimes:
    """StepTimes of a design with the draft model that its data name: the published cases."""

    def __init__(self, target: Target) -> None:
        """RequestError: the design has no draft model."""
        if target.draft is None:
            raise RequestError(
                f"design {target.name} has no draft model; take one with `speculation`, as "
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
        """A share of the plain step, as read from the paper's table I."""
        return self._published.draft_share(rows) * self.plain(context)
