"""Train the target: next-token cross entropy, short windows first and full ones afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from .batches import Windows
from .model import Llama, Shape
from .optim import Budget, Rates, apply_step, build_optimizers, schedule, set_rates


@dataclass(frozen=True)
class TargetPlan:
    """What is trained on what: windows of `short` tokens, from `full_from` on of all positions."""

    shape: Shape = field(default_factory=Shape)
    tokens_per_step: int = 4096
    short: int = 256
    full_from: float = 0.5
    seed: int = 1
    rates: Rates = field(default_factory=Rates)
    compiled: bool = True
    save_every: float = 300.0


def next_token_loss(model: Llama, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy in nats over inputs and targets [B, T]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(inputs)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train_target(
    stream: Tensor, plan: TargetPlan, budget: Budget, save: Callable[[Llama, str], None]
) -> Llama:
    """Train on the token stream; `save` is called now and then with a line on the progress."""
    torch.manual_seed(plan.seed)
    model = Llama(plan.shape)
    optimizers = build_optimizers(model, plan.rates)
    windows = Windows(stream, plan.seed)
    compute = torch.compile(next_token_loss, dynamic=False) if plan.compiled else next_token_loss
    recent, last_save = 0.0, time.monotonic()
    while (share := budget.share()) < 1.0:
        length = plan.short if share < plan.full_from else plan.shape.positions
        set_rates(optimizers, schedule(share))
        loss = compute(model, *windows.draw(max(1, plan.tokens_per_step // length), length))
        torch.autograd.backward(loss)
        apply_step(optimizers, model)
        budget.done += 1
        value = loss.item()
        recent = value if budget.done == 1 else 0.98 * recent + 0.02 * value
        if budget.done % 50 == 0:
            print(f"step {budget.done} share {share:.3f} loss {recent:.4f}", flush=True)
        if time.monotonic() - last_save > plan.save_every:
            save(model, f"step {budget.done} share {share:.3f}")
            last_save = time.monotonic()
    return model
