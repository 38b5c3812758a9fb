"""`lora eval` against transformers on the models that ship: the same text, the same windows, every
byte counted."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parity.reference import reference_logits
from tests.processes import ROOT, environment

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

CONTEXT, STRIDE, TEXT_BYTES = 512, 256, 9000
LORA = "from lora_sdk.cli.main import main; main()"


def transformers_bits_per_byte(folder: Path, text: str) -> float:
    """Windows of CONTEXT tokens; in all but the first the last STRIDE tokens count."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = np.array([tokenizer.bos_token_id, *tokenizer.encode(text, add_special_tokens=False)])
    bits, counted, end = 0.0, 1, 0
    while counted < len(ids):
        end = min(len(ids), CONTEXT + 1 if end == 0 else end + STRIDE)
        start = max(0, end - CONTEXT - 1)
        (logits,) = reference_logits(folder, [ids[start : end - 1]])
        wide = logits.astype(np.float64)
        norm = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
        for token in range(counted, end):
            row = token - 1 - start
            bits -= (wide[row, ids[token]] - norm[row]) / math.log(2)
        counted = end
    return bits / len(text.encode())


@pytest.mark.parametrize("name", ["demo", "demo_draft"])
def test_bits_per_byte_within_half_a_percent(name: str, tmp_path: Path) -> None:
    data = (ROOT / "tests" / "data" / "heldout.txt").read_bytes()[:TEXT_BYTES]
    text = data.decode("utf-8", errors="ignore")
    file = tmp_path / "text.txt"
    file.write_text(text, encoding="utf-8", newline="")
    folder = ROOT / "models" / name
    arguments = ["eval", "--model", str(folder), "--text", str(file), "--json", "--boards", "2"]
    windows = ["-c", str(CONTEXT), "--stride", str(STRIDE)]
    done = subprocess.run(
        [sys.executable, "-c", LORA, *arguments, *windows],
        capture_output=True,
        check=False,
        env={**environment(), "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1")},
    )
    assert done.returncode == 0, done.stderr.decode()
    ours = json.loads(done.stdout)["bits_per_byte"]
    theirs = transformers_bits_per_byte(folder, text)
    assert ours == pytest.approx(theirs, rel=0.005)
    assert 0.5 < theirs < 2.0
