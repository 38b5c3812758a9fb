"""Folders of other tools on boards: the same bytes over boards, and 4-bit weights with FP16
activations give the very logits of a folder that holds them dequantized."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.drive import Driver, Logits, open_runner
from tests.unit.test_smoothquant_opt import export, folder

PACKED = Path(__file__).parents[1] / "fixtures" / "packed"
TOKENS = list(range(3, 40))
PARTS = ("qweight", "qzeros", "scales", "g_idx")


def logits(model: Path, boards: int, kernels: str = "native") -> Logits:
    with open_runner(model, boards, kernels=kernels, sequences=1) as runner:
        return Driver(runner).feed(0, TOKENS, (20, 1))


def dequantized(packed: Path, target: Path) -> Path:
    """The same model with the FP16 weights that were packed."""
    tensors = load_file(packed / "model.safetensors")
    tensors = {n: t for n, t in tensors.items() if n.rpartition(".")[2] not in PARTS}
    expected = np.load(packed / "expected.npz")
    for module in expected.files:
        tensors[f"model.layers.0.{module}.weight"] = np.ascontiguousarray(expected[module])
    save_file(tensors, target / "model.safetensors")
    config = json.loads((packed / "config.json").read_text())
    del config["quantization_config"]
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize("name", ["gptq_v1", "gptq_v1_words", "gptq_v2", "awq"])
def test_packed_weights_give_the_logits_of_their_values(name: str, tmp_path: Path) -> None:
    got, want = logits(PACKED / name, 2), logits(dequantized(PACKED / name, tmp_path), 1)
    assert np.array_equal(got, want)


def test_act_order_is_the_same_sums_in_another_order(tmp_path: Path) -> None:
    model = PACKED / "gptq_act_order"
    got, want = logits(model, 2), logits(dequantized(model, tmp_path), 1)
    assert np.array_equal(got, logits(model, 1, "numpy"))
    assert np.abs(got - want).max() < 0.005 * want.std()  # sums run in the groups' order


def test_smoothquants_export_is_the_same_over_boards_and_kernels(tmp_path: Path) -> None:
    model = folder(tmp_path, export())
    want = logits(model, 1, "numpy")
    assert np.isfinite(want).all() and want.std() > 0
    for boards, kernels in ((1, "native"), (2, "native"), (4, "numpy")):
        assert np.array_equal(logits(model, boards, kernels), want)
