"""From measured acceptance to trees, AAT curves and a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lora_lab.spec_tuning.aat import AatCurve
from lora_lab.spec_tuning.acceptance_file import Measured
from lora_lab.spec_tuning.modelled import BoardTimes, DraftCost, OverlayCost, TreeUse, use_of
from lora_lab.spec_tuning.tree_search import search_trees
from lora_lab.spec_tuning.tune import (
    CurveAt,
    choose_lengths,
    context_grid,
    measure_curves,
    range_of,
)
from lora_lab.spec_tuning.wall import MeasuredSetup, WallTimes
from lora_sdk.spec.machine_name import this_machine
from lora_sdk.spec.table import CurveRecord, Measurement, SpeculationTable
from lora_sdk.step.tree_shape import TreeShape

RANGES = (1, 8, 4, 2)
"""AAT is measured in ranges that begin at 1 and at these shares of the context."""

WALL_MARGIN = 1.15
"""Measured times scatter: a smaller gain than this may be noise."""

WALL_SLACK = 0.95
"""For the same reason the shortest length this close to the fastest is chosen."""


@dataclass(frozen=True)
class Analysis:
    """The best tree of every size, and for each context range of `curves` how decoding uses the
    trees."""

    measured: Measured
    trees: Mapping[int, TreeShape]
    curves: tuple[CurveAt, ...]
    uses: tuple[Mapping[int, TreeUse], ...]

    def curve_at(self, context: int) -> AatCurve:
        """The AAT curve at a context."""
        return self.curves[range_of(self.curves, context)].chosen.curve

    def uses_at(self, context: int) -> Mapping[int, TreeUse]:
        """The use of each tree at a context, by size."""
        return self.uses[range_of(self.curves, context)]

    def measurement(self, draft: str | None) -> Measurement:
        """The measurement for a table. `draft`: path of the draft's folder, relative to the
        table's."""
        of = self.measured
        curves = tuple(
            _record(curve, uses) for curve, uses in zip(self.curves, self.uses, strict=True)
        )
        prompts = len(of.held_out.texts)
        return Measurement(of.proposer, draft, of.temperature, of.text, prompts, self.trees, curves)


def analyze(measured: Measured, largest: int, limit: int) -> Analysis:
    """Search trees of up to `largest` rows and measure them, for contexts up to `limit`.

    RequestError: too little was measured to fit AAT."""
    trees = search_trees(measured.search, min(largest, measured.search.maximal.size))
    starts = sorted({1, *(limit // share for share in RANGES[1:] if limit // share > 1)})
    curves = measure_curves(trees, measured.search, measured.held_out, starts, limit)
    uses = [
        {size: use_of(tree, measured.held_out, curve.span) for size, tree in trees.items()}
        for curve in curves
    ]
    return Analysis(measured, trees, tuple(curves), tuple(uses))


def _record(curve: CurveAt, uses: Mapping[int, TreeUse]) -> CurveRecord:
    chosen = curve.chosen
    return CurveRecord(
        context=curve.context,
        a=chosen.fit.a,
        b=chosen.fit.b,
        c=chosen.fit.c,
        r2=chosen.r2,
        used=chosen.used,
        fitted=chosen.fitted,
        tested=len(chosen.tested),
        rounds=curve.rounds,
        pooled=curve.span is None,
        aat={size: use.aat for size, use in uses.items()},
    )


def modelled_table(
    analysis: Analysis, target: OverlayCost, draft: DraftCost, measurement: Measurement
) -> SpeculationTable:
    """The best tree by context, with modelled times. `measurement`: that of the analysis."""
    times = BoardTimes(target, draft, analysis.uses_at)
    return SpeculationTable(
        model=analysis.measured.model,
        board=target.board,
        boards=target.boards,
        overlay=target.name,
        objective="modelled",
        machine="",
        kernels="",
        measurement=measurement,
        choices=tuple(
            choose_lengths(
                times,
                analysis.curve_at,
                context_grid(target.context),
                target.context,
                list(analysis.trees),
            )
        ),
    )


def wall_table(
    analysis: Analysis, walls: WallTimes, setup: MeasuredSetup, measurement: Measurement
) -> SpeculationTable:
    """The best tree by context, with times measured on this computer. It speculates only if that
    is WALL_MARGIN times as fast as plain decoding."""
    limit = setup.context
    starts = [curve.context for curve in analysis.curves]
    choices = choose_lengths(
        walls, analysis.curve_at, starts, limit, walls.sizes, WALL_MARGIN, WALL_SLACK
    )
    return SpeculationTable(
        model=analysis.measured.model,
        board=setup.board,
        boards=setup.boards,
        overlay=setup.overlay,
        objective="wall",
        machine=this_machine(),
        kernels=setup.kernels,
        measurement=measurement,
        choices=tuple(choices),
    )
