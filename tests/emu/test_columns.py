"""Overlays that place whole columns in a bank give the tokens of those that do not, also where q is
multiplied behind k and v."""

from __future__ import annotations

from pathlib import Path

from lora_sdk import Engine, SamplingParams
from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import random_windows
from tests.rtl.card_steps import llama
from tests.rtl.column_overlays import column_overlay
from tests.variants import Variant, write_checkpoint

TALL = Variant("tall", llama(192, 6, 2, 32, 320, 2))


def commands_and_tokens(model: Path, overlay: str | None) -> tuple[set[str], list[int]]:
    greedy = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    with Engine(model, 1, ["emu:u280"], speculation=None, overlay=overlay) as engine:
        (commands,) = engine.command_lists.values()
        (found,) = engine.generate([[3, 1, 4, 1, 5]], greedy)
    return {command.what for command in commands}, list(found.token_ids)


def test_columns_give_the_same_tokens(tmp_path: Path) -> None:
    plain = write_checkpoint(TALL, tmp_path / "plain")
    windows = random_windows(load_config(plain).vocabulary, count=2)
    quantize(plain, tmp_path / "w8a8", Recipe("w8a8", kv="int8"), windows)
    whole, wanted = commands_and_tokens(tmp_path / "w8a8", None)
    names, found = commands_and_tokens(
        tmp_path / "w8a8", str(column_overlay(tmp_path / "columns", 2))
    )
    assert "matrix qkv" in whole and {"matrix kv", "matrix q"} <= names
    assert found == wanted and len(set(found)) > 2
