"""GPT-OSS in MXFP4 beside transformers, which reads the folder by itself, in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.drive import Driver, open_runner
from tests.mxfp4_folders import write_mxfp4
from tests.parity.reference import reference_logits
from tests.parity.score import BOUND, first_tokens
from tests.variants import variant

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]


@pytest.mark.parametrize("name", ["gpt_oss", "gpt_oss_single"])
def test_boards_agree_with_transformers(name: str, tmp_path: Path) -> None:
    folder, _ = write_mxfp4(variant(name), tmp_path)
    tokens = first_tokens(name, 60)
    margins: list[np.ndarray] = []
    (theirs,) = reference_logits(folder, [np.array(tokens)], margins=margins)
    with open_runner(folder, 2, sequences=1) as runner:
        ours = Driver(runner).feed(0, tokens, (16, 1, 7))
    near = np.min(margins, axis=0) < 0.004  # an expert may be another's choice, then
    error = np.abs(ours - theirs).max(axis=1) / theirs.std()
    assert near.mean() < 0.1 and error[~near].max() < BOUND["x3"], error
