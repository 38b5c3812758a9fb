"""Mean emitted tokens per verification (AAT) of the drafts on the target's greedy text.

While a draft is right, its context equals the greedy text. So whether its k-th token is right is
computed for all positions at once. Then the verifications are simulated in sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .eagle3 import Eagle3Head, default_auxiliary, fused_auxiliary
from .model import Llama

CHAIN = (1, 1, 1, 1)
"""Four drafted tokens, one per depth: five rows per verification."""

TREE = (3, 2, 2, 1)
"""Children of every node, per depth: 1 + 3 + 6 + 12 + 12 rows."""

Hits = Callable[[Tensor, Sequence[int]], Tensor]
"""Maps ids [T] and widths to bool [rounds, T]: is token p + k + 1 drafted from p in round k."""


@dataclass(frozen=True)
class Continuation:
    """Greedy text. The first `prompt` ids are the prompt."""

    ids: list[int]
    prompt: int


def beginnings(texts: Sequence[Continuation], new_tokens: int) -> list[Continuation]:
    """The same texts, cut after `new_tokens` new ones."""
    return [Continuation(text.ids[: text.prompt + new_tokens], text.prompt) for text in texts]


def in_best(logits: Tensor, targets: Tensor, width: int) -> Tensor:
    """Whether targets [T] are among the `width` best of logits [T, V]."""
    best = logits.topk(width, dim=-1).indices
    return (best == targets[:, None]).any(dim=-1)


def draft_hits(draft: Llama) -> Hits:
    """Hits of a small draft, whose input is only tokens."""

    def hits(ids: Tensor, widths: Sequence[int]) -> Tensor:
        with torch.no_grad():
            logits = draft(ids[None])[0]
        found = torch.zeros(len(widths), len(ids), dtype=torch.bool)
        for number, width in enumerate(widths):
            right = in_best(logits[number:-1], ids[number + 1 :], width)
            found[number, : len(right)] = right
        return found

    return hits


def eagle3_hits(target: Llama, head: Eagle3Head) -> Hits:
    """Hits of an EAGLE-3 head, whose input also has the target's states up to the known token."""

    def hits(ids: Tensor, widths: Sequence[int]) -> Tensor:
        layers = default_auxiliary(target.shape.layers)
        with torch.no_grad():
            auxiliary, _ = fused_auxiliary(target, ids[None], layers)
            embedded = target.embed_tokens(ids[None, 1:])
            drafted = head.unroll(embedded, auxiliary[:, :-1], len(widths))
        found = torch.zeros(len(widths), len(ids), dtype=torch.bool)
        for number, width in enumerate(widths):
            right = in_best(drafted[number][0, number:-1], ids[number + 2 :], width)
            found[number, 1 : 1 + len(right)] = right
        return found

    return hits


def count_emitted(found: Tensor, first: int) -> list[int]:
    """Tokens of each verification from position `first` of hits [rounds, T] on."""
    rounds, length = found.shape
    emitted, position = [], first
    while position + rounds < length:
        accepted = int(found[:, position].int().cumprod(dim=0).sum())
        emitted.append(accepted + 1)
        position += accepted + 1
    return emitted


def mean_emitted(hits: Hits, texts: Sequence[Continuation], widths: Sequence[int]) -> float:
    """AAT over all verifications of all texts, including the bonus token."""
    emitted: list[int] = []
    for text in texts:
        emitted += count_emitted(hits(torch.tensor(text.ids), widths), text.prompt)
    return sum(emitted) / len(emitted)
