"""The EAGLE-3 head: one layer over the target's hidden states, trained on its own outputs.

Entry s of a sequence combines the embedding of token s+1 with a state of position s and predicts
token s+2. In round 0 the states are the target's, fused by `fc`. In round k they are the head's
outputs of round k-1, one entry earlier, as in drafting the k-th further token ("training-time
test"). Keys and values of round k then come from round 0 up to entry s-k, and from round j at entry
s-(k-j).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model import Attention, FeedForward, Llama, RMSNorm, Shape, rope_tables

Projected = tuple[Tensor, Tensor, Tensor]
"""Queries [B, N, T, D], keys and values [B, N, T, D] of one round."""


def default_auxiliary(layers: int) -> tuple[int, int, int]:
    """Layers whose inputs the head reads if the config names none."""
    return 2, layers // 2, layers - 3


def fused_auxiliary(target: Llama, ids: Tensor, layers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Inputs of `layers` joined, [B, T, 3H], and the target's logits [B, T, V]."""
    states = target.hidden_states(ids)
    return torch.cat([states[layer] for layer in layers], dim=-1), target.logits(states[-1])


def delayed(x: Tensor, entries: int) -> Tensor:
    """Shift x [B, ..., T, W] by `entries` along T, with zeros at the start."""
    if entries == 0:
        return x
    return F.pad(x, (0, 0, entries, 0))[..., : x.shape[-2], :]


class HeadLayer(nn.Module):
    """The head's decoder layer under its published names."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape, 2 * shape.hidden)
        self.mlp = FeedForward(shape)
        self.hidden_norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_eps)

    def project(self, embedded: Tensor, state: Tensor, cos: Tensor, sin: Tensor) -> Projected:
        """Queries, keys and values of embeddings and states, both [B, T, H]."""
        joined = torch.cat((self.input_layernorm(embedded), self.hidden_norm(state)), dim=-1)
        q, k, v = self.self_attn.project(joined, cos, sin)
        repeats = q.shape[1] // k.shape[1]
        return q, k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)

    def finish(self, state: Tensor, mixed: Tensor) -> Tensor:
        """Residual stream [B, T, H] after attention's output [B, N, T, D] and the MLP."""
        state = state + self.self_attn.output(mixed)
        finished: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return finished


def mix_rounds(rounds: list[Projected]) -> Tensor:
    """Attention of the last round over all rounds, [B, N, T, D]."""
    current = len(rounds) - 1
    queries = rounds[-1][0]
    length, scale = queries.shape[-2], queries.shape[-1] ** -0.5
    visible = torch.ones(length, length, dtype=torch.bool).tril(-current)
    first = (queries @ rounds[0][1].transpose(-1, -2)).float() * scale
    scores = [first.masked_fill(~visible, -1e9)]
    values = []
    for number in range(1, current + 1):
        keys = delayed(rounds[number][1], current - number)
        scores.append((queries * keys).sum(-1, keepdim=True).float() * scale)
        values.append(delayed(rounds[number][2], current - number))
    weights = torch.cat(scores, dim=-1).softmax(dim=-1).to(queries.dtype)
    mixed = weights[..., :length] @ rounds[0][2]
    for number, value in enumerate(values):
        mixed = mixed + weights[..., length + number, None] * value
    return mixed


class Eagle3Head(nn.Module):
    """EAGLE-3 draft. Parameters have the published names. The embedding is the target's."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.midlayer = HeadLayer(shape)
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def start_from_target(self, target: Llama) -> None:
        """Initialize from the target's output matrix, final norm and a copy of its last MLP."""
        self.lm_head.weight.data.copy_(target.embed_tokens.weight.data)
        self.norm.load_state_dict(target.norm.state_dict())
        weights = target.layers[-1].state_dict()
        for part in ("mlp", "post_attention_layernorm"):
            own = {n.removeprefix(f"{part}."): w for n, w in weights.items() if n.startswith(part)}
            self.midlayer.get_submodule(part).load_state_dict(own)
        nn.init.zeros_(self.midlayer.self_attn.o_proj.weight)

    def unroll(self, embedded: Tensor, auxiliary: Tensor, rounds: int) -> list[Tensor]:
        """Logits [B, T, V] of each round for embeddings [B, T, H] and states [B, T, 3H].

        `embedded` holds token s+1 at entry s. Entry s of round k is valid from s = k on.
        """
        length = embedded.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        state, projected, logits = self.fc(auxiliary), [], []
        for _ in range(rounds):
            projected.append(self.midlayer.project(embedded, state, cos, sin))
            state = self.midlayer.finish(state, mix_rounds(projected))
            logits.append(self.lm_head(self.norm(state)))
            state = delayed(state, 1)
        return logits
