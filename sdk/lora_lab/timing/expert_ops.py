"""What matmuls by chosen experts cost: weights of the experts that rows are expected to choose."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lora_lab.timing import costs
from lora_lab.timing.machine import Machine


def distinct_experts(experts: int, chosen: int, rows: int) -> float:
    """Experts that `rows` rows choose together on average, each `chosen` of them at random."""
    return experts * (1 - (1 - chosen / experts) ** rows) if rows else 0.0


@dataclass(frozen=True)
class ExpertCost:
    """`passes` over one expert's weights, of all experts that are read together; `cycles` of the
    products."""

    passes: float
    cycles: float


def expert_cost(
    machine: Machine, experts: int, chosen: int, rows: int, k: int, n: int
) -> ExpertCost:
    """Of matrices [k, n], each for the rows that have chosen it, as even as they can be."""
    read = distinct_experts(experts, chosen, rows)
    each = math.ceil(rows * chosen / read) if read else 0
    passes = costs.matrix_passes(machine, each) if each else 0
    return ExpertCost(read * passes, read * costs.matrix_cycles(machine, each, k, n))
