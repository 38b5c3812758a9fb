# SPDX-License-Identifier: Apache-2.0
"""Tokens of LLaMA2-7B, of random weights, on simulated cards of 32 channels: the logits of emulated
boards, and the cycles that pages quote. A layer on 32 channels, one of an eighth of its width on
four; a whole token."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lora_lab.synth.folder import synthesize
from lora_sdk.model.shapes import shape_json
from lora_sdk.quant.recipe import Recipe
from tests.processes import environment
from tests.rtl.card_build import build
from tests.rtl.column_overlays import channel_cards, column_overlay
from tests.rtl_rig import ROOT
from tests.unit import simulated_layer

pytestmark = pytest.mark.rtl
WIDE, CHANNELS = "lora_channels_u280", 32
RECIPE = Recipe("w4a8", group=128, head="w8", kv="int8")
# Of four channels: each has an eighth of the lines, and other units an eighth of the columns.
EIGHTH = {
    "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 4,
    "num_key_value_heads": 4,
}  # fmt: skip
SLACK = 0.05  # of the timing model
HOURS = 3  # half an hour of an idle core


def cards() -> Path:
    """Cards as `make -C csrc/sim CHANNELS=32` builds them."""
    return build(ROOT / "build" / "rtl" / f"wide_{CHANNELS}", CHANNELS=CHANNELS)


def layer(tmp_path: Path, **other: int) -> Path:
    """A layer of LLaMA2-7B, and an lm_head of few columns; `other` fields of config.json."""
    one = {"num_hidden_layers": 1, "vocab_size": 512, **other}
    (tmp_path / "config.json").write_text(json.dumps(shape_json("llama2-7b") | one))
    synthesize(tmp_path / "config.json", tmp_path / "model", seed=0, recipe=RECIPE)
    return tmp_path / "model"


def token(folder: Path, overlay: str, *options: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.rtl.whole_token", str(folder), overlay, *map(str, options)],
        cwd=ROOT, capture_output=True, text=True, timeout=HOURS * 3600,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def simulated(folder: Path, overlay: str, library: Path, *options: object) -> dict[str, Any]:
    """The token on simulated cards: what emulated boards have, and the modelled cycles."""
    emulated = token(folder, overlay, *options)
    found = token(folder, overlay, "--library", library, *options)
    print(f"\nsimulated: {found}")
    assert {name: found[name] for name in emulated} == emulated
    if "modelled" in found:
        assert found["cycles"] == pytest.approx(found["modelled"], rel=SLACK)
    return found


@pytest.mark.long
def test_a_token_of_llama2_7b(tmp_path: Path) -> None:
    folder = tmp_path / "llama2-7b"
    synthesize("llama2-7b", folder, seed=0, recipe=RECIPE)
    found = simulated(folder, WIDE, cards())
    assert found["logits"] == 32000
    assert 0.98 * simulated_layer.TOKEN < found["cycles"] <= simulated_layer.TOKEN


@pytest.mark.long
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("boards", "rows"), simulated_layer.LAYERS)
def test_layers_that_tokens_are_derived_from(
    boards: int, rows: int, layers: int, tmp_path: Path
) -> None:
    """With links of 51.2 Gb/s and cables between boards."""
    folder = layer(tmp_path, num_hidden_layers=layers, vocab_size=32000)
    found = simulated(folder, WIDE, cards(), "--boards", boards, "--rows", rows)
    assert found["logits"] == 32000 * rows
    assert found["cycles"] == simulated_layer.LAYERS[boards, rows][layers - 1]


@pytest.mark.slow
def test_a_layer_of_llama2_7b(tmp_path: Path) -> None:
    found = simulated(layer(tmp_path), WIDE, cards())
    assert found["cycles"] == simulated_layer.STATIC["cycles"]
    assert found["modelled"] == simulated_layer.STATIC["modelled"]


def test_four_channels_take_an_eighth_of_the_width_in_the_layers_cycles_by_ratio(
    tmp_path: Path,
) -> None:
    """By the ratio of the cycles that the model has for both."""
    overlay = column_overlay(tmp_path / "four", 4)
    found = simulated(layer(tmp_path, **EIGHTH), str(overlay), channel_cards(4))
    whole = simulated_layer.STATIC
    ratio = found["modelled"] / whole["modelled"]
    assert found["cycles"] == pytest.approx(ratio * whole["cycles"], rel=0.1)
