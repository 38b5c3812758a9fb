"""Fleets whose worker computes prompts in torch, exactly: the texts of any one engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lora_cluster import Fleet
from lora_sdk import Engine, Result, SamplingParams
from tests.parity.test_exact_prefill import TOKENS, adapter_of, one_thread, written

__all__ = ["one_thread"]  # a fixture
pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules", "one_thread")]

OPTIONS: dict[str, Any] = {"threads": 1, "max_sequences": 4, "context": 256}
PROMPTS = [TOKENS[:90], TOKENS[3:40], TOKENS[7:130], TOKENS[9:11], TOKENS[20:60], TOKENS[1:65]]


def wanted() -> list[SamplingParams]:
    """Greedy and sampled, plain and with the adapter."""
    return [
        SamplingParams(
            max_tokens=30,
            temperature=0.9 * (index % 2),
            seed=index,
            logprobs=2,
            ignore_eos=True,
            adapter="a" if index % 3 == 0 else None,
        )
        for index in range(len(PROMPTS))
    ]


def outputs(engine: Engine | Fleet, adapter: Path) -> list[object]:
    engine.load_adapter("a", adapter)
    results = engine.generate(PROMPTS, wanted())
    assert isinstance(results, list) and all(isinstance(one, Result) for one in results)
    assert all(result.prefill != "fast" for result in results)
    return [(result.outputs[0].token_ids, result.outputs[0].logprobs) for result in results]


@pytest.mark.parametrize(("kind", "scheme"), [("gpt2", "fp16"), ("opt", "w8a8"), ("llama", "w4a8")])
def test_texts_move_or_stay_with_an_exact_workers_k_and_v(
    tmp_path: Path, kind: str, scheme: str
) -> None:
    folder = written(kind, scheme, tmp_path)
    _, adapter = adapter_of(folder)
    with Engine(folder, max_adapters=1, **OPTIONS) as engine:
        want = outputs(engine, adapter)
    content = tmp_path / "fleet.yaml"
    for clusters in ("[{boards: 2}]", "[]"):
        content.write_text(f'workers: [{{prefill: "torch:cpu"}}]\nclusters: {clusters}\n')
        with Fleet.open(content, model=folder, max_adapters=1, **OPTIONS) as fleet:
            assert outputs(fleet, adapter) == want
            use = fleet.use
            assert use.prefilled_by_workers == use.ended == len(PROMPTS) and not use.fast
            assert use.moved if clusters != "[]" else use.by_workers == len(PROMPTS)
