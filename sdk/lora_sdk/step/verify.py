"""Verification of a tree of drafted tokens by the target model, in one step (docs/numbers.md, 8.5).

The root row is the pending token: it is sampled, but its K and V are not yet written. At each node
of the accepted path the target's own token is sampled with the random numbers of its position, so
the tokens are always those of plain decoding. A child with that token is accepted. Without one the
walk ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import LoraError, RequestError
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.sampling import Sampler
from lora_sdk.sampling.logprobs import PositionLogprobs
from lora_sdk.step.results import Verified
from lora_sdk.step.step import Row, StepResult, build_rows
from lora_sdk.step.stepper import Stepper, argmax_of

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Tree:
    """Drafted tokens. `tokens[0]` is the pending one and `parents[0]` is -1. Every other parent is
    an index below the node's own. Siblings are allowed.

    `drafted` is for rejection sampling: per node the weights float64 [V] from which the draft
    sampled its children, in order and without replacement; None for a node without children.
    Without `drafted` the target's own token is sampled at each node."""

    tokens: Sequence[int]
    parents: Sequence[int]
    drafted: Sequence[Weights | None] | None = None

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise RequestError(
                f"a tree of {len(self.tokens)} tokens has {len(self.parents)} parents; expected "
                "one per token"
            )
        if not self.tokens or list(self.parents).count(-1) != 1 or self.parents[0] != -1:
            raise RequestError(
                "a tree begins with the pending token, parent -1, and has no other root; found "
                f"tokens {list(self.tokens)}, parents {list(self.parents)}"
            )
        if self.drafted is not None and len(self.drafted) != len(self.tokens):
            raise RequestError(
                f"weights of {len(self.drafted)} nodes for a tree of {len(self.tokens)}; expected "
                "one entry per node"
            )

    @classmethod
    def chain(cls, pending: int, drafted: Sequence[int] = ()) -> Tree:
        """The pending token, followed by a chain of drafts."""
        return cls((pending, *drafted), tuple(range(-1, len(drafted))))

    def children(self, node: int) -> list[int]:
        """Nodes whose parent is `node`."""
        return [child for child, parent in enumerate(self.parents) if parent == node]


def verify(
    stepper: Stepper,
    cache: KvCache,
    sampler: Sampler,
    sequence: int,
    tree: Tree,
    prompt_tokens: int,
    commit: bool,
) -> Verified:
    """Run the tree in one step, walk it, and commit the accepted path if `commit` is True.

    For penalties, the first `prompt_tokens` committed tokens count as prompt, the others as output.
    Verification length = len(tree.tokens); tokens returned = accepted drafts + 1.
    """
    every = range(len(tree.tokens))
    plain = not sampler.params.needs_logits and tree.drafted is None
    rows = build_rows(
        cache,
        sequence,
        tree.tokens,
        tree.parents,
        logits=() if plain else every,
        argmax=every if plain else (),
    )
    result = stepper.run(rows)
    history = cache.tokens(sequence)
    try:
        prompt, output = history[:prompt_tokens], history[prompt_tokens:]
        verified = walk(result, rows, 0, sampler, tree, prompt, output)
    except LoraError:
        cache.drop(sequence)
        raise
    if commit:
        cache.commit(sequence, verified.slots)
    return verified


def walk(
    result: StepResult,
    rows: Sequence[Row],
    first: int,
    sampler: Sampler,
    tree: Tree,
    prompt: Sequence[int],
    before: Sequence[int],
) -> Verified:
    """The accepted path of a tree whose rows begin at index `first` of the step.

    `prompt` and `before` are the committed tokens, split for penalties. Nothing is committed.
    LoraError if a token cannot be chosen.
    """
    output = list(before)
    tokens: list[int] = []
    accepted: list[int] = []
    logprobs: list[PositionLogprobs] = []
    node: int | None = 0
    while node is not None:
        accepted.append(node)
        output.append(tree.tokens[node])
        row = rows[first + node]
        children = tree.children(node)
        weights = None if tree.drafted is None else tree.drafted[node]
        if weights is None or not children:
            token, shown = choose_for_row(result, first + node, row, sampler, prompt, output)
        else:
            assert result.logits is not None  # rejection sampling requests them
            token, shown = sampler.choose_among(
                result.logits[result.rows.index(first + node)],
                row.position + 1,
                prompt,
                output,
                [tree.tokens[child] for child in children],
                weights,
            )
        tokens.append(token)
        if shown is not None:
            logprobs.append(shown)
        node = next((c for c in children if tree.tokens[c] == token), None)
    return Verified(
        tuple(tokens),
        tuple(accepted),
        tuple(rows[first + node].slot for node in accepted),
        None if sampler.params.logprobs is None else tuple(logprobs),
    )


def choose_for_row(
    result: StepResult,
    index: int,
    row: Row,
    sampler: Sampler,
    prompt: Sequence[int],
    output: Sequence[int],
) -> tuple[int, PositionLogprobs | None]:
    """The token after row `index` of a step: its argmax if the row requests no logits."""
    if not row.want_logits:
        return argmax_of(result, index), None
    assert result.logits is not None  # requested by this row
    logits = result.logits[result.rows.index(index)]
    return sampler.choose(logits, row.position + 1, prompt, output)
