"""Train the EAGLE-3 head with several unrolled rounds against the target's distribution."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from .batches import Windows
from .draft import soft_cross_entropy
from .eagle3 import Eagle3Head, default_auxiliary, fused_auxiliary
from .export import as_fp16, llama_config, write_json, write_weights
from .model import Llama, Shape
from .optim import Budget, Rates, apply_step, build_optimizers, schedule, set_rates


@dataclass(frozen=True)
class Eagle3Plan:
    """`rounds` tokens are drafted in training; later rounds weigh less by `fading`."""

    rounds: int = 4
    fading: float = 0.9
    tokens_per_step: int = 4096
    short: int = 256
    full_from: float = 0.85
    seed: int = 3
    rates: Rates = field(default_factory=lambda: Rates(muon=0.01, adam=1e-3))
    compiled: bool = True


def unrolled_loss(target: Llama, head: Eagle3Head, inputs: Tensor, plan: Eagle3Plan) -> Tensor:
    """Weighted mean over rounds of the distance from the target on ids [B, T]."""
    layers = default_auxiliary(target.shape.layers)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            auxiliary, teacher = fused_auxiliary(target, inputs, layers)
            embedded = target.embed_tokens(inputs[:, 1:])
        drafted = head.unroll(embedded, auxiliary[:, :-1], plan.rounds)
    total, weights = torch.zeros(()), 0.0
    for number, logits in enumerate(drafted):
        weight = plan.fading**number
        loss = soft_cross_entropy(logits[:, number:], teacher[:, 1 + number :])
        total, weights = total + weight * loss, weights + weight
    return total / weights


def new_head(target: Llama, seed: int) -> Eagle3Head:
    """An untrained head that begins with what it can take from the target."""
    torch.manual_seed(seed)
    head = Eagle3Head(target.shape)
    head.start_from_target(target)
    return head


def train_eagle3(
    target: Llama, head: Eagle3Head, source: Windows, plan: Eagle3Plan, budget: Budget
) -> Eagle3Head:
    """Train `head` on windows of `source`."""
    target.requires_grad_(False)
    optimizers = build_optimizers(head, plan.rates)
    compute: Callable[..., Tensor] = unrolled_loss
    if plan.compiled:
        compute = torch.compile(unrolled_loss, dynamic=False)
    while (share := budget.share()) < 1.0:
        length = plan.short if share < plan.full_from else target.shape.positions
        set_rates(optimizers, schedule(share))
        inputs, _ = source.draw(max(1, plan.tokens_per_step // length), length)
        loss = compute(target, head, inputs, plan)
        torch.autograd.backward(loss)
        apply_step(optimizers, head)
        budget.done += 1
        if budget.done % 50 == 0:
            print(f"step {budget.done} share {share:.3f} loss {loss.item():.4f}", flush=True)
    return head.eval()


def eagle3_config(shape: Shape, target_layers: int) -> dict[str, object]:
    """Content of the head's config.json."""
    config = llama_config(shape)
    config.update(
        architectures=["LlamaForCausalLMEagle3"],
        num_hidden_layers=1,
        draft_vocab_size=shape.vocabulary,
        target_hidden_size=shape.hidden,
        norm_before_residual=False,
        eagle_aux_hidden_state_layer_ids=list(default_auxiliary(target_layers)),
        tie_word_embeddings=False,
    )
    return config


def export_eagle3(head: Eagle3Head, target_layers: int, folder: Path) -> None:
    """Write the head in the published format; its vocabulary is the target's whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: as_fp16(name, weight) for name, weight in head.state_dict().items()}
    weights["d2t"] = torch.zeros(head.shape.vocabulary, dtype=torch.int64)
    weights["t2d"] = torch.ones(head.shape.vocabulary, dtype=torch.bool)
    write_weights(folder, weights)
    write_json(folder / "config.json", eagle3_config(head.shape, target_layers))


def load_eagle3(folder: Path, shape: Shape) -> Eagle3Head:
    """Read a head written by `export_eagle3` for a target of `shape`."""
    config = json.loads((folder / "config.json").read_text())
    if config["draft_vocab_size"] != shape.vocabulary:
        raise ValueError(f"{folder}: the head's vocabulary is not the target's")
    weights = load_file(folder / "model.safetensors")
    head = Eagle3Head(shape)
    head.load_state_dict({n: w for n, w in weights.items() if n not in ("d2t", "t2d")})
    return head.eval()
