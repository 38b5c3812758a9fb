"""The EAGLE-3 head against torch: the same candidates, level by level, along the target's text."""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np
import pytest

from lora_sdk import demo_model_path
from lora_sdk.model.config import load_config
from lora_sdk.spec.eagle3 import Eagle3
from lora_sdk.step.tree_shape import TreeShape

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

TEXT = Path(heapq.__file__).read_text()
TREE = TreeShape.by_width((4, 3, 2, 1))
CLOSE = 1e-3  # logits that may change places: both sides are FP32


def test_candidates_are_those_of_the_training_code() -> None:
    import torch

    from tools.train_demo.eagle3 import fused_auxiliary
    from tools.train_demo.export import load_llama, load_tokenizer
    from tools.train_demo.train_eagle3 import load_eagle3

    demo = demo_model_path()
    folder = demo.parent / "demo_eagle3"
    target = load_llama(demo).float()
    head = load_eagle3(folder, target.shape).float()
    ids = load_tokenizer(demo).encode(TEXT).ids[:400]
    proposer = Eagle3.open_head(folder, demo, load_config(demo), context=1024)
    with torch.no_grad():
        tensor = torch.tensor(ids)[None]
        auxiliary, _ = fused_auxiliary(target, tensor, proposer.hidden_layers)
        half = auxiliary.half()
        embedded = target.embed_tokens(tensor[:, 1:])
        rounds = [r[0].numpy() for r in head.unroll(embedded, half.float()[:, :-1], TREE.depth)]
    hidden = np.stack(np.split(half[0].numpy(), 3, axis=1))

    drafting = proposer.open()
    compared = [0] * TREE.depth
    known = 0
    for length in (1, 2, 7, *range(20, 380, 3)):
        drafting.accept(ids[known:length], hidden[:, known:length])
        known = length
        proposed = drafting.propose(ids[length], TREE)
        node: int | None = 0
        for depth in range(TREE.depth):  # as long as the text itself is among the candidates
            assert node is not None
            children = TREE.children(node)
            logits = rounds[depth][length - 1 + depth]
            assert_best(logits, [proposed[child] for child in children])
            compared[depth] += 1
            following = ids[length + 1 + depth]
            node = next((c for c in children if proposed[c] == following), None)
            if node is None:
                break
    assert compared[0] > 120 and compared[1] > 20 and compared[2] > 3, compared


def assert_best(logits: np.ndarray, found: list[int | None]) -> None:
    """`found` are the best tokens, likeliest first, but for ties."""
    best = np.sort(logits)[::-1][: len(found)]
    values = np.array([logits[token] for token in found])
    np.testing.assert_allclose(values, best, atol=CLOSE)
    assert len(set(found)) == len(found)
