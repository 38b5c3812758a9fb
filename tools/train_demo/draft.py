"""Distill the small draft. It starts from layers of the target and learns its distribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .batches import Windows
from .model import Llama
from .optim import Budget, Rates, apply_step, build_optimizers, schedule, set_rates


@dataclass(frozen=True)
class DraftPlan:
    """`copied` names the target's layers that the draft starts from, one for each of its own."""

    copied: tuple[int, ...] = (0, 7)
    tokens_per_step: int = 4096
    short: int = 256
    full_from: float = 0.75
    seed: int = 2
    rates: Rates = field(default_factory=lambda: Rates(muon=0.01, adam=1e-3))
    compiled: bool = True


def start_from_target(target: Llama, copied: tuple[int, ...]) -> Llama:
    """A model with the target's embedding and norm and copies of some of its layers."""
    draft = Llama(replace(target.shape, layers=len(copied)))
    draft.embed_tokens.load_state_dict(target.embed_tokens.state_dict())
    draft.norm.load_state_dict(target.norm.state_dict())
    for own, source in enumerate(copied):
        draft.layers[own].load_state_dict(target.layers[source].state_dict())
    return draft


def soft_cross_entropy(logits: Tensor, teacher: Tensor) -> Tensor:
    """Mean cross entropy in nats of logits [..., V] against the softmax of `teacher` [..., V]."""
    probabilities = teacher.float().softmax(dim=-1)
    return -(probabilities * logits.float().log_softmax(dim=-1)).sum(dim=-1).mean()


def distill_loss(target: Llama, draft: Llama, inputs: Tensor) -> Tensor:
    """Distance of the draft from the target on ids [B, T]."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            teacher = target(inputs)
        logits = draft(inputs)
    return soft_cross_entropy(logits, teacher)


def train_draft(target: Llama, source: Windows, plan: DraftPlan, budget: Budget) -> Llama:
    """Train a draft on windows of `source`. The windows' next tokens are not used as labels."""
    torch.manual_seed(plan.seed)
    target.requires_grad_(False)
    draft = start_from_target(target, plan.copied)
    optimizers = build_optimizers(draft, plan.rates)
    compute: Callable[..., Tensor] = distill_loss
    if plan.compiled:
        compute = torch.compile(distill_loss, dynamic=False)
    while (share := budget.share()) < 1.0:
        length = plan.short if share < plan.full_from else target.shape.positions
        set_rates(optimizers, schedule(share))
        inputs, _ = source.draw(max(1, plan.tokens_per_step // length), length)
        loss = compute(target, draft, inputs)
        torch.autograd.backward(loss)
        apply_step(optimizers, draft)
        budget.done += 1
        if budget.done % 50 == 0:
            print(f"step {budget.done} share {share:.3f} loss {loss.item():.4f}", flush=True)
    return draft.eval()
