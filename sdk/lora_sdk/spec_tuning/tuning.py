"""Tables for boards: from measured acceptance, by modelled time or by this computer's clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lora_host.errors import RequestError
from lora_sdk.spec_tuning.acceptance_file import Measured
from lora_sdk.spec_tuning.analysis import Analysis, analyse, modelled_table, wall_table
from lora_sdk.spec_tuning.collect import cut_prompts
from lora_sdk.spec_tuning.draft_cost import HeadDraftCost, ModelDraftCost, NoDraftCost
from lora_sdk.spec_tuning.measure import TuneRequest, Watch, read_text
from lora_sdk.spec_tuning.modelled import DraftCost, OverlayCost
from lora_sdk.spec_tuning.table import Measurement, SpeculationTable


@dataclass(frozen=True)
class Place:
    """Boards to tune for: their kind, the overlay (None: the one that computes the model), and how
    many."""

    board: str
    overlay: str | None
    boards: int


def modelled_tables(
    request: TuneRequest,
    measured: Measured,
    places: Sequence[Place],
    largest: int,
    path: Path,
) -> list[SpeculationTable]:
    """A table a place, by the timing model; `path` is where they are going to lie. The trees are
    the same for all. Errors of the placement pass through."""
    from lora_sdk.model.config import load_config

    config = load_config(request.model)
    costs = [OverlayCost(overlay_of(request.model, p), config, p.boards) for p in places]
    for cost, place in zip(costs, places, strict=True):
        if cost.board != place.board:
            raise RequestError(
                f"overlay {cost.name} is for board {cost.board}, not {place.board}; give --board"
            )
    rows, limit = rows_of(costs, largest), min(cost.context for cost in costs)
    analysis = analyse(measured, rows, request.context or limit)
    measurement = analysis.measurement(relative(request.draft, path))
    tables = [
        modelled_table(analysis, cost, draft_cost(request, place), measurement)
        for cost, place in zip(costs, places, strict=True)
    ]
    return [replace(table, folder=path.resolve().parent) for table in tables]


def rows_of(costs: Sequence[OverlayCost], largest: int) -> int:
    """Rows of the largest tree that every overlay takes."""
    return min(largest, *(cost.row_limit for cost in costs))


def draft_cost(request: TuneRequest, place: Place) -> DraftCost:
    """What drafting costs on a board of this kind."""
    from lora_sdk.model.config import load_config
    from lora_sdk.spec.eagle3_config import load_head_config

    if request.draft is None:
        return NoDraftCost()
    if request.proposer == "eagle3":
        head = load_head_config(request.draft)
        taps = len(head.layers_of(load_config(request.model).layers))
        return HeadDraftCost(f"lora_f_{place.board}", head, taps)
    overlay = overlay_of(request.draft, Place(place.board, None, 1))
    window = None
    if request.proposer == "longspec":
        from lora_sdk.spec.longspec import DEFAULT_WINDOW

        window = DEFAULT_WINDOW
    return ModelDraftCost(OverlayCost(overlay, load_config(request.draft), 1), window)


def overlay_of(model: Path, place: Place) -> str:
    """The overlay that was named, or the one that computes the model on such boards."""
    from lora_sdk.model.config import load_config
    from lora_sdk.plan.overlay_choice import choose_overlay

    return place.overlay or choose_overlay(load_config(model), place.board)


def relative(draft: Path | None, path: Path) -> str | None:
    """The draft's folder from the folder of the table at `path`; None for look-up."""
    if draft is None:
        return None
    return Path(os.path.relpath(draft.resolve(), path.resolve().parent)).as_posix()


def wall_tables(
    request: TuneRequest,
    measured: Measured,
    places: Sequence[Place],
    largest: int,
    path: Path,
    texts: Sequence[Path],
    watch: Watch,
) -> list[SpeculationTable]:
    """A table a place, by decoding on emulated boards here; held-out prompts come from `texts`."""
    tables = []
    analysis: Analysis | None = None
    measurement: Measurement | None = None
    for place in places:
        if analysis is None or measurement is None:
            from lora_sdk.model.config import load_config

            cost = OverlayCost(
                overlay_of(request.model, place), load_config(request.model), place.boards
            )
            analysis = analyse(measured, rows_of([cost], largest), request.context or cost.context)
            measurement = analysis.measurement(relative(request.draft, path))
        tables.append(_wall(request, analysis, measurement, place, texts, watch))
    return [replace(table, folder=path.resolve().parent) for table in tables]


def _wall(
    request: TuneRequest,
    analysis: Analysis,
    measurement: Measurement,
    place: Place,
    texts: Sequence[Path],
    watch: Watch,
) -> SpeculationTable:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.spec.opening import SpeculationOptions
    from lora_sdk.spec_tuning.wall import Decoders, Placed, Switch, measure_walls

    switch = Switch()
    drafts = SpeculationOptions(request.proposer, request.draft, switch)
    overlay = overlay_of(request.model, place)
    devices = (f"emu:{place.board}",) * place.boards
    with ExitStack() as stack:

        def opened(options: SpeculationOptions | None) -> Engine:
            engine = Engine(
                request.model, place.boards, devices, overlay=overlay, context=request.context,
                max_sequences=1, speculation=options,
            )  # fmt: skip
            return stack.enter_context(engine)

        engine, plain = opened(drafts), opened(None)
        tokens = engine.tokenizer.encode("\n".join(map(read_text, texts)), special=False)
        begin = engine.tokenizer.begins_with
        prompts = cut_prompts(tokens, engine.context, request.prompts, begin).held_out
        decoders = Decoders(engine, plain, switch, analysis.trees)
        progress = watch(f"decoding on {place.boards} boards")
        walls = measure_walls(decoders, prompts, analysis.curves, request.temperature, progress)
        kernels = engine.cluster.kernels_name or ""
        where = Placed(place.board, place.boards, overlay, kernels, engine.context)
    return wall_table(analysis, walls, where, measurement)
