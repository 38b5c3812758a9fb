"""EAGLE-3 (Li et al., 2025): a head of one layer drafts from the target's own hidden states.

Entry s of a sequence combines the embedding of token s + 1 with a state of position s, and predicts
token s + 2. For committed positions the state is fused from the target's hidden states. After them
it is the head's own output for the previous entry, so each run of the head adds a level to a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.logits import top_tokens
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.spec import ModelConfig
from lora_sdk.spec.eagle3_config import load_head_config
from lora_sdk.spec.eagle3_layer import Floats, HeadLayer, KeyValues, Mask
from lora_sdk.spec.eagle3_weights import Embedding, load_head
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.step.tree_shape import TreeShape

_MAX_ENTRIES = 256  # of a prompt per run: bounds the memory of attention scores


class Eagle3:
    """A head on the host's kernels."""

    name = "eagle3"

    def __init__(self, layer: HeadLayer, hidden_layers: tuple[int, ...]) -> None:
        self._layer = layer
        self.hidden_layers = hidden_layers

    @classmethod
    def open_head(cls, folder: Path, model: Path, target: ModelConfig, context: int) -> Eagle3:
        """The head in `folder` for the `target` in the folder `model`, with `context` positions.

        ModelError: the head is for another model, or its file is damaged."""
        config = load_head_config(folder)
        found = (config.target_hidden, config.layer.vocabulary)
        if found != (target.hidden, target.vocabulary):
            raise ModelError(
                f"draft {folder} is for hidden states of {found[0]} columns and {found[1]} tokens, "
                f"the model has {target.hidden} and {target.vocabulary}; take a head made for it"
            )
        layers = config.layers_of(target.layers)
        stored = Checkpoint.open(model, target).stored("embed.token")
        embedding = Embedding(stored.array, stored.kind)
        weights = load_head(folder, config, len(layers), embedding)
        positions = min(context, config.layer.positions)
        return cls(HeadLayer(config, weights, positions), layers)

    @property
    def layer(self) -> HeadLayer:
        """The head's layer, for measurements over known text."""
        return self._layer

    def open(self) -> HeadDrafting:
        """Proposals for a new sequence."""
        return HeadDrafting(self._layer)

    def close(self) -> None:
        """Nothing to release."""


class HeadDrafting:
    """One sequence of the head."""

    def __init__(self, layer: HeadLayer) -> None:
        self._layer = layer
        self._cache: KeyValues = layer.key_values()
        self._entries = 0  # cache entries computed from accepted tokens
        self._length = 0  # accepted tokens
        self._tokens: list[int] = []  # of the next entries, except the last state's
        self._states: list[Floats] = []  # [n, hidden] each: of the next entries, the last included

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """See Drafting."""
        if not tokens:
            return
        if hidden is None or hidden.shape[1] != len(tokens):
            raise ValueError(f"an EAGLE-3 head needs hidden states of all {len(tokens)} tokens")
        # The sequence's first token has no entry: it has no preceding position.
        self._tokens.extend(tokens if self._length else tokens[1:])
        with self._layer.threads():
            self._states.append(self._layer.fuse(hidden))
        self._length += len(tokens)

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """See Drafting. There are no proposals beyond the head's own positions."""
        proposed: Tokens = [None] * tree.size
        proposed[0] = pending
        if tree.size == 1 or not 1 <= self._length < self._layer.positions:
            return proposed
        with self._layer.threads():
            self._fill(tree, proposed, pending)
        return proposed

    def _fill(self, tree: TreeShape, proposed: Tokens, pending: int) -> None:
        """Set the tokens of a tree level by level."""
        level = _Level([0], self._catch_up(pending))
        self._set_tokens(level, tree, proposed)
        entries = {0: self._length - 1}  # of each node's entry in the cache
        for depth, nodes in enumerate(tree.levels[1:-1], 1):
            kept = [n for n in nodes if proposed[n] is not None and tree.children(n)]
            if not kept or self._length - 1 + depth >= self._layer.positions:
                break
            level = self._grow(level, kept, tree, proposed, entries, depth)
            self._set_tokens(level, tree, proposed)

    def fork(self) -> HeadDrafting:
        """A copy."""
        other = HeadDrafting(self._layer)
        other._cache = self._cache.copy()
        other._entries, other._length = self._entries, self._length
        other._tokens, other._states = list(self._tokens), list(self._states)
        return other

    def close(self) -> None:
        """Nothing to release."""

    def _catch_up(self, pending: int) -> Floats:
        """Run the entries of the accepted and pending tokens; the last one's output [1, hidden].

        The pending token's entry is computed again once the token is accepted."""
        tokens = np.array([*self._tokens, pending], np.int64)
        states = np.concatenate(self._states)
        for start in range(0, len(tokens), _MAX_ENTRIES):
            stop = min(start + _MAX_ENTRIES, len(tokens))
            first = self._entries + start
            output = self._layer.run(
                tokens[start:stop],
                states[start:stop],
                np.arange(first, first + stop - start),
                first,
                None,
                self._cache,
            )
        self._entries += len(self._tokens)
        self._tokens.clear()
        self._states = [states[-1:]]
        return output[-1:]

    def _grow(
        self,
        above: _Level,
        nodes: list[int],
        tree: TreeShape,
        proposed: Tokens,
        entries: dict[int, int],
        depth: int,
    ) -> _Level:
        """Run the candidates of one level, each with its parent's output as the state."""
        first = max(entries.values()) + 1
        tokens = np.array([proposed[node] for node in nodes], np.int64)
        states = above.outputs[[above.nodes.index(tree.parents[node]) for node in nodes]]
        entries.update((node, first + i) for i, node in enumerate(nodes))
        visible = self._visible(nodes, tree, entries, first + len(nodes))
        positions = np.full(len(nodes), self._length - 1 + depth)
        outputs = self._layer.run(tokens, states, positions, first, visible, self._cache)
        return _Level(nodes, outputs)

    def _visible(
        self, nodes: Sequence[int], tree: TreeShape, entries: dict[int, int], total: int
    ) -> Mask:
        """bool [nodes, total]: the committed entries, a node's ancestors and itself."""
        visible = np.zeros((len(nodes), total), np.bool_)
        visible[:, : self._length - 1] = True
        for row, node in enumerate(nodes):
            while node >= 0:
                visible[row, entries[node]] = True
                node = tree.parents[node]
        return visible

    def _set_tokens(self, level: _Level, tree: TreeShape, proposed: Tokens) -> None:
        """Set the tokens of the children of a level's nodes."""
        offsets = self._layer.weights.offsets
        for logits, node in zip(self._layer.logits(level.outputs), level.nodes, strict=True):
            children = tree.children(node)
            for child, token in zip(children, _best(logits, len(children)), strict=False):
                proposed[child] = token + int(offsets[token])


@dataclass(frozen=True)
class _Level:
    """Nodes of one depth and their outputs [n, hidden]."""

    nodes: list[int]
    outputs: Floats


def _best(logits: NDArray[np.float32], count: int) -> list[int]:
    """Ids of the `count` max logits, most likely first."""
    return [int(np.argmax(logits))] if count == 1 else top_tokens(logits, count)
