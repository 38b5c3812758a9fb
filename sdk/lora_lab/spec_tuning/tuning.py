"""Tables for boards from measured acceptance, with modelled times or this computer's wall clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_lab.spec_tuning.acceptance_file import Measured
from lora_lab.spec_tuning.analysis import Analysis, analyze, modelled_table, wall_table
from lora_lab.spec_tuning.collect import cut_prompts
from lora_lab.spec_tuning.draft_cost import HeadDraftCost, ModelDraftCost, NoDraftCost
from lora_lab.spec_tuning.measure import OpenProgress, TuneRequest, read_text
from lora_lab.spec_tuning.modelled import DraftCost, OverlayCost
from lora_sdk.spec.table import Measurement, SpeculationTable


@dataclass(frozen=True)
class BoardSetup:
    """Boards to tune for: their kind, the overlay (None: the default for the model), and their
    number."""

    board: str
    overlay: str | None
    boards: int


def modelled_tables(
    request: TuneRequest,
    measured: Measured,
    setups: Sequence[BoardSetup],
    largest: int,
    path: Path,
) -> list[SpeculationTable]:
    """One table per setup, with modelled times. `path`: the file they will be written to. All have
    the same trees. Errors of the placement pass through."""
    from lora_sdk.model.config import load_config

    config = load_config(request.model)
    costs = [OverlayCost(overlay_of(request.model, p), config, p.boards) for p in setups]
    for cost, setup in zip(costs, setups, strict=True):
        if cost.board != setup.board:
            raise RequestError(
                f"overlay {cost.name} is for board {cost.board}, not {setup.board}; give --board"
            )
    rows, limit = rows_of(costs, largest), min(cost.context for cost in costs)
    analysis = analyze(measured, rows, request.context or limit)
    measurement = analysis.measurement(relative(request.draft, path))
    tables = [
        modelled_table(analysis, cost, draft_cost(request, setup), measurement)
        for cost, setup in zip(costs, setups, strict=True)
    ]
    return [replace(table, folder=path.resolve().parent) for table in tables]


def rows_of(costs: Sequence[OverlayCost], largest: int) -> int:
    """Rows of the largest tree that every overlay supports."""
    return min(largest, *(cost.row_limit for cost in costs))


def draft_cost(request: TuneRequest, setup: BoardSetup) -> DraftCost:
    """The cost of drafting on a board of this kind."""
    from lora_sdk.model.config import load_config
    from lora_sdk.spec.eagle3_config import load_head_config

    if request.draft is None:
        return NoDraftCost()
    if request.proposer == "eagle3":
        head = load_head_config(request.draft)
        taps = len(head.layers_of(load_config(request.model).layers))
        return HeadDraftCost(f"lora_f_{setup.board}", head, taps)
    overlay = overlay_of(request.draft, BoardSetup(setup.board, None, 1))
    window = None
    if request.proposer == "longspec":
        from lora_sdk.opening.speculation_options import DEFAULT_WINDOW

        window = DEFAULT_WINDOW
    return ModelDraftCost(OverlayCost(overlay, load_config(request.draft), 1), window)


def overlay_of(model: Path, setup: BoardSetup) -> str:
    """The given overlay, or the default for the model on such boards."""
    from lora_sdk.model.config import load_config
    from lora_sdk.plan.overlay_choice import choose_overlay

    return setup.overlay or choose_overlay(load_config(model), setup.board)


def relative(draft: Path | None, path: Path) -> str | None:
    """The draft's folder relative to the folder of the table at `path`; None for look-up."""
    if draft is None:
        return None
    return Path(os.path.relpath(draft.resolve(), path.resolve().parent)).as_posix()


def wall_tables(
    request: TuneRequest,
    measured: Measured,
    setups: Sequence[BoardSetup],
    largest: int,
    path: Path,
    texts: Sequence[Path],
    open_progress: OpenProgress,
) -> list[SpeculationTable]:
    """One table per setup, from decoding on emulated boards here. Held-out prompts come from
    `texts`."""
    tables = []
    analysis: Analysis | None = None
    measurement: Measurement | None = None
    for setup in setups:
        if analysis is None or measurement is None:
            from lora_sdk.model.config import load_config

            cost = OverlayCost(
                overlay_of(request.model, setup), load_config(request.model), setup.boards
            )
            analysis = analyze(measured, rows_of([cost], largest), request.context or cost.context)
            measurement = analysis.measurement(relative(request.draft, path))
        tables.append(_wall(request, analysis, measurement, setup, texts, open_progress))
    return [replace(table, folder=path.resolve().parent) for table in tables]


def _wall(
    request: TuneRequest,
    analysis: Analysis,
    measurement: Measurement,
    setup: BoardSetup,
    texts: Sequence[Path],
    open_progress: OpenProgress,
) -> SpeculationTable:
    from lora_lab.spec_tuning.wall import Decoders, MeasuredSetup, Switch, measure_walls
    from lora_sdk.engine.engine import Engine
    from lora_sdk.opening.speculation_options import SpeculationOptions

    switch = Switch()
    drafts = SpeculationOptions(request.proposer, request.draft, switch)
    overlay = overlay_of(request.model, setup)
    devices = (f"emu:{setup.board}",) * setup.boards
    with ExitStack() as stack:

        def opened(options: SpeculationOptions | None) -> Engine:
            engine = Engine(
                request.model, setup.boards, devices, overlay=overlay, context=request.context,
                max_sequences=1, speculation=options, prefix_cache=False,
            )  # fmt: skip
            return stack.enter_context(engine)

        engine, plain = opened(drafts), opened(None)
        tokens = engine.tokenizer.encode("\n".join(map(read_text, texts)), special=False)
        begin = engine.tokenizer.begins_with
        prompts = cut_prompts(tokens, engine.context, request.prompts, begin).held_out
        decoders = Decoders(engine, plain, switch, analysis.trees)
        progress = open_progress(f"decoding on {counted(setup.boards, 'board')}")
        walls = measure_walls(decoders, prompts, analysis.curves, request.temperature, progress)
        kernels = engine.cluster.kernels_name or ""
        where = MeasuredSetup(setup.board, setup.boards, overlay, kernels, engine.context)
    return wall_table(analysis, walls, where, measurement)
