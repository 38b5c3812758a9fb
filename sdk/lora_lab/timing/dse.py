"""Exploration (LORA V.D, equation 13): the fastest design that fits a board."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean, install
from lora_lab.timing.designs import ArrayDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.layout import Layout
from lora_lab.timing.model import check_positions
from lora_lab.timing.report import Totals
from lora_lab.timing.resources import PORTS, Resources, onchip_tokens, port_count, resources
from lora_lab.timing.step import StepShape, decode, prefill
from lora_lab.timing.target import ArrayTarget
from lora_sdk.plan.partition import check_board_count

if TYPE_CHECKING:
    from lora_host.overlay import Overlay
    from lora_sdk.model.spec import ModelConfig

Progress = Callable[[int, int], None]
SPACE: dict[str, tuple[Any, ...]] = {
    "precision": ("fp16", "w8a8", "w4a8"),
    "array_rows": (16, 32, 64, 128),
    "array_columns": (16, 32, 64, 128),
    "tile": (16, 32, 64, 128),
    "lanes": (4, 8, 16, 32),
    "kv_uram": (0, 216, 432, 864),
    "prefetch_bytes": (0, 1 << 20, 4 << 20, 16 << 20),
    "ports": (8, 16, 32, 64),
}
"""Candidate values of each variable. The paper prunes its space the same way (V.D)."""
BASES = {"fp16": "lora-f", "w8a8": "lora-q", "w4a8": "own-u280"}
PENALTY = 1e3  # seconds per unit of excess over a limit
RAMP = 4  # blocks after which the search assumes a step to be periodic
POINTS = 4  # contexts at which decoding is timed; linear in between


@dataclass(frozen=True)
class Candidate:
    """One point of the space. `totals`: modelled time of the request, with dispatch, host accesses
    and checksums of weights. `excess`: resources over their limit, by which share of the board."""

    values: Mapping[str, Any]
    design: ArrayDesign
    resources: Resources
    totals: Totals
    excess: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Modelled time of the request."""
        return self.totals.seconds

    @property
    def feasible(self) -> bool:
        """Whether it fits the board."""
        return not self.excess

    @property
    def objective(self) -> float:
        """The value to minimize: the time, plus a penalty if it does not fit."""
        return self.seconds + PENALTY * sum(self.excess.values())


class Exploration:
    """Times points of a space for one request on boards of one kind. Each point is timed once."""

    def __init__(
        self,
        board: str,
        boards: int,
        config: ModelConfig,
        inputs: int,
        outputs: int,
        space: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        """`space`: candidate values by variable; the default is SPACE. RequestError: an unknown
        variable, no board, a number of boards or a length out of range."""
        for name in space or {}:
            if name not in SPACE:
                raise RequestError(f"variable {name!r} is not one of {', '.join(SPACE)}")
        if inputs < 1 or outputs < 1:
            raise RequestError(f"lengths {inputs} and {outputs}: expected at least 1")
        check_board_count(boards)
        check_positions(config, inputs + outputs)
        if board not in PORTS:
            raise RequestError(
                f"board {board!r}: no design is searched for it; {did_you_mean(board, PORTS)}"
            )
        self.board = board_facts(board)
        self.boards, self.config = boards, config
        self.inputs, self.outputs = inputs, outputs
        self.space = {name: tuple((space or {}).get(name, SPACE[name])) for name in SPACE}
        most = port_count(self.board)
        self.space["ports"] = tuple(dict.fromkeys(min(n, most) for n in self.space["ports"]))
        self._known: dict[tuple[int, ...], Candidate] = {}

    @property
    def evaluated(self) -> int:
        """Number of points timed."""
        return len(self._known)

    def at(self, indices: Sequence[int]) -> Candidate:
        """The candidate with these indices into the values of each variable."""
        key = tuple(int(index) for index in indices)
        if key not in self._known:
            pairs = zip(self.space.items(), key, strict=True)
            values = {name: candidates[index] for (name, candidates), index in pairs}
            self._known[key] = self.candidate(values, whole=False)
        return self._known[key]

    def candidate(self, values: Mapping[str, Any], whole: bool = True) -> Candidate:
        """Time one set of values. `whole`: with every block instead of a few."""
        design = make(values, self.board.name)
        ports = min(values["ports"], port_count(self.board))
        taken = resources(design, self.board, ports)
        excess = taken.excess(self.board)
        side = min(values["array_rows"], values["array_columns"])
        if values["tile"] > side:  # a vector tile runs through one row of the array (IV.B)
            excess["tile"] = values["tile"] / side - 1
        if ports < port_count(self.board):
            share = ports / port_count(self.board)
            design = replace(design, hbm_efficiency=design.hbm_efficiency * share)
        return Candidate(values, design, taken, self._totals(design, whole), excess)

    def _totals(self, design: ArrayDesign, exact: bool) -> Totals:
        whole = self.config.layers

        def of_layers(layers: int) -> ArrayTarget:
            # Each block keeps its share of the on-chip cache.
            held = replace(design, kv_onchip_layers=design.kv_onchip_layers * layers / whole)
            config = replace(self.config, layers=layers)
            return ArrayTarget(held, self.board.name, config, Layout(self.boards))

        # Blocks are equal: once the prefetch buffer is in a steady state, each takes as long.
        counted = {whole: 1.0}
        if not exact and whole > 2 * RAMP:
            more = (whole - 2 * RAMP) / RAMP
            counted = {2 * RAMP: 1 + more, RAMP: -more}
        targets = [(of_layers(layers), share) for layers, share in counted.items()]
        totals = Totals()

        def add(shape: StepShape, times: float) -> None:
            for target, share in targets:
                totals.add(target.run(shape), times * share)

        add(prefill(self.inputs), 1.0)
        first, last = self.inputs + 1, self.inputs + self.outputs
        for i in range(POINTS):
            context = round(first + (last - first) * i / (POINTS - 1))
            weight = 1.0 if 0 < i < POINTS - 1 else 0.5
            add(decode(context), weight / (POINTS - 1) * self.outputs)
        return totals

    def exhaustive(self) -> Candidate:
        """The best of all points, for small spaces."""
        for point in self._points():
            self.at(point)
        return self._best()

    def _best(self) -> Candidate:
        """The best point so far, timed with every block."""
        return self.candidate(min(self._known.values(), key=_order).values)

    def evolve(
        self, seed: int = 1, generations: int = 30, progress: Progress | None = None
    ) -> Candidate:
        """The best point that differential evolution finds. `progress(done, total)` counts
        generations. RequestError without scipy."""
        try:
            from scipy.optimize import differential_evolution
        except ImportError:
            raise RequestError(f"exploration needs scipy; {install('dse')}") from None
        bounds = [(0, len(values) - 1) for values in self.space.values()]
        done = itertools.count(1)

        def count(*_found: object) -> None:
            if progress is not None:
                progress(next(done), generations)

        differential_evolution(
            lambda point: self.at([round(value) for value in point]).objective,
            bounds,
            integrality=[True] * len(bounds),
            popsize=6,
            maxiter=generations,
            mutation=(0.5, 1.0),
            recombination=0.7,
            seed=seed,
            polish=False,
            tol=1e-9,
            callback=count,
        )
        return self._best()

    def _points(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*(range(len(values)) for values in self.space.values()))


def _order(candidate: Candidate) -> tuple[bool, float, float]:
    """Sort key: feasible first, then faster, then smaller."""
    size = candidate.resources.dsp + candidate.resources.bram + candidate.resources.uram
    return not candidate.feasible, candidate.objective, size


def make(values: Mapping[str, Any], board: str) -> ArrayDesign:
    """A design from the values of a point: the base design of the precision with these sizes."""
    base = load_design(BASES[values["precision"]])
    assert isinstance(base, ArrayDesign)  # shipped data
    kept = {key: value for key, value in base.resources.items() if key != "mpu_dsp_per_mac"}
    design = replace(
        base,
        name="explored",
        origin="own",
        control="sequencer",  # the prefetch buffer needs it: firmware starts no stream early
        boards=(board,),
        array=(values["array_rows"], values["array_columns"]),
        tile=values["tile"],
        lanes=values["lanes"],
        prefetch_bytes=values["prefetch_bytes"],
        resources=kept,
    )
    return onchip_tokens(design, values["kv_uram"])


def paper_values(precision: str = "fp16") -> dict[str, Any]:
    """The point of the space that is LORA-F or LORA-Q (table IV)."""
    side = 32 if precision == "fp16" else 64
    return {
        "precision": precision,
        "array_rows": side,
        "array_columns": side,
        "tile": side,
        "lanes": 8,
        "kv_uram": 864,
        "prefetch_bytes": 0,
        "ports": 32,
    }


SHIPPED = {"fp16": "lora_f", "w8a8": "lora_q", "w4a8": "lora_w4a8"}
"""Included overlays by precision, without their board. An explored design has the same formats."""


def manifest_boards() -> tuple[str, ...]:
    """Boards for which an overlay is included, with which a manifest can begin."""
    from lora_host.overlay import overlay_names

    return tuple(board for board in PORTS if f"{SHIPPED['fp16']}_{board}" in overlay_names())


def base_overlay(board: str, precision: str = "fp16") -> Overlay:
    """The included overlay of a board. RequestError names the boards that have one."""
    from lora_host.overlay import load_overlay

    known = manifest_boards()
    if board not in known:
        raise RequestError(
            f"board {board!r}: no overlay is included with which a manifest could begin; expected "
            f"{' or '.join(known)}"
        )
    return load_overlay(f"{SHIPPED[precision]}_{board}")


def manifest(candidate: Candidate, board: str) -> dict[str, Any]:
    """The overlay manifest of a candidate, with the banks, registers and firmware of the board's
    included overlay. Its kernels come from the build. RequestError as for `base_overlay`."""
    from lora_host.yaml_file import read_yaml

    design, values = candidate.design, candidate.values
    shipped, chosen = base_overlay(board), base_overlay(board, values["precision"])
    facts: dict[str, Any] = read_yaml(shipped.path, RequestError)
    rows, columns = design.array
    name = f"explored_{values['precision']}_{board}"
    facts.update(
        name=name,
        title=f"explored, {values['precision'].upper()}, for {board}",
        board=board,
        precision=values["precision"],
        weights=list(chosen.weights),
        kv=list(chosen.kv),
        clock_hz=int(design.clock_hz),
        tiling={
            "array_rows": rows,
            "array_columns": columns,
            "tile": design.tile,
            "vector_lanes": design.lanes,
        },
        merge=4 if design.prefetch_bytes else 1,
        prefill_copy=design.prefill_copy if shipped.spill_banks else "none",
        container=f"{name}{Path(facts['container']).suffix}",  # as lora overlay names it
    )
    count = min(len(shipped.weight_banks), values["ports"])
    facts["banks"]["weights"] = {"first": shipped.weight_banks.start, "count": count}
    return facts
