"""A plain LLaMA in torch with the tensor names of transformers, made for fast training.

Shapes: B sequences, T positions, H width, V vocabulary, N query heads, K key-value heads,
D head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model; the embedding is tied to the output."""

    vocabulary: int = 4096
    hidden: int = 256
    ffn: int = 768
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    positions: int = 1024
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads


class RMSNorm(nn.Module):
    """LLaMA's norm: x / rms(x) * weight over the last axis."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., width]."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rope_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines [positions, head_dim] in the half-split layout of transformers."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles = torch.outer(
        torch.arange(shape.positions, dtype=torch.float64), shape.rope_theta**-exponents
    )
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate heads x [B, heads, T, D] by the tables [T, D] or [B, 1, T, D]."""
    left, right = x.chunk(2, dim=-1)
    turned = x * cos + torch.cat((-right, left), dim=-1) * sin
    return turned.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention; `input_width` is 2H in an EAGLE-3 layer."""

    def __init__(self, shape: Shape, input_width: int | None = None) -> None:
        super().__init__()
        width = input_width or shape.hidden
        self.shape = shape
        kv_width = shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(width, kv_width, bias=False)
        self.v_proj = nn.Linear(width, kv_width, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [B, N, T, D] and keys, and values [B, K, T, D], of x [B, T, width]."""
        batch, length, _ = x.shape
        dim = self.shape.head_dim
        q = self.q_proj(x).view(batch, length, -1, dim).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, -1, dim).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, -1, dim).transpose(1, 2)
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Causal attention over x [B, T, width], giving [B, T, H]."""
        q, k, v = self.project(x, cos, sin)
        repeats = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(mixed)

    def output(self, mixed: Tensor) -> Tensor:
        """Join heads [B, N, T, D] and project to [B, T, H]."""
        batch, _, length, _ = mixed.shape
        joined: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return joined


class FeedForward(nn.Module):
    """LLaMA's gated feed-forward block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down_proj = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., H] to [..., H]."""
        mapped: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return mapped


class Layer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = FeedForward(shape)
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map the residual stream [B, T, H]."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        mapped: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return mapped


class Llama(nn.Module):
    """Decoder with tied embeddings; `state_dict` bears transformers' names below `model.`."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)
        cos, sin = rope_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialize()

    def _initialize(self) -> None:
        """Draw weights; those that write to the residual stream start at zero."""
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                continue
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)
            else:
                nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)

    def hidden_states(self, ids: Tensor) -> list[Tensor]:
        """Inputs of every layer and the last layer's output, each [B, T, H], before the norm."""
        length = ids.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        states = [self.embed_tokens(ids)]
        for layer in self.layers:
            states.append(layer(states[-1], cos, sin))
        return states

    def logits(self, state: Tensor) -> Tensor:
        """Scores [..., V] of a residual stream [..., H]."""
        return F.linear(self.norm(state), self.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores [B, T, V] of ids [B, T]."""
        return self.logits(self.hidden_states(ids)[-1])
