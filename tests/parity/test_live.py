"""The same comparison with the transformers that is installed, and the fixtures against it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from tests.oracle import Oracle, load_weights
from tests.parity.reference import reference_logits
from tests.parity.score import SCALES, load_fixture, prompts, score, summarize
from tests.position_configs import ROPE_CONFIGS
from tests.variants import VARIANTS, Scale, Variant, variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("which", VARIANTS, ids=lambda which: which.name)
def test_transformers_agrees_now(which: Variant, scale: Scale, tmp_path: Path) -> None:
    folder = write_checkpoint(which, tmp_path, scale)
    tokens = prompts(which)
    margins: list[NDArray[np.float32]] = []
    logits = reference_logits(folder, tokens, margins=margins)
    fixture = load_fixture(which.name)
    now = {f"{scale}_{key}": a for key, a in summarize(logits, margins).items()}
    theirs = {**fixture, **now}
    checkpoint = Checkpoint.open(folder)
    oracle = Oracle(checkpoint.config, load_weights(checkpoint))
    found = score([oracle.logits(prompt) for prompt in tokens], theirs, scale)
    assert found.passes(scale), found
    # The committed results are transformers' own: only its summation order may differ today.
    error = np.abs(theirs[f"{scale}_logits"] - fixture[f"{scale}_logits"]).max()
    assert error < 1e-4 * float(fixture[f"{scale}_std"])


@pytest.mark.parametrize("name", ROPE_CONFIGS)
def test_a_prompt_as_long_as_the_context_has_its_factors(name: str, tmp_path: Path) -> None:
    """Without the reference's fixed factors transformers has these by the prompt's length."""
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    tokens = prompts(variant(name))[:1]
    fixed, free = (reference_logits(folder, tokens, fixed=fixed)[0] for fixed in (True, False))
    assert np.abs(fixed - free).max() < 1e-4 * fixed.std()
