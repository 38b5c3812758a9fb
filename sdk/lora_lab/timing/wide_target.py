"""The wide card, whose source does not exist, as a target of the timing model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_lab.timing import step as steps
from lora_lab.timing.command_count import command_count
from lora_lab.timing.facts import Draft, board_facts, drafts
from lora_lab.timing.overheads import Overheads
from lora_lab.timing.report import Roofs, Totals
from lora_lab.timing.schedule import schedule
from lora_lab.timing.sequencer import sequencer_dispatch
from lora_lab.timing.wide_ops import LINE, wide_step_ops

if TYPE_CHECKING:
    from lora_lab.timing.ops import Op
    from lora_lab.timing.wide_card import WideCard
    from lora_sdk.model.spec import ModelConfig

DRAFT = "longspec"
MULTIPLIERS = 128  # of a channel and row: a line of 4-bit weights


@dataclass(frozen=True)
class _Pace:
    """What Overheads charges votes with."""

    clock_hz: float
    start_cycles: float
    hop_cycles: float


class WideTarget:
    """W4A8 in groups of 128, lm_head in INT8, static INT8 K and V, on one ring without stages."""

    def __init__(self, card: WideCard, config: ModelConfig, boards: int) -> None:
        """RequestError: the model cannot be sharded over that many boards."""
        self.card = card
        if boards > config.heads:
            raise RequestError(
                f"{counted(boards, 'board')}: the model has {config.heads} query heads, each board "
                "needs one"
            )
        self.name, self.board, self.boards, self.config = card.name, card.board, boards, config
        self.draft: Draft | None = drafts()[DRAFT]
        self.precision, self.small_operations_fitted = "W4A8", False
        facts = board_facts(card.board)
        products = card.channels * card.rows * MULTIPLIERS * card.clock_hz
        link = card.link_lines * LINE * card.clock_hz * (2 if boards > 2 else 1)
        self.roofs = Roofs(facts.bytes_per_second, products, link if boards > 1 else 0.0)
        self.notes: tuple[str, ...] = (
            "modelled",
            "no hardware of this card exists; channels and vector pipes have source: other rates "
            "are planned (docs/wide_card.md)",
        )
        dispatch = sequencer_dispatch(boards, card.clock_hz)
        pace = _Pace(card.clock_hz, card.command, card.hop)
        commands = command_count(config, boards, True)
        self._overheads = Overheads(card.board, boards, pace, commands, dispatch)

    def decode(self, context: int) -> Totals:
        """One token that attends to `context` positions."""
        return self.run(steps.decode(context))

    def verify(self, rows: int, context: int) -> Totals:
        """A tree of `rows` rows over `context` positions."""
        assert self.draft is not None
        accepted = max(1, round(self.draft.aat(rows, context)))
        return self.run(steps.verify(rows, context, accepted))

    def prefill(self, length: int) -> Totals:
        """A prompt of `length` tokens."""
        return self.run(steps.prefill(length))

    def ops(self, shape: steps.StepShape) -> Sequence[Op]:
        """The operators of a step."""
        return wide_step_ops(self.card, self.config, self.boards, shape)

    def run(self, shape: steps.StepShape) -> Totals:
        """One step. Weights are fetched one command ahead at most, into the channels' FIFOs."""
        from lora_lab.timing.target import totals_of

        card, ops = self.card, self.ops(shape)
        timeline = schedule(ops, card.fifo_lines / card.line_rate)
        return totals_of(ops, self._overheads.charge(timeline, shape), card.clock_hz)
