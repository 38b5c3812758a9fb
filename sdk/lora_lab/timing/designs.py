"""Accelerator designs as data: `data/designs.yaml`, or a YAML file of the same form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_host.yaml_file import read_yaml
from lora_lab.timing.design_fields import check_fields
from lora_lab.timing.facts import DATA, BoardFacts, board_facts, only_known, resolved
from lora_lab.timing.wide_card import wide_names


@dataclass(frozen=True)
class Link:
    """A link between neighbors: line rate, bytes per cycle of the user port, latency of a hop, and
    rows packed into one transfer (III.B)."""

    bits_per_second: float
    port_bytes: int
    latency_s: float
    row_group: int


@dataclass(frozen=True, kw_only=True)
class ArrayDesign:
    """Designs like LORA: an array of multipliers (MPU), vector lanes (VFU), a Router.

    Cycle fields count cycles of `clock_hz`. `array`: rows x columns of multipliers. `tile`: T_m.
    `weight_bits` exclude scales and zero points, `metadata` is the share that they add. `kv_bytes`:
    bytes per element. The on-chip KV cache holds `kv_onchip_tokens` positions of a model with
    `kv_onchip_hidden` columns and `kv_onchip_layers` blocks. `prefetch_bytes`: weights that can be
    prefetched while the MPU waits. `row_grain`: "array" pads the rows of a GEMM to the array, "row"
    pads nothing. `gathers`: "overlapped" or "stalled". `norms`: "split" or "replicated". `softmax`:
    "passes", one over the scores each for maximum, exponential, sum and quotient, or "fused", as in
    docs/numbers.md, 3.8: maximum, then exponential with sum, and the quotient of the outputs;
    the array multiplies for one head while the lanes work on another. `softmax_lanes`: of a unit
    for the passes over scores, 0 where the vector lanes make them. `few_rows`: below half an
    array of rows, "alone" fills the array for each row, "in_flight" once per weight tile, as rows
    follow each other. `control`: "ideal" (part of the fitted start-up, for the papers' designs), or
    one whose dispatch and host accesses are charged: "firmware", which starts no weight stream
    before its command, or "sequencer", which tells a unit its next command while it runs one.
    `operations` that neither multiply nor norm (activations, rotary positions, residual sums,
    quantizing, stores of K and V, argmax): "fitted", in the papers' designs' fitted start-ups, or
    "charged". `head_bits`: of lm_head's weights, without group scales; 0: as the others.
    `memory_bytes_per_second`: assumed peak of the memory, 0: the board's. `base`: the shipped
    design that a file's builds on, "" for others."""

    name: str
    title: str
    kind: str
    origin: str
    boards: tuple[str, ...]
    clock_hz: float
    array: tuple[int, int]
    tile: int
    lanes: int
    precision: str
    weight_bits: float
    metadata: float
    activation_bytes: int
    kv_bytes: int
    kv_grouped: bool
    kv_onchip_tokens: int
    kv_onchip_hidden: int
    kv_onchip_layers: float
    hbm_efficiency: float
    fill_cycles: float
    tile_cycles: float
    start_cycles: float
    sum_cycles: float
    rest_cycles: float
    prefetch_bytes: int
    prefill_copy: str
    row_grain: str
    lm_head: bool
    gathers: str
    norms: str
    link: Link
    utilisation: float = 1.0
    row_by_row: bool = False
    softmax: str = "passes"
    softmax_lanes: int = 0
    few_rows: str = "alone"
    speculation: str | None = None
    control: str = "ideal"
    operations: str = "fitted"
    head_bits: float = 0.0
    memory_bytes_per_second: float = 0.0
    base: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def macs(self) -> float:
        """Multiply-accumulates per cycle in use."""
        return self.array[0] * self.array[1] * self.utilisation

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight, including its share of scales and zero points."""
        return self.weight_bits / 8 * (1 + self.metadata)


@dataclass(frozen=True, kw_only=True)
class StreamDesign:
    """FlightLLM's decoder: a stream of weights, issue of loads, a KV cache.

    `macs`: per cycle, or `macs_by_board`. Each `block_bytes` of weights take `loads_per_block`
    loads, divided by `merge` (the prefetch ratio). The KV time is `kv_factor` times the ideal.
    `memory_bytes_per_second`, `base`: as of an ArrayDesign."""

    name: str
    title: str
    kind: str
    origin: str
    boards: tuple[str, ...]
    clock_hz: float
    weight_bits: float
    metadata: float
    kv_bytes: int
    hbm_efficiency: float
    kv_factor: float
    issue_cycles: float
    loads_per_block: int
    block_bytes: int
    merge: int
    prefill_utilisation: float
    macs: float = 0.0
    macs_by_board: Mapping[str, float] = field(default_factory=dict)
    speculation: str | None = None
    memory_bytes_per_second: float = 0.0
    base: str = ""

    def macs_on(self, board: str) -> float:
        """Multiply-accumulates per cycle on `board`."""
        return float(self.macs_by_board.get(board, self.macs))

    @property
    def weight_bytes(self) -> float:
        """Bytes per weight, including its share of scales and zero points."""
        return self.weight_bits / 8 * (1 + self.metadata)


Design = ArrayDesign | StreamDesign
KINDS: dict[str, type[ArrayDesign] | type[StreamDesign]] = {
    "array": ArrayDesign,
    "stream": StreamDesign,
}


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = read_yaml(DATA / "designs.yaml", RequestError)
    return found


def design_names() -> tuple[str, ...]:
    """Names of the designs in the package."""
    return tuple(_shipped())


def load_design(name: str | Path) -> Design:
    """The design named `name`, or the single design in a YAML file.

    RequestError: unknown name (with the closest one), unknown or missing field."""
    text = str(name)
    if text in _shipped():
        return make_design(text, _whole(_shipped(), text))
    path = Path(name)
    if path.suffix in (".yaml", ".yml") and path.exists():
        content = read_yaml(path, RequestError)
        if not isinstance(content, dict) or len(content) != 1:
            raise RequestError(f"{path}: expected one design: a name and its fields")
        (own,) = content
        whole = _whole({**_shipped(), **content}, own)
        return make_design(own, {**whole, "base": content[own].get("base", "")})
    raise RequestError(f"design {text!r} is not known; {did_you_mean(text, design_names())}")


def _link(values: object, where: str) -> Link:
    """A link from its fields. RequestError names an unknown, missing or wrong one."""
    if not isinstance(values, dict):
        raise RequestError(f"{where} is {values!r:.60}, expected its fields")
    only_known(Link, values, where)
    check_fields(Link, values, where)
    return Link(**values)


def _whole(
    table: Mapping[str, Mapping[str, Any]], name: str, above: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The fields of `name`, with those of its base as defaults. `above`: those based on it."""
    if not isinstance(table[name], dict):
        raise RequestError(f"design {name}: found {table[name]!r}, expected its fields")
    own = dict(table[name])
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or base not in table or base in (*above, name):
        raise RequestError(
            f"design {name}: base {base!r:.60} is not another design; expected one of "
            f"{', '.join((*design_names(), *wide_names()))}"
        )
    return {**_whole(table, base, (*above, name)), **own}


def make_design(name: str, values: Mapping[str, Any]) -> Design:
    """A design from its fields. RequestError names an unknown or missing field."""
    named = values.get("kind")
    kind = KINDS.get(named) if isinstance(named, str) else None
    if kind is None:
        raise RequestError(f"design {name}: kind {named!r:.60}, expected array or stream")
    only_known(kind, values, f"design {name}")
    made: dict[str, Any] = {key: resolved(value) for key, value in values.items()}
    made["name"] = name
    for key in ("boards", "array"):
        if key in made:
            if not isinstance(made[key], list) or not made[key]:
                raise RequestError(f"design {name}: {key} is {made[key]!r:.60}, expected a list")
            made[key] = tuple(made[key])
    if "link" in made and not isinstance(made["link"], Link):
        made["link"] = _link(made["link"], f"design {name}: link")
    check_fields(kind, made, f"design {name}")
    return kind(**made)


def facts_of(design: Design, board: str) -> BoardFacts:
    """The board with the memory's peak that the design assumes."""
    assumed = design.memory_bytes_per_second
    facts = board_facts(board)
    return replace(facts, bytes_per_second=assumed) if assumed else facts


def memory_note(design: Design, board: str) -> tuple[str, ...]:
    """What a report says of an assumed peak of the memory; nothing where it is the board's."""
    if not design.memory_bytes_per_second:
        return ()
    assumed, given = design.memory_bytes_per_second / 1e9, board_facts(board).bytes_per_second / 1e9
    return (f"memory of {assumed:g} GB/s is assumed: the {board}'s has {given:g}",)
