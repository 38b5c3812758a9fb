"""The analyses of section VI.C: cycles saved by LORA's synchronization methods."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from lora_lab.timing import step as steps
from lora_lab.timing.designs import ArrayDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.machine import LAYERNORM_PASSES, Machine, machine_of
from lora_lab.timing.schedule import schedule
from lora_lab.timing.shape_ops import step_ops
from lora_sdk.model.shapes import shape_config


def _lora_q() -> Machine:
    """VI.C names LORA-Q for the matmuls. Its clock also gives the 220 cycles of the sums."""
    design = load_design("lora-q")
    assert isinstance(design, ArrayDesign)  # shipped data
    return machine_of(design, board_facts("u280"))


def summation(model: str = "gpt2-1.5b", boards: int = 4, rows: int = 32) -> dict[str, float]:
    """LayerNorm split over boards, in cycles. `row`: mean and variance of one row. `communication`:
    its all-reduce. `longer`: the increase without packing and pipelining. `prefill`, `decode`:
    speed-up over a LayerNorm replicated on every board. `saved`: share of buffers saved."""
    machine, hidden = _lora_q(), shape_config(model).hidden
    one_pass = hidden / boards / machine.lanes
    row = 2 * (one_pass + machine.sum_cycles)
    rest = one_pass + machine.rest_cycles
    communication = (boards - 1) * machine.hop_cycles
    passes = LAYERNORM_PASSES * one_pass
    replicated = LAYERNORM_PASSES * hidden / machine.lanes
    latency = machine.norm_cycles
    return {
        "row": row,
        "communication": communication,
        "longer": (row + communication + rest) / (row + rest) - 1,
        "prefill": (rows * replicated + latency) / (rows * passes + latency + communication),
        "decode": (replicated + latency) / (passes + latency + communication),
        "saved": 1 - 1 / boards,
    }


def reordering(model: str = "opt-6.7b", boards: int = 4, rows: int = 32) -> dict[str, float]:
    """Local columns first and early broadcast, in cycles. `tile`: a matmul over the local columns
    for one column tile. `receive`: receiving a neighbor's columns at the stated line rate.
    `receive_port`: the same at the port's width. `idle`: wait of a column tile without reordering
    (port). `window`: the matmul of one neighbor's share, which hides the transfer. `longer`: the
    increase of prefill without both methods.

    As in the paper, 32 rows are counted at the full rate of the 64-row array."""
    machine, config = replace(_lora_q(), pad_rows=False), shape_config(model)
    local = config.hidden // boards
    tile = _matmul(machine, rows, local, 32)
    sent = rows * local * machine.activation_bytes
    receive = machine.hop_cycles + sent / machine.port_rate
    port = machine.hop_cycles + sent / 32
    idle = port - tile
    queries = config.heads * config.head_dim
    columns = queries + 2 * config.kv_heads * config.head_dim + 2 * config.hidden + config.ffn
    stalls = config.layers * math.ceil(columns / boards / 32) * idle
    whole = schedule(step_ops(machine, config, boards, steps.prefill(rows))).cycles
    return {
        "tile": tile,
        "receive": receive,
        "receive_port": port,
        "idle": idle,
        "window": _matmul(machine, rows, local, local),
        "longer": stalls / whole,
    }


def _matmul(machine: Machine, rows: int, k: int, n: int) -> float:
    """The paper's count of a matmul: full rate, overhead per column tile, one start."""
    return rows * k * n / machine.macs + n / 32 * machine.tile_cycles + machine.start_cycles


def scaling(
    design: str, model: str = "gpt2-345m", inputs: int = 64, outputs: int = 64
) -> dict[int, float]:
    """Speed-up of a whole request on 1, 2 and 4 boards (Figure 16)."""
    from lora_lab.timing.model import run_time
    from lora_lab.timing.target import make_target

    config = shape_config(model)
    times = {
        boards: run_time(
            make_target(design, "u280", config, boards), model, inputs, outputs
        ).latency_ms
        for boards in (1, 2, 4)
    }
    return {boards: times[1] / time for boards, time in times.items()}


def energy_per_token(board: str, boards: int, tokens_per_second: float) -> float:
    """Joules per token of `boards` boards at their typical power."""
    return boards * board_facts(board).power_watts / tokens_per_second


def every_analysis() -> dict[str, Any]:
    """Section VI.C and related figures: sums, matmuls, scaling over boards, energy."""
    energy = {}
    for design, board in (("flightllm", "u280"), ("own-u280", "u280"), ("own-v80", "v80")):
        rate = _token_rate(design, "llama2-7b", 128)
        energy[design] = energy_per_token(board, 1, rate)
    return {
        "label": "modelled",
        "summation": summation(),
        "reordering": reordering(),
        "scaling": {name: scaling(name) for name in ("lora-f", "lora-q", "dfx")},
        "joules_a_token": energy,
    }


def _token_rate(design: str, model: str, context: int) -> float:
    from lora_lab.timing.model import token_time
    from lora_lab.timing.target import make_target

    target = make_target(design, None, shape_config(model), 1)
    return token_time(target, model, context).tokens_per_second


def analyses_text(found: dict[str, Any]) -> str:
    """The analyses as text, with the paper's figures in brackets."""
    s, r = found["summation"], found["reordering"]
    lines = [
        "modelled, the paper's figure in brackets",
        "sums of a LayerNorm, GPT-2 1.5B on 4 boards:",
        f"  mean and variance of a row {s['row']:.0f} cycles (121), their exchange "
        f"{s['communication']:.0f} (220)",
        f"  without packing and pipelining {s['longer']:.0%} longer (107%)",
        f"  over a replicated LayerNorm: prefill {s['prefill']:.1f} times faster (3.9), decode "
        f"{s['decode']:.1f} (1.3), buffers {s['saved']:.0%} smaller (75%)",
        "matmuls, OPT-6.7B on 4 boards, 32 tokens:",
        f"  a column tile takes {r['tile']:.0f} cycles (400); a neighbor's columns arrive after "
        f"{r['receive_port']:.0f} (1090) by the port's width, {r['receive']:.0f} by the line rate",
        f"  the array waits {r['idle']:.0f} cycles (690) without reordering; local columns first "
        f"give {r['window']:.0f} (9208) to hide it in",
        f"  without reordering and early broadcast prefill is {r['longer']:.0%} longer (45%)",
        "scaling of GPT-2 345M, 64 in, 64 out, over 1, 2 and 4 boards:",
    ]
    for name, gains in found["scaling"].items():
        lines.append(f"  {name:<8} " + ", ".join(f"{gain:.2f}" for gain in gains.values()))
    lines.append("energy of a LLaMA2-7B token at context 128, typical power of the board:")
    for name, joules in found["joules_a_token"].items():
        lines.append(f"  {name:<18} {joules:.2f} J")
    return "\n".join(lines)
