"""Number of commands in a step's list, from a model's description.

Lowering needs a placement on an overlay, which designs of other sizes do not have. A test holds
the two to each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_lab.timing.control import VOTES
from lora_sdk.model.operations import (
    Activate,
    AddGated,
    AddPosition,
    Argmax,
    Attend,
    Elementwise,
    Embed,
    ExpertMatmul,
    GateHeads,
    JoinHeads,
    Matmul,
    Norm,
    NormGroups,
    NormHeads,
    Operation,
    PackSelected,
    Recur,
    Rope,
    Route,
    StoreKv,
    row,
)
from lora_sdk.model.stage import describe_stage
from lora_sdk.plan.collectives import reads_routed
from lora_sdk.plan.formats import matmul_format
from lora_sdk.plan.partition import shares_segments

if TYPE_CHECKING:
    from lora_lab.timing.adapter_ops import AdapterUse
    from lora_sdk.model.spec import ModelConfig

KV_COMMIT = 1  # each list begins with it
PASSING = 3  # between stages: into whole rows, over the links, out of them


def command_count(
    config: ModelConfig,
    boards: int,
    integer: bool,
    adapter: AdapterUse | None = None,
    stages: int = 1,
) -> int:
    """Commands that units run in one step; of `boards` boards in stages those of a board of each
    stage, one after the other. `integer`: INT8 inputs, quantized before each use."""
    counter = _Counter(config, boards // stages, integer, adapter)
    model = describe_stage(config, range(config.layers))
    return (
        KV_COMMIT
        + (VOTES if boards > 1 else 0)
        + (stages - 1) * PASSING
        + sum(counter.count(operation) for operation in model.before)
        + sum(counter.count(operation) for layer in model.layers for operation in layer)
        + sum(counter.count(operation) for operation in model.after)
    )


class _Counter:
    def __init__(
        self, config: ModelConfig, boards: int, integer: bool, adapter: AdapterUse | None
    ) -> None:
        self.config = config
        self.exchanges = 1 if boards > 1 else 0
        self.quantizes = 1 if integer else 0
        self.boards, self.adapter = boards, adapter

    def count(self, operation: Operation) -> int:
        """Commands of one operation."""
        found: int = row(COUNTS, operation)(self, operation)
        return found

    def one(self, operation: Operation) -> int:
        return 1

    def norm(self, norm: Norm) -> int:
        """Sums, their exchange, the rest; where boards share segments their columns are moved to
        the row that is gathered in place of the sums."""
        return 2 + self.exchanges + shares_segments(self.boards)

    def norm_heads(self, norm: NormHeads) -> int:
        """Heads normed by themselves need no sums of a row and no exchange."""
        return 2 + self.exchanges if norm.whole else 1

    def norm_groups(self, norm: NormGroups) -> int:
        """Sums, their exchange, each group of the largest share."""
        heads = -(-self.config.heads // self.boards)
        each = self.config.heads // norm.groups
        return 1 + self.exchanges + min(norm.groups, -(-heads // each))

    def matmul(self, matmul: Matmul) -> int:
        found = self.experts(matmul)
        if self.adapter is not None and matmul.adapts:
            found += 1 + (1 if self.adapter.gathered(self.boards, len(matmul.outputs)) else 0)
        return found

    def experts(self, matmul: Matmul) -> int:
        """Without adapters. What is read beside a router was packed with its row, and is quantized
        behind the gather; routers read FP16."""
        routed = reads_routed(self.config, matmul)
        packed = matmul.selected and not routed
        found = 1 + (0 if matmul.routes else self.quantizes)
        found += self.exchanges if matmul.gather else packed
        if (matmul.gather or routed) and matmul_format(self.config, matmul).dynamic:
            found += 1  # the max of a row, and the exchange of boards' maxima
            exchanged = matmul.gather and self.boards <= abi.ROW_MAXIMA
            found += self.exchanges if exchanged else 0
        return found

    def attend(self, attend: Attend | GateHeads) -> int:
        """Of selected rows, q or the gates are packed."""
        return 1 + attend.selected

    def store(self, store: StoreKv) -> int:
        return 1 + self.quantizes


COUNTS: dict[type[Operation], Callable[[_Counter, Any], int]] = {
    Norm: _Counter.norm,
    NormHeads: _Counter.norm_heads,
    NormGroups: _Counter.norm_groups,
    Matmul: _Counter.matmul,
    ExpertMatmul: _Counter.experts,
    StoreKv: _Counter.store,
    Attend: _Counter.attend,
    GateHeads: _Counter.attend,
    **dict.fromkeys(
        (
            Embed,
            AddPosition,
            Rope,
            Activate,
            Elementwise,
            PackSelected,
            Argmax,
            Route,
            AddGated,
            Recur,
            JoinHeads,
        ),
        _Counter.one,
    ),
}
