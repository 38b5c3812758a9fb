"""DSPs, block RAM, UltraRAM and logic of a design (LORA V.D)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lora_lab.timing.designs import ArrayDesign
from lora_lab.timing.facts import BoardFacts

# Read from LORA's table IV. The paper leaves the cost of an operation to the implementation. These
# values split the VFU's 648 DSPs so that equation 7 holds for 8 lanes.
ADD_DSP = 2
LANE_DSP = 75  # exponential, square and the scaling module of one lane
SHARED_DSP = 2
# A lane that only passes over scores has the FP32 operations of docs/numbers.md, 3.8 and 4.1: the
# scale, s - m, six up to r, twelve of the polynomial, two factors, the sum. A DSP58 does one; logic
# is assumed to be a vector lane's by share of DSPs. Scores of two heads of a row wait in UltraRAM.
SCORE_DSP = 23
SCORE_HEADS, SCORE_BYTES, SCORE_POSITIONS = 2, 4, 131072
LANE_LUT, LANE_FF = 69_000 / 8, 98_000 / 8
MAC_LUT = {"fp16": 321_000 / 1024, "w8a8": 255_000 / 4096, "w4a8": 255_000 / 4096}
MAC_FF = {"fp16": 421_000 / 1024, "w8a8": 318_000 / 4096, "w4a8": 318_000 / 4096}
MAC_BRAM = {"fp16": 256 / 1024, "w8a8": 0.0, "w4a8": 0.0}
MAC_DSP = {"fp16": 6.0, "w8a8": 1.0}
REST_LUT = {"fp16": 575_000, "w8a8": 359_000, "w4a8": 359_000}
REST_FF = {"fp16": 651_000, "w8a8": 548_000, "w4a8": 548_000}
# The rest of the table's BRAM: buffers of intermediate results, "more than 60%" on average (II.C).
# Each lane reads its own banks, so the buffers grow with the lanes and limit their number (V.D).
LANE_BRAM = {"fp16": 761 / 8, "w8a8": 883 / 8, "w4a8": 883 / 8}
PORT_BITS = 256
FIFO_WORDS = 512
DDR_PORTS, DDR_BITS = 2, 512
ROUTER_BUFFERS = 4  # two ports, both directions
URAM_BYTES = 36864
LIMITS = {"dsp": 0.90, "bram": 0.90, "uram": 0.90, "lut": 0.80, "ff": 0.80}
"""Share of a board that a design can use and still route. LORA-F uses 90% of the UltraRAM and 74%
of the logic."""


@dataclass(frozen=True)
class Resources:
    """Absolute counts; `bram` in blocks of 36 Kbit."""

    dsp: float
    bram: float
    uram: float
    lut: float
    ff: float

    def shares(self, board: BoardFacts) -> dict[str, float]:
        """Share of the board by resource."""
        return {name: getattr(self, name) / getattr(board, name) for name in LIMITS}

    def excess(self, board: BoardFacts) -> dict[str, float]:
        """Resources over their limit, by which share of the board. Empty if the design fits."""
        shares = self.shares(board)
        return {name: shares[name] - most for name, most in LIMITS.items() if shares[name] > most}


def weight_buffer_bram(tile: int, bits: int, partition: int) -> int:
    """Equation 5, in blocks of 18 Kbit: a double-buffered tile of T_m x T_m weights read from
    `partition` addresses at once."""
    return math.ceil(bits / 18) * math.ceil(tile * tile / (1024 * partition)) * partition * 2


def stream_buffer_bram(bits: int, words: int) -> int:
    """Equation 6, in blocks of 36 Kbit: the buffer of an AXI port or of the Router."""
    return math.ceil(bits / 36) * math.ceil(words / 512)


def vfu_dsp(lanes: int) -> int:
    """Equation 7 with the scaling module: (exp + square + scale) per lane, and an adder tree."""
    return LANE_DSP * lanes + ADD_DSP * (3 * lanes - 1) + SHARED_DSP


def mac_dsp(precision: str, macs_per_dsp: int) -> float:
    """DSPs per multiplier. The paper's LORA-Q uses one per INT8 multiplication. W4A8 packs as many
    as the board's slice allows (two multiplications with a common operand in a DSP48E2, V.A; the
    three-element dot product of a DSP58)."""
    return MAC_DSP[precision] if precision in MAC_DSP else 1 / macs_per_dsp


PORTS = {"u280": 32, "u55c": 32, "v80": 64, "vhk158": 64}
"""256-bit memory ports of the boards with HBM, for which designs are searched."""


def port_count(board: BoardFacts) -> int:
    """Number of 256-bit memory ports for the full bandwidth."""
    return PORTS.get(board.name, 4)


def resources(design: ArrayDesign, board: BoardFacts, ports: int | None = None) -> Resources:
    """Resources of `design` on `board` with `ports` memory ports (None: all)."""
    precision, macs = design.precision, design.array[0] * design.array[1]
    ports = port_count(board) if ports is None else ports
    per_mac = design.resources.get("mpu_dsp_per_mac") or mac_dsp(precision, board.macs_per_dsp)
    # The tile buffer feeds every column of the array.
    columns = design.array[1] / design.tile
    weights = columns * weight_buffer_bram(design.tile, math.ceil(design.weight_bits), design.tile)
    bram = (
        MAC_BRAM[precision] * macs
        + weights / 2
        + ports * stream_buffer_bram(PORT_BITS, FIFO_WORDS)
        + DDR_PORTS * stream_buffer_bram(DDR_BITS, FIFO_WORDS)
        + ROUTER_BUFFERS * stream_buffer_bram(PORT_BITS, FIFO_WORDS)
        + LANE_BRAM[precision] * design.lanes
    )
    held = design.resources.get("onchip_kv_uram", 0)
    scores = SCORE_HEADS * SCORE_BYTES * SCORE_POSITIONS if design.softmax_lanes else 0
    lanes = design.lanes + design.softmax_lanes * SCORE_DSP / LANE_DSP
    return Resources(
        dsp=math.ceil(per_mac * macs) + vfu_dsp(design.lanes) + SCORE_DSP * design.softmax_lanes,
        bram=math.ceil(bram),
        uram=held + math.ceil(design.prefetch_bytes / URAM_BYTES) + math.ceil(scores / URAM_BYTES),
        lut=MAC_LUT[precision] * macs + LANE_LUT * lanes + REST_LUT[precision],
        ff=MAC_FF[precision] * macs + LANE_FF * lanes + REST_FF[precision],
    )


def onchip_tokens(design: ArrayDesign, uram: int) -> ArrayDesign:
    """The design with an on-chip KV cache of `uram` URAMs. LORA stores 256 tokens in 864."""
    tokens = uram * 256 // 864
    taken = {**design.resources, "onchip_kv_uram": float(uram)}
    return replace(design, kv_onchip_tokens=tokens, resources=taken)
