# SPDX-License-Identifier: Apache-2.0
"""A whole token of LLaMA2-7B, of random weights, on a simulated card of 32 channels: the logits of
an emulated board, and the cycles that pages quote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lora_lab.synth.folder import synthesize
from lora_sdk.quant.recipe import Recipe
from tests.rtl.card_build import build
from tests.rtl.whole_token import CHANNELS
from tests.rtl_rig import ROOT
from tests.unit import simulated_layer

pytestmark = [pytest.mark.rtl, pytest.mark.long]
HOURS = 3  # half an hour of an idle core


def token(folder: Path, *library: Path) -> dict[str, Any]:
    places = [str(ROOT / name) for name in ("sdk", "host", ".")]
    found_by = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.rtl.whole_token", str(folder), *map(str, library)],
        cwd=ROOT, capture_output=True, text=True, timeout=HOURS * 3600,
        env={**os.environ, "PYTHONPATH": found_by},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_token_of_llama2_7b(tmp_path: Path) -> None:
    folder = tmp_path / "llama2-7b"
    synthesize("llama2-7b", folder, seed=0, recipe=Recipe("w4a8", group=128, head="w8", kv="int8"))
    library = build(ROOT / "build" / "rtl" / f"wide_{CHANNELS}", CHANNELS=CHANNELS)
    emulated, simulated = token(folder), token(folder, library)
    print(f"\nsimulated: {simulated}")
    assert emulated["logits"] == 32000
    assert {name: simulated[name] for name in emulated} == emulated
    assert simulated["cycles"] == pytest.approx(simulated["modelled"], rel=0.05)
    assert simulated["cycles"] == simulated_layer.TOKEN
