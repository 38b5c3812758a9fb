"""How an EAGLE-3 head ranks the target's text, for all positions at once.

Along a text that is known every round of drafting is: the k-th run of the head at one entry sees
the entries that accepted tokens made, and its own ancestors. So a round of all roots is one run, as
when the head is trained (EAGLE-3's training-time test).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.spec.eagle3_layer import Floats, HeadLayer
from lora_sdk.spec_tuning.acceptance import MISSED, Ranks, TextRanks
from lora_sdk.spec_tuning.collect import OwnText, Progress, hidden_states

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine


def head_ranks(
    folder: Path,
    target: Engine,
    texts: Sequence[OwnText],
    depth: int,
    progress: Progress | None = None,
) -> list[TextRanks]:
    """Ranks of the target's tokens with the head in `folder`, `depth` rounds from each root; the
    `target` must have been opened for the hidden layers that it reads (`layers_of_head`).

    Candidates are those of `Eagle3`, up to rounding: products of more rows are summed in another
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
    """Layers of a target with so many whose inputs the head in `folder` reads."""
    from lora_sdk.spec.eagle3_config import load_head_config

    return load_head_config(folder).layers_of(layers)


def _unroll(layer: HeadLayer, text: OwnText, states: Floats, depth: int) -> Ranks:
    """uint8 [roots, depth]. Entry s joins token s + 1 with the state of position s; the root that
    is token p begins at entry p - 1."""
    ids = np.array(text.ids, np.int64)
    tokens, first = ids[1:], text.prompt - 1
    roots = len(ids) - text.prompt - depth
    if first < 0 or roots < 1:
        raise RequestError(
            f"a text of {len(ids)} tokens, {text.prompt} of them given; expected one given token "
            f"and more than {depth} new ones"
        )
    cache = layer.key_values()
    count = len(tokens)
    output = layer.run(tokens, states, np.arange(count), 0, None, cache)[first:]
    ranks = np.full((roots, depth), MISSED, np.uint8)
    places = [0]
    for k in range(depth):
        # Row i: the root at entry first + i, k tokens further.
        if k:
            entries = np.arange(first + k, count)
            states, base = output[: len(entries)], places[-1] + (count if k == 1 else len(output))
            visible = _visible(len(entries), first, places, base)
            output = layer.run(tokens[entries], states, entries, base, visible, cache)
            places.append(base)
        wanted = ids[text.prompt + k + 1 : text.prompt + k + 1 + roots]
        ranks[:, k] = _ranks(layer, output[:roots], wanted)
    return ranks


def _visible(rows: int, first: int, places: Sequence[int], base: int) -> NDArray[np.bool_]:
    """bool [rows, base + rows]: row i sees the entries up to its root's, and itself and its
    ancestors, which are row i of every round from the second on."""
    visible = np.zeros((rows, base + rows), np.bool_)
    visible[:, : first + rows] = np.tri(rows, first + rows, first, dtype=np.bool_)
    for place in (*places[1:], base):
        visible[np.arange(rows), place + np.arange(rows)] = True
    return visible


def _ranks(layer: HeadLayer, outputs: Floats, wanted: NDArray[np.int64]) -> Ranks:
    """Rank of each wanted token among the head's own vocabulary: uint8 [n], MISSED where it is not
    in it. Of equal logits the lower id comes first."""
    offsets = layer.weights.offsets
    ids = np.arange(len(offsets)) + offsets
    order = np.argsort(ids)
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    own = order[place]  # the head's id of each wanted token
    logits = layer.logits(outputs)
    value = logits[np.arange(len(wanted)), own][:, None]
    before = (logits > value) | ((logits == value) & (np.arange(len(ids)) < own[:, None]))
    ranks = np.where(ids[own] == wanted, before.sum(axis=1), MISSED)
    return np.minimum(ranks, MISSED).astype(np.uint8)
