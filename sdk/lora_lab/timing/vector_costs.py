"""The cost of each operation of the vector unit, by its number in abi.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing.machine import Machine
from lora_sdk.compile.isa import Vector


def _nothing(machine: Machine) -> float:
    return 0.0


@dataclass(frozen=True)
class VectorCost:
    """`passes` over the columns of a row, plus `latency` cycles per row."""

    passes: int = 1
    latency: Callable[[Machine], float] = _nothing


VECTOR_COSTS: dict[int, VectorCost] = {
    abi.VEC_EMBED: VectorCost(),
    abi.VEC_ADD_POSITION: VectorCost(),
    abi.VEC_LN_SUMS: VectorCost(2, lambda machine: 2 * machine.sum_cycles),
    abi.VEC_RMS_SUMS: VectorCost(1, lambda machine: machine.sum_cycles),
    abi.VEC_LN_APPLY: VectorCost(1, lambda machine: machine.rest_cycles),
    abi.VEC_RMS_APPLY: VectorCost(1, lambda machine: machine.rest_cycles),
    abi.VEC_ROPE: VectorCost(),
    abi.VEC_RESIDUAL: VectorCost(),
    abi.VEC_RELU: VectorCost(),
    abi.VEC_GELU_TANH: VectorCost(),
    abi.VEC_GELU_ERF: VectorCost(),
    abi.VEC_SWIGLU: VectorCost(),
    abi.VEC_SWIGLU_CLAMPED: VectorCost(),
    abi.VEC_JOIN_HEADS: VectorCost(),
    abi.VEC_ARGMAX: VectorCost(),
    abi.VEC_QUANTIZE: VectorCost(),
    abi.VEC_QUANTIZE_HEADS: VectorCost(2),  # the max of a head, then the quotients
    abi.VEC_PERMUTE: VectorCost(),
    abi.VEC_RMS_HEADS: VectorCost(2, lambda machine: machine.sum_cycles + machine.rest_cycles),
    abi.VEC_HEAD_SUMS: VectorCost(1, lambda machine: machine.sum_cycles),
    abi.VEC_RMS_ROW: VectorCost(1, lambda machine: machine.rest_cycles),
    abi.VEC_EMBED_SCALED: VectorCost(),
    abi.VEC_RESIDUAL_SCALED: VectorCost(),
    abi.VEC_SCALE: VectorCost(),
    abi.VEC_SOFTCAP: VectorCost(2),  # tanh is made of an exponential and a quotient
    abi.VEC_GEGLU: VectorCost(),
    abi.VEC_ROW_MAX: VectorCost(),
    # FP32 divisions, one a row, are no faster than a norm's root and division
    abi.VEC_QUANTIZE_ROW: VectorCost(1, lambda machine: machine.rest_cycles),
    # exponentials, whose sum waits for each addition; then the choice, a pass for its maximum
    abi.VEC_ROUTE: VectorCost(2, lambda machine: machine.sum_cycles + machine.rest_cycles),
    abi.VEC_ROUTE_CHOSEN: VectorCost(2, lambda machine: machine.sum_cycles + machine.rest_cycles),
    # sigmoids, sums of groups, the choice
    abi.VEC_ROUTE_SIGMOID: VectorCost(3, lambda machine: machine.sum_cycles + machine.rest_cycles),
    abi.VEC_GATE: VectorCost(1, lambda machine: machine.rest_cycles),
    abi.VEC_ADD_GATED: VectorCost(1, lambda machine: machine.rest_cycles),
}


def vector_cost(command: Vector) -> VectorCost:
    """The cost of a command's operation. RequestError names an operation without one."""
    cost = VECTOR_COSTS.get(command.op)
    if cost is None:
        raise RequestError(
            f"command {command.what!r}: vector operation {command.op} has no timing; add it to "
            "lora_lab.timing.vector_costs"
        )
    return cost
