"""Optimisers and the learning-rate schedule shared by all trainings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass(frozen=True)
class Rates:
    """Learning rates at the plateau."""

    muon: float = 0.015
    adam: float = 2e-3
    decay: float = 0.05


def is_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Whether Muon trains this parameter: inner matrices, no embedding and no output head."""
    return parameter.dim() == 2 and "embed" not in name and "lm_head" not in name


def build_optimizers(module: nn.Module, rates: Rates) -> list[torch.optim.Optimizer]:
    """Muon for the inner matrices, AdamW for everything else that is trained."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    inner = [p for name, p in trained if is_matrix(name, p)]
    outer = [p for name, p in trained if not is_matrix(name, p)]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(outer, lr=rates.adam, betas=(0.9, 0.95), weight_decay=0.0)
    ]
    if inner:
        optimizers.append(torch.optim.Muon(inner, lr=rates.muon, weight_decay=rates.decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["plateau"] = group["lr"]
    return optimizers


def schedule(share: float, warmup: float = 0.01, plateau_end: float = 0.3) -> float:
    """Factor on the learning rate after `share` of the budget: warm-up, plateau, line to 0."""
    if share < warmup:
        return share / warmup
    if share < plateau_end:
        return 1.0
    return max(0.0, (1.0 - share) / (1.0 - plateau_end))


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Scale every learning rate to `factor` of its plateau."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["plateau"] * factor


def apply_step(optimizers: list[torch.optim.Optimizer], module: nn.Module) -> None:
    """Clip the gradients, step every optimizer and forget the gradients."""
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@dataclass
class Budget:
    """How much training may be done: a number of steps, or minutes where that is None.

    A budget in steps gives the same weights on the same machine; one in minutes fits a deadline.
    """

    steps: int | None
    minutes: float = 0.0
    done: int = 0
    started: float = field(default_factory=time.monotonic)

    def share(self) -> float:
        """Share of the budget that is used up, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, self.done / self.steps)
        return min(1.0, (time.monotonic() - self.started) / (60.0 * self.minutes))
