"""How far logits are from the boards' own with K and V of another arithmetic, and from FP32: the
distance of handed-over K and V (docs/vllm_prefill.md) is the boards' rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk import Engine, demo_model_path
from lora_sdk.kv.kv_arrays import KvArrays

pytestmark = pytest.mark.parity
STARTS = ("import os\n", "def main(", "class Foo:\n    def", "# Copyright", '"""Parse', "if x in (")


def prompts(engine: Engine) -> list[list[int]]:
    """The first 15 of tests/vllm/producer.py."""
    long = "".join(f"value_{n} = {n * n}\n" for n in range(60))
    texts = [long[: n % 5 * 150] + STARTS[n % len(STARTS)] + f"  # {n}\n" for n in range(15)]
    return [list(engine.tokenizer.encode(text)) for text in texts]


def last_logits(model: Any, tokens: Sequence[int], cache: Any = None) -> tuple[Any, Any]:
    """FP32 [vocabulary] of the last token, and the cache."""
    import torch

    with torch.inference_mode():
        out = model(torch.tensor([list(tokens)]), past_key_values=cache, use_cache=True)
    return out.logits[0, -1].numpy(), out.past_key_values


def by_boards(engine: Engine, tokens: list[int], kv: KvArrays | None) -> NDArray[np.float32]:
    """The same on boards, with K and V of all tokens but the last."""
    if kv is None:
        sequence = engine.open_sequence()
        logits = engine.prefill(sequence, tokens)
    else:
        sequence = engine.import_kv(tokens[:-1], kv)
        logits = engine.prefill(sequence, tokens[-1:])
    engine.release(sequence)
    return logits


def test_near_k_and_v_are_no_farther_from_fp32_than_the_boards() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(demo_model_path(), dtype=torch.float32)
    found = []
    with Engine(boards=4) as engine:
        for tokens in prompts(engine):
            exact, _ = last_logits(model, tokens)
            _, cache = last_logits(model, tokens[:-1])
            k, v = (
                np.stack([getattr(layer, name)[0].numpy() for layer in cache.layers])
                for name in ("keys", "values")
            )
            for layer in cache.layers:
                layer.keys, layer.values = layer.keys.half().float(), layer.values.half().float()
            rounded, _ = last_logits(model, tokens[-1:], cache)
            own = by_boards(engine, tokens, None)
            kv = KvArrays("fp16", k.astype(np.float16), v.astype(np.float16))
            near = by_boards(engine, tokens, kv)
            pairs = ((near, own), (own, exact), (near, exact), (rounded, exact))
            found.append([np.abs(a - b).max() / own.std() for a, b in pairs])
    worst, median = np.max(found, axis=0), np.median(found, axis=0)
    names = ("near to own", "own to FP32", "near to FP32", "FP16 K and V to FP32")
    for each in zip(names, worst, median, strict=True):
        print("{}: worst {:.3%}, median {:.3%}".format(*each))
    assert 0 < median[2] < median[1]  # nearer than the boards' own
    assert worst[3] < worst[1] / 2  # K and V in FP16 are the smaller part
    assert worst[0] < worst[1] + worst[2]
