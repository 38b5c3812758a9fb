"""The view that the cost functions have of a board with a design or an overlay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing.designs import ArrayDesign
from lora_lab.timing.facts import BoardFacts, parameters
from lora_sdk.model.weight_formats import of_precision

if TYPE_CHECKING:
    from lora_host.overlay import Overlay

SOFTMAX_PASSES = 4  # maximum, exponential, sum, scaling: LORA IV.B leaves SoftMax to the VFU
FUSED_PASSES = 2  # maximum; exponential and sum (docs/numbers.md, 3.8)
CAP_PASSES = 2  # tanh of each score: an exponential and a quotient
LAYERNORM_PASSES = 3  # mean, variance, scaling (VI.C)
RMSNORM_PASSES = 2


@dataclass(frozen=True)
class Machine:
    """One board. Rates are per cycle of `clock_hz`; byte rates are effective, not peak.

    `bank_bytes` (per cycle of one bank) and `banks` are 0 if bytes are assumed to be spread evenly.
    Else the fullest bank sets the time."""

    name: str
    clock_hz: float
    rows: int
    columns: int
    utilisation: float
    tile: int
    lanes: int
    fill_cycles: float
    tile_cycles: float
    start_cycles: float
    sum_cycles: float
    rest_cycles: float
    weight_bytes: float
    activation_bytes: int
    kv_bytes: int
    kv_grouped: bool
    stream_rate: float
    prefill_rate: float
    prefetch_cycles: float
    hop_cycles: float
    port_rate: float
    row_group: int
    pad_rows: bool
    row_by_row: bool
    stalled: bool
    replicated_norms: bool
    lm_head: bool
    kv_onchip_bytes: float
    fused_softmax: bool = False
    rows_in_flight: bool = False
    softmax_lanes: int = 0
    banks: int = 0
    merge: int = 1
    block_bytes: int = 0
    charges_all: bool = False
    head_bytes: float = 0.0
    """Of a weight of lm_head; 0 where it is as wide as the others."""

    @property
    def macs(self) -> float:
        """Multiply-accumulates per cycle in use."""
        return self.rows * self.columns * self.utilisation

    @property
    def score_lanes(self) -> int:
        """Lanes that pass over attention's scores."""
        return self.softmax_lanes or self.lanes

    @property
    def norm_cycles(self) -> float:
        """Latency of a row's norm in addition to its passes: two sums and the rest (VI.C)."""
        return 2 * self.sum_cycles + self.rest_cycles

    def seconds(self, cycles: float) -> float:
        """Cycles of this machine's clock in seconds."""
        return cycles / self.clock_hz


def machine_of(design: ArrayDesign, board: BoardFacts) -> Machine:
    """The design on a board. RequestError: the design does not exist for it, or its clock is above
    the board's."""
    if design.boards and board.name not in design.boards:
        raise RequestError(
            f"design {design.name} on board {board.name}: it exists for "
            f"{', '.join(design.boards)}; use one of these boards, or a file with base: "
            f"{design.name} and boards: [{board.name}] (docs/timing.md, A design of your own)"
        )
    if design.clock_hz > board.max_clock_hz:
        raise RequestError(
            f"design {design.name}: {design.clock_hz / 1e6:.0f} MHz, board {board.name} reaches "
            f"{board.max_clock_hz / 1e6:.0f} MHz"
        )
    clock, link = design.clock_hz, design.link
    stream = design.hbm_efficiency * board.bytes_per_second / clock
    copied = design.prefill_copy == "ddr" and board.ddr_bytes_per_second > 0  # else all is in HBM
    held = 2 * design.kv_onchip_hidden * design.kv_bytes * design.kv_onchip_layers
    return Machine(
        name=design.name,
        clock_hz=clock,
        rows=design.array[0],
        columns=design.array[1],
        utilisation=design.utilisation,
        tile=design.tile,
        lanes=design.lanes,
        fill_cycles=design.fill_cycles,
        tile_cycles=design.tile_cycles,
        start_cycles=design.start_cycles,
        sum_cycles=design.sum_cycles,
        rest_cycles=design.rest_cycles,
        weight_bytes=design.weight_bytes,
        activation_bytes=design.activation_bytes,
        kv_bytes=design.kv_bytes,
        kv_grouped=design.kv_grouped,
        stream_rate=stream,
        prefill_rate=board.ddr_bytes_per_second / clock if copied else stream,
        # Firmware tells a unit of no command before it starts it.
        prefetch_cycles=0.0 if design.control == "firmware" else design.prefetch_bytes / stream,
        hop_cycles=link.latency_s * clock,
        port_rate=min(float(link.port_bytes), link.bits_per_second / 8 / clock),
        row_group=link.row_group,
        pad_rows=design.row_grain == "array",
        row_by_row=design.row_by_row,
        stalled=design.gathers == "stalled",
        replicated_norms=design.norms == "replicated",
        lm_head=design.lm_head,
        kv_onchip_bytes=float(design.kv_onchip_tokens * held),
        fused_softmax=design.softmax == "fused",
        softmax_lanes=design.softmax_lanes,
        rows_in_flight=design.few_rows == "in_flight",
        charges_all=design.operations == "charged",
        head_bytes=design.head_bits / 8,
    )


def machine_of_overlay(overlay: Overlay) -> Machine:
    """The overlay of an emulated board as a machine: clock, tiling, merge and links from its
    manifest, the board's banks, and the fitted latencies of LORA's units. No on-chip KV cache."""
    fitted = {name: entry.value for name, entry in parameters().items()}
    clock, links, tiling = overlay.clock_hz, overlay.links, overlay.tiling
    weight_banks = [overlay.board.banks[bank] for bank in overlay.weight_banks]
    peak = sum(bank.bandwidth for bank in weight_banks)
    stream = fitted["lora_hbm_efficiency"] * peak / clock
    element = 1 if of_precision(overlay.precision).integer else 2
    line = links.lanes * links.lane_bits_per_second / 8 / clock
    return Machine(
        name=overlay.name,
        clock_hz=float(clock),
        rows=tiling.array_rows,
        columns=tiling.array_columns,
        utilisation=1.0,
        tile=tiling.tile,
        lanes=tiling.vector_lanes,
        fill_cycles=fitted["fill_cycles"],
        tile_cycles=fitted["tile_cycles"],
        start_cycles=fitted["start_cycles"],
        sum_cycles=fitted["sum_cycles"],
        rest_cycles=fitted["rest_cycles"],
        weight_bytes=float(element),
        activation_bytes=2,
        kv_bytes=2,
        kv_grouped=True,
        stream_rate=stream,
        prefill_rate=stream,
        prefetch_cycles=0.0,
        hop_cycles=links.latency_ns * 1e-9 * clock,
        port_rate=min(float(links.port_bytes), line),
        row_group=abi.ROW_GROUP,
        pad_rows=True,
        row_by_row=False,
        stalled=False,
        replicated_norms=False,
        lm_head=True,
        kv_onchip_bytes=0.0,
        banks=len(weight_banks),
        merge=overlay.merge if isinstance(overlay.merge, int) else 1,
        block_bytes=abi.BLOCK_BYTES_FP16,
    )
