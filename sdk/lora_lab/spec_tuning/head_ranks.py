"""Ranks of the target's text by an EAGLE-3 head, for all positions at once.

On a known text every round of drafting is known: the k-th run of the head at an entry attends to
the entries of the accepted tokens and to its ancestors. So one run computes a round for all roots,
as in the training of the head (EAGLE-3's training-time test).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import MISSED, Ranks, TextRanks
from lora_lab.spec_tuning.collect import OwnText, Progress, hidden_states
from lora_sdk.spec.eagle3_layer import Floats, HeadLayer

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine


def head_ranks(
    folder: Path,
    target: Engine,
    texts: Sequence[OwnText],
    depth: int,
    progress: Progress | None = None,
) -> list[TextRanks]:
    """Ranks of the target's tokens with the head in `folder`, `depth` rounds from each root. The
    `target` must be opened for the hidden layers that the head reads (`layers_of_head`).

    Candidates are those of `Eagle3`, except for rounding: matmuls with more rows sum in another
    order. ModelError: a head for another model. `progress(done, total)` counts texts."""
    from lora_sdk.spec.eagle3 import Eagle3

    head = Eagle3.open_head(folder, target.model_path, target.config, target.context)
    found = []
    for number, text in enumerate(texts):
        hidden = hidden_states(target, text.ids[:-1], head.hidden_layers)
        with head.layer.threads():
            ranks = _unroll(head.layer, text, head.layer.fuse(hidden), depth)
        found.append(TextRanks(text.prompt + 1, ranks))
        if progress is not None:
            progress(number + 1, len(texts))
    return found


def layers_of_head(folder: Path, layers: int) -> tuple[int, ...]:
    """The layers whose inputs the head in `folder` reads, of a target with `layers` layers."""
    from lora_sdk.spec.eagle3_config import load_head_config

    return load_head_config(folder).layers_of(layers)


def _unroll(layer: HeadLayer, text: OwnText, states: Floats, depth: int) -> Ranks:
    """uint8 [roots, depth]. Entry s combines token s + 1 with the state of position s. The root at
    token p begins at entry p - 1."""
    ids = np.array(text.ids, np.int64)
    tokens, first = ids[1:], text.prompt - 1
    roots = len(ids) - text.prompt - depth
    if first < 0 or roots < 1:
        raise RequestError(
            f"a text of {len(ids)} tokens, {text.prompt} of them prompt; expected one prompt token "
            f"and more than {depth} new ones"
        )
    cache = layer.key_values()
    count = len(tokens)
    output = layer.run(tokens, states, np.arange(count), 0, None, cache)[first:]
    ranks = np.full((roots, depth), MISSED, np.uint8)
    offsets = [0]
    for k in range(depth):
        # Row i: the root at entry first + i, plus k tokens.
        if k:
            entries = np.arange(first + k, count)
            states, base = output[: len(entries)], offsets[-1] + (count if k == 1 else len(output))
            visible = _visible(len(entries), first, offsets, base)
            output = layer.run(tokens[entries], states, entries, base, visible, cache)
            offsets.append(base)
        targets = ids[text.prompt + k + 1 : text.prompt + k + 1 + roots]
        ranks[:, k] = _ranks(layer, output[:roots], targets)
    return ranks


def _visible(rows: int, first: int, offsets: Sequence[int], base: int) -> NDArray[np.bool_]:
    """bool [rows, base + rows]: row i attends to the entries up to its root's, to itself and to its
    ancestors, which are row i of every round from the second on."""
    visible = np.zeros((rows, base + rows), np.bool_)
    visible[:, : first + rows] = np.tri(rows, first + rows, first, dtype=np.bool_)
    for offset in (*offsets[1:], base):
        visible[np.arange(rows), offset + np.arange(rows)] = True
    return visible


def _ranks(layer: HeadLayer, outputs: Floats, tokens: NDArray[np.int64]) -> Ranks:
    """Rank of each of `tokens` in the head's vocabulary: uint8 [n], MISSED if it is not in it.
    Ties: the lower id comes first."""
    offsets = layer.weights.offsets
    ids = np.arange(len(offsets)) + offsets
    order = np.argsort(ids)
    index = np.minimum(np.searchsorted(ids[order], tokens), len(ids) - 1)
    own = order[index]  # the head's id of each token
    logits = layer.logits(outputs)
    value = logits[np.arange(len(tokens)), own][:, None]
    before = (logits > value) | ((logits == value) & (np.arange(len(ids)) < own[:, None]))
    ranks = np.where(ids[own] == tokens, before.sum(axis=1), MISSED)
    return np.minimum(ranks, MISSED).astype(np.uint8)
