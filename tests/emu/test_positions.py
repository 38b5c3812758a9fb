"""Scaled rotary positions and sliding windows on boards. The engine's context decides about
longrope and dynamic NTK at open, and nothing later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_host.cluster_file import BoardEntry, ClusterFile
from lora_sdk import Engine
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.rope import at_context
from lora_sdk.opening.opening import open_model, replan
from lora_sdk.opening.options import EngineOptions
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import write_quantized
from tests.drive import Driver, Logits, open_runner
from tests.oracle import Oracle, load_weights
from tests.parity.score import prompts
from tests.position_configs import WINDOW_CONFIGS
from tests.variants import variant, write_checkpoint

NAMES = ("gpt_neox_yarn", "phi3_longrope", "llama_dynamic")


def by_rules(folder: Path, tokens: list[int], context: int | None) -> Logits:
    checkpoint = Checkpoint.open(folder)
    config = at_context(checkpoint.config, context)
    return Oracle(config, load_weights(checkpoint)).logits(tokens)


@pytest.mark.parametrize("name", NAMES)
def test_boards_give_the_oracles_bytes_at_either_context(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    tokens = prompts(variant(name))[2][:40].tolist()
    found = {}
    for context in (64, None):
        wanted = by_rules(folder, tokens, context)
        for boards in (1, 4):
            with open_runner(folder, boards, context=context) as runner:
                assert Driver(runner).feed(0, tokens, (16, 1, 7)).tobytes() == wanted.tobytes()
        found[context] = wanted
    assert np.array_equal(found[64], found[None]) == name.endswith("yarn")


@pytest.mark.parametrize("name", WINDOW_CONFIGS)
def test_boards_and_kernels_give_the_oracles_bytes_with_windows(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    tokens = prompts(variant(name))[2].tolist()
    wanted = by_rules(folder, tokens, None)
    for boards in (1, 4):
        with open_runner(folder, boards) as runner:
            assert Driver(runner).feed(0, tokens, (16, 1, 41)).tobytes() == wanted.tobytes()
    with open_runner(folder, 2, kernels="numpy") as runner:
        assert Driver(runner).feed(0, tokens[:40], (40,)).tobytes() == wanted[:40].tobytes()


def test_an_engine_fixes_the_factors_and_keeps_them_on_fewer_boards(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("llama_dynamic"), tmp_path)
    with Engine(folder, boards=2, context=200) as engine:
        assert engine.config.rope is not None and engine.config.rope.context == 200
    opened = open_model(EngineOptions(folder, boards=2))
    with opened.stack:
        opened.plan = replace(opened.plan, context=150)  # as where memory holds no more
        one = ClusterFile((BoardEntry("emu:0", "a"),), (), "the boards that remain")
        _, plan = replan(opened, one, 1, 1)
    assert plan.context == 150 and plan.config.rope == opened.config.rope
    assert plan.config.rope is not None and plan.config.rope.context == 333


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral_window", "qwen2_window", "phi3_longrope"])
def test_w8a8_is_the_same_over_boards_and_near_fp16(name: str, tmp_path: Path) -> None:
    """With INT8 attention, so with windows over INT8 K and V."""
    write_quantized(name, tmp_path, Recipe("w8a8"))
    tokens, found = prompts(variant(name))[2].tolist(), []
    for folder, boards in (("plain", 1), ("quantized", 1), ("quantized", 2), ("quantized", 4)):
        with open_runner(tmp_path / folder, boards) as runner:
            found.append(Driver(runner).feed(0, tokens, (16, 1, 41)))
    plain, first, *others = found
    assert all(one.tobytes() == first.tobytes() for one in others)
    assert 0 < np.sqrt(np.square(first - plain).mean()) < 0.15 * plain.std()
