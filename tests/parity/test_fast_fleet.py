"""Fleets with workers of transformers: labelled, and the texts of one engine with such a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_cluster import Fleet
from lora_host import abi
from lora_sdk import Engine, Result, SamplingParams
from tests.recovery_rig import inject
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(90)]
PARAMS = SamplingParams(max_tokens=60, logprobs=2, ignore_eos=True)


def outputs(results: Result | list[Result]) -> list[object]:
    assert isinstance(results, list)
    assert [result.prefill for result in results] == ["fast"] * len(results)
    return [result.outputs[0].logprobs for result in results]


def test_requests_move_with_a_fast_workers_k_and_v(tmp_path: Path) -> None:
    """Also where the cluster's boards are recovered in the middle of the text."""
    folder = write_checkpoint(variant("llama_narrow"), tmp_path / "model", "x3")
    options = {"threads": 1, "max_sequences": 3, "context": 256}
    prompts = [TOKENS, TOKENS[3:40], TOKENS[7:]]
    with Engine(folder, prefill="cpu", prefill_mode="fast", **options) as engine:
        want = outputs(engine.generate(prompts, PARAMS))
    content = tmp_path / "fleet.yaml"
    content.write_text(
        "workers: [{prefill: cpu, prefill_mode: fast}]\nclusters: [{boards: 2, requests: 3}]\n"
    )
    with Fleet.open(content, model=folder, **options) as fleet:
        assert outputs(fleet.generate(prompts, PARAMS)) == want
        assert fleet.use.fast == 3 and fleet.use.moved >= 1
        cluster = fleet.places[1].engine
        stream = fleet.stream(TOKENS, PARAMS)
        found = []
        for delta in stream:
            found.append(delta.logprobs)
            if len(found) == 20 and fleet.places[1].tickets:
                inject(cluster, 1, abi.FAULT_FIRMWARE_DEAD)
        assert found == list(want[0])  # type: ignore[call-overload]
        assert len(cluster.recoveries) == 1
    with Fleet([], [Engine(folder, boards=2, **options)]) as fleet:
        exact = fleet.generate(TOKENS, PARAMS)
        assert isinstance(exact, Result) and exact.prefill is None and fleet.use.fast == 0
