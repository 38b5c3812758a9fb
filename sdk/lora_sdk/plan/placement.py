"""Placement: where every byte of a model lies on every board, before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import PlacementError, RequestError
from lora_host.naming import counted
from lora_sdk.model.quantization import kv_of
from lora_sdk.plan import control, onchip
from lora_sdk.plan.adapters import AdapterOptions, h_columns
from lora_sdk.plan.banks import Banks
from lora_sdk.plan.board_fit import BoardFit
from lora_sdk.plan.collectives import collectives
from lora_sdk.plan.control import ControlLayout
from lora_sdk.plan.kv import tiles
from lora_sdk.plan.model_plan import BoardPlan, Plan
from lora_sdk.plan.overlay_choice import check_overlay
from lora_sdk.plan.partition import BOARD_COUNTS, Partition, Share, fewest_stages
from lora_sdk.plan.topology import Route

if TYPE_CHECKING:
    from lora_host.boards import Board
    from lora_host.overlay import Overlay
    from lora_sdk.model.spec import ModelConfig

DEFAULT_SEQUENCES = 16
DEFAULT_RESERVE = 2048  # positions of KV reserved for one sequence before weights may fill HBM
MAX_PAGES = 0xFFFF  # page numbers are uint16


def make_plan(
    config: ModelConfig,
    overlay: Overlay,
    board: Board,
    boards: int,
    context: int | None = None,
    sequences: int | None = None,
    route: Route | None = None,
    hidden_taps: Sequence[int] = (),
    adapters: AdapterOptions | None = None,
    stages: int = 1,
    final_states: bool = False,
) -> Plan:
    """The placement of `config` on `boards` boards of one kind, in `stages` stages.

    `context`: max sequence length in positions, None for the longest that fits, up to the model's.
    `sequences`: max open sequences; they share the pages if not all of them fit at full length.
    `route`: the order of the boards and their ports, None for the default ring. `hidden_taps`:
    layers (0..layers) whose input the step may return. `adapters`: their slots, None for none.
    `final_states`: a step may return lm_head's inputs.
    PlacementError names what does not fit, and what would; RequestError an argument out of
    range."""
    _check_arguments(config, overlay, context, sequences, hidden_taps, final_states)
    _check_rotated(config, adapters, bool(hidden_taps) or final_states)
    check_overlay(config, overlay)
    partition = Partition(config, boards, stages, config.layers in hidden_taps)
    if route is None:
        route = default_route(boards)
    if len(route.order) != boards:
        raise RequestError(f"the route has {counted(len(route.order), 'board')}, expected {boards}")
    taps = _Taps(tuple(hidden_taps), final_states)
    try:
        return _plan(partition, overlay, board, context, sequences, route, taps, adapters)
    except PlacementError as error:
        fits = _boards_that_fit(partition, overlay, board, context, sequences, taps, adapters)
        raise PlacementError(f"{error}; {fits}") from None


def _check_rotated(config: ModelConfig, adapters: AdapterOptions | None, states: bool) -> None:
    if config.quantization is None or not config.quantization.rotated:
        return
    for what, wanted in (
        ("adapters", adapters is not None and adapters.slots > 0),
        ("hidden states (embeddings, EAGLE-3)", states),
    ):
        if wanted:
            raise RequestError(
                f"{what} of a model that lora quantize --rotate has made: they belong to the plain "
                "model; quantize it without --rotate"
            )


def default_route(boards: int) -> Route:
    """The ring of emulated boards 0, 1, ...: port 1 is connected to the next board's port 0. Two
    boards have one cable."""
    ring = boards > 2
    last = 1 if ring else abi.NO_PORT
    first = 0 if ring else abi.NO_PORT
    if boards == 1:
        return Route((0,), False, (abi.NO_PORT,), (abi.NO_PORT,), ())
    return Route(
        tuple(range(boards)),
        ring,
        (1,) * (boards - 1) + (last,),
        (first,) + (0,) * (boards - 1),
        (),
    )


def _check_arguments(
    config: ModelConfig,
    overlay: Overlay,
    context: int | None,
    sequences: int | None,
    taps: Sequence[int],
    final_states: bool,
) -> None:
    if context is not None and not 1 <= context <= config.positions:
        raise RequestError(
            f"context {context} is out of range: the model has {config.positions} positions"
        )
    if context is not None and context > _max_positions(config):
        raise RequestError(
            f"context {context} is out of range: INT8 attention is exact up to "
            f"{_max_positions(config)} positions; take another KV cache"
        )
    if sequences is not None and not 1 <= sequences <= overlay.max_sequences:
        raise RequestError(
            f"{sequences} sequences are out of range: overlay {overlay.name} takes 1 to "
            f"{overlay.max_sequences}"
        )
    if len(taps) + final_states > abi.MAX_TAPS or any(
        not 0 <= tap <= config.layers for tap in taps
    ):
        raise RequestError(
            f"hidden taps {list(taps)} are out of range: at most {abi.MAX_TAPS} layers in "
            f"0..{config.layers}"
        )


def _plan(
    partition: Partition,
    overlay: Overlay,
    board: Board,
    context: int | None,
    sequences: int | None,
    route: Route,
    taps: _Taps,
    adapters: AdapterOptions | None,
) -> Plan:
    config = partition.config
    shares = partition.shares()
    adapters = adapters or AdapterOptions()
    rows = _row_limit(config, overlay, shares, adapters)
    scratch = tiles(overlay.max_scratch)
    reserve = tiles(context or min(config.positions, DEFAULT_RESERVE))

    def placed(reserved: int) -> tuple[list[BoardFit], int, int]:
        banks = [Banks(overlay, board, share.place) for share in shares]
        fits = [BoardFit(config, *one, adapters) for one in zip(shares, banks, strict=True)]
        for fit in fits:
            fit.place_weights(reserved)
        bounds = _Bounds(rows, context or _max_positions(config), overlay.max_sequences, taps)
        near = min(MAX_PAGES, *(fit.kv_pages() for fit in fits))
        far = min(_spill_pages(fit, bounds) for fit in fits) if near >= scratch else 0
        return fits, near, min(MAX_PAGES, near + far) - scratch

    fits, near, room = placed(scratch)
    if room < reserve and overlay.spill_banks:  # too small for pages: weights there are as well
        fits, near, room = placed(scratch + reserve)
    limit = min(_max_positions(config), max(0, room) * abi.TILE_POSITIONS)
    chosen = context or limit
    if limit < max(chosen, 1):
        raise _no_kv(fits, context, limit, room + scratch, scratch + reserve)
    each = tiles(chosen)
    count = sequences or max(1, min(DEFAULT_SEQUENCES, overlay.max_sequences, room // each))
    pages = _Pages(scratch + min(room, each * count), scratch, near)
    bounds = _Bounds(rows, chosen, count, taps)
    plans = tuple(_board(fit, route, pages, bounds) for fit in fits)
    return Plan(
        config=config,
        overlay=overlay,
        board=board,
        route=route,
        boards=plans,
        context=chosen,
        context_limit=limit,
        page_count=pages.count,
        page_room=room,
        max_sequences=count,
        row_limit=rows,
        hidden_taps=taps.layers,
        collectives=collectives(config, adapters, partition.stage_boards, partition.stages),
        adapters=adapters,
        stages=partition.stages,
        final_states=taps.final,
    )


def _max_positions(config: ModelConfig) -> int:
    """The longest context of the model's arithmetic. INT8 attention counts whole tiles, since the
    firmware checks its bound by tiles (docs/numbers.md, 6.6)."""
    if not kv_of(config).static:
        return config.positions
    return min(config.positions, abi.MAX_INT8_POSITIONS // abi.TILE_POSITIONS * abi.TILE_POSITIONS)


@dataclass(frozen=True)
class _Taps:
    """Hidden states that a step may return: the inputs of `layers`, and lm_head's."""

    layers: tuple[int, ...]
    final: bool


@dataclass(frozen=True)
class _Bounds:
    """What the sizes of the control bank's parts and of tables follow from."""

    rows: int
    context: int
    sequences: int
    taps: _Taps


@dataclass(frozen=True)
class _Pages:
    """KV pages: all, those of the scratch slots, those that the weight banks have room for."""

    count: int
    scratch: int
    near: int


def _spill_pages(fit: BoardFit, bounds: _Bounds) -> int:
    """KV pages that the spill banks have room for, with all else at its largest."""
    trial = fit.trial()
    try:
        _place_rest(trial, bounds)
    except PlacementError:
        return 0
    return trial.spill_pages()


def _place_rest(fit: BoardFit, bounds: _Bounds) -> tuple[ControlLayout, int]:
    """Places all but KV pages outside the weight banks. Returns also where control data ends."""
    found = control.layout(
        fit.config,
        fit.share,
        fit.control_shelf,
        bounds.rows,
        tiles(bounds.context),
        bounds.sequences,
        len(bounds.taps.layers),
        bounds.taps.final,
        fit.adapter_layout() is not None,
    )
    control_end = fit.control_shelf.end
    fit.place_tables(bounds.context)
    fit.place_spilled()
    return found, control_end


def _board(fit: BoardFit, route: Route, pages: _Pages, bounds: _Bounds) -> BoardPlan:
    """One board's placement. Context and pages are the same on all boards."""
    share, config = fit.share, fit.config
    control_layout, control_end = _place_rest(fit, bounds)
    kv = fit.kv_layout(pages.count, pages.scratch, pages.near)
    slots = fit.adapter_layout()
    return BoardPlan(
        rank=share.place,
        board=route.order[share.place],
        share=share,
        matrices=fit.matrices,
        tables=fit.tables,
        kv=kv,
        control=control_layout,
        onchip=onchip.layout(config, share, bounds.rows, slots.columns if slots else 0),
        arenas=fit.arenas(kv),
        use=fit.use(kv, control_end),
        replicas=fit.replicas(),
        adapters=slots,
    )


def _row_limit(
    config: ModelConfig, overlay: Overlay, shares: Sequence[Share], adapters: AdapterOptions
) -> int:
    """Max rows of a step: limited by the manifest and by every board's on-chip buffer."""
    h = h_columns(config, adapters, shares[0].boards) if adapters.slots else 0
    needed = [onchip.row_bytes(config, share, h) for share in shares]
    worst = max(range(len(shares)), key=needed.__getitem__)
    rows = min(overlay.max_step_rows, abi.MAX_ROWS, overlay.onchip_bytes // needed[worst])
    if rows < 1:
        raise PlacementError(
            f"activations of one row do not fit on board {worst}, on-chip buffer: requested "
            f"{needed[worst] / 1024:.1f} KiB, capacity {overlay.onchip_bytes / 1024:.1f} KiB"
        )
    return rows


def _no_kv(
    fits: Sequence[BoardFit], context: int | None, limit: int, pages: int, requested: int
) -> PlacementError:
    """The error of a context that does not fit in the weight banks."""
    worst = min(fits, key=lambda fit: fit.kv_pages())
    what = f"a context of {context} positions" if context else "a KV cache for one sequence"
    longest = f"the longest context that fits is {limit}" if limit > 0 else "no context fits"
    return PlacementError(f"{what}: {worst.kv_full(requested, pages)}; {longest}")


def _boards_that_fit(
    partition: Partition,
    overlay: Overlay,
    board: Board,
    context: int | None,
    sequences: int | None,
    taps: _Taps,
    adapters: AdapterOptions | None,
) -> str:
    """The smallest larger number of boards on which the same request fits, for a message."""
    stages = len(partition.stages)
    for count in BOARD_COUNTS:
        if partition.boards < count <= partition.config.heads * stages:
            wider = Partition(partition.config, count, stages, partition.stages[-1].all_rows)
            try:
                route = default_route(count)
                _plan(wider, overlay, board, context, sequences, route, taps, adapters)
            except PlacementError:
                continue
            return f"{count} boards would fit"
    return _more_stages(partition, overlay, board, context, sequences, taps, adapters)


def _more_stages(
    partition: Partition,
    overlay: Overlay,
    board: Board,
    context: int | None,
    sequences: int | None,
    taps: _Taps,
    adapters: AdapterOptions | None,
) -> str:
    """The same with stages, where no number of boards would fit without more of them."""
    config, least = partition.config, len(partition.stages)
    for count in (count for count in BOARD_COUNTS if count > partition.boards):
        fewest = fewest_stages(config, count)
        stages = max(fewest or 0, 2 * least)
        if fewest is None or stages > min(count, config.layers):
            continue
        try:
            wider = Partition(config, count, stages, partition.stages[-1].all_rows)
            route = default_route(count)
            _plan(wider, overlay, board, context, sequences, route, taps, adapters)
        except PlacementError:
            continue
        return f"{count} boards in {stages} stages would fit"
    return f"no number of boards up to {BOARD_COUNTS[-1]} would fit"
