"""Speculation is lossless for quantized models, with adapters, and on long random prompts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, Result, SamplingParams, demo_model_path
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.quant.recipe import Recipe
from lora_sdk.step.tree_shape import TreeShape
from tests.adapter_folders import Folder, write_adapter
from tests.unit.test_synth import TINY
from tests.variants import variant, write_checkpoint

RECIPES = {
    "w8a8": Recipe("w8a8", kv="int8"),
    "w4a8": Recipe("w4a8", group=32, kv="int8-heads"),
}
TREES = (
    TreeShape.chain(5),
    TreeShape.by_width((3, 2, 1)),
    TreeShape(),
    TreeShape.chain(9),
    TreeShape.by_width((2, 2, 2)),
)
TEMPERATURES = (0.0, 0.5, 1.0, 1.5)


def tree_of(context: int) -> TreeShape:
    return TREES[context % len(TREES)]


def outputs(engine: Engine, prompts: list[list[int]], count: int) -> list[object]:
    """Of every prompt at every temperature, one after another."""
    found: list[object] = []
    for temperature in TEMPERATURES:
        params = SamplingParams(max_tokens=count, temperature=temperature, seed=5, ignore_eos=True)
        for prompt in prompts:
            result = engine.generate(prompt, params)
            assert isinstance(result, Result)
            found.append(result.outputs)
    return found


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("scheme", RECIPES)
def test_quantized_models(scheme: str, boards: int, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", **TINY["llama"]}))
    folder = tmp_path / "model"
    synthesize(config, folder, recipe=RECIPES[scheme])
    prompts = [[(7 * i * i + 3 * i) % 300 for i in range(30)]]
    with Engine(folder, boards) as engine:
        expected = outputs(engine, prompts, 24)
    for proposer, draft in (("draft", folder), ("lookup", None)):
        request = SpeculationOptions(proposer, draft, tree_of)
        with Engine(folder, boards, speculation=request) as engine:
            assert outputs(engine, prompts, 24) == expected
            assert proposer == "lookup" or engine.speculation.mean_emitted > 1.2


@pytest.mark.parametrize("boards", [1, 4])
def test_adapters(boards: int, tmp_path: Path) -> None:
    """Sharded adapters and rows without any, drafted by the model alone: as without drafts."""
    which = variant("llama_narrow")
    folder = write_checkpoint(which, tmp_path / "model")
    paths = {
        f"a{blocks}": write_adapter(
            which, Folder(f"a{blocks}", rank=8, blocks=blocks), tmp_path / f"a{blocks}"
        )
        for blocks in (0, 4)
    }
    prompts = [[(5 * i + k) % 280 + 3 for i in range(20)] for k in range(3)]
    each = [
        SamplingParams(max_tokens=24, adapter=name, ignore_eos=True, temperature=0.3 * k, seed=k)
        for k, name in enumerate([None, *paths])
    ]

    def run(request: SpeculationOptions | None) -> list[object]:
        with Engine(
            folder, boards, max_adapters=2, max_adapter_rank=8, speculation=request
        ) as engine:
            for name, path in paths.items():
                engine.load_adapter(name, path)
            together = engine.generate(prompts, each)
            alone = [engine.generate(p, one) for p, one in zip(prompts, each, strict=True)]
            assert isinstance(together, list)
            return [[one.outputs for one in results] for results in (together, alone)]

    assert run(SpeculationOptions("draft", folder, tree_of)) == run(None)


@pytest.mark.slow
@pytest.mark.parametrize("boards", [1, 2, 4])
@pytest.mark.parametrize("proposer", ["draft", "longspec", "eagle3", "lookup"])
def test_long_random_prompts(proposer: str, boards: int) -> None:
    demo = demo_model_path()
    folders = {"draft": "demo_draft", "longspec": "demo_draft", "eagle3": "demo_eagle3"}
    name = folders.get(proposer)
    draft = demo.parent / name if name else None
    rng = np.random.default_rng(3)
    prompts = [rng.integers(1, 4096, length).tolist() for length in (700, 333, 950)]
    prompts[2][-50:] = prompts[2][-100:-50]
    with Engine(boards=boards) as engine:
        expected = outputs(engine, prompts, 128)
    request = SpeculationOptions(proposer, draft, tree_of)
    with Engine(boards=boards, speculation=request) as engine:
        assert outputs(engine, prompts, 128) == expected
        assert engine.speculation.mean_emitted > 1.02
