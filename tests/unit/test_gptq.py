"""GPTQ and AWQ: integers written by the published packers give exactly the weights that went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.gptq import PackedMatrix, Packing, quantization, read_packing

FOLDERS = Path(__file__).parents[1] / "fixtures" / "packed"
NAMES = ("gptq_v1", "gptq_v1_words", "gptq_v2", "gptq_act_order", "awq")


def packing_of(name: str) -> Packing:
    config = json.loads((FOLDERS / name / "config.json").read_text())
    return read_packing(config["quantization_config"], f"{name}/config.json: quantization_config")


def matrices(name: str) -> dict[str, tuple[PackedMatrix, Any]]:
    """Module -> its packed tensors and the weights [out, in] that were packed."""
    tensors = load_file(FOLDERS / name / "model.safetensors")
    expected = np.load(FOLDERS / name / "expected.npz")
    found = {}
    for module in expected.files:
        n, k = expected[module].shape
        label = f"model.layers.0.{module}"
        parts = {part: tensors.get(f"{label}.{part}") for part in ("qweight", "qzeros", "scales")}
        g_idx = tensors.get(f"{label}.g_idx")
        matrix = PackedMatrix(
            label, packing_of(name), k, n, **parts, scales_kind="F16", g_idx=g_idx
        )
        found[module] = (matrix, expected[module])
    return found


def dequantized(matrix: PackedMatrix, start: int, stop: int) -> Any:
    """FP16 [columns, K] in the file's order of inputs."""
    part = matrix.columns(start, stop)
    group = matrix.k // part.scales.shape[1]
    z, s = (np.repeat(item.astype(np.float32), group, axis=1) for item in (part.zeros, part.scales))
    weights = ((part.values.astype(np.float32) - z) * s).astype(np.float16)
    order = matrix.permutation()
    if order is None:
        return weights
    restored = np.empty_like(weights)
    restored[:, order] = weights
    return restored


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_that_were_packed(name: str) -> None:
    for matrix, expected in matrices(name).values():
        assert np.array_equal(dequantized(matrix, 0, matrix.n), expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_range_of_columns_is_that_part_of_the_whole(name: str) -> None:
    matrix, expected = matrices(name)["mlp.up_proj"]
    for start, stop in ((0, 1), (3, 29), (32, 64), (127, 128)):
        assert np.array_equal(dequantized(matrix, start, stop), expected[start:stop])


def test_the_fixtures_have_what_they_are_for() -> None:
    """Act-order has inputs out of order; a v1 file has a zero point of 0, which borrows from its
    neighbour in the word."""
    assert np.any(np.diff(matrices("gptq_act_order")["mlp.down_proj"][0].g_idx) < 0)
    zeros = [matrix.columns(0, matrix.n).zeros for matrix, _ in matrices("gptq_v1_words").values()]
    assert any((z == 0).any() for z in zeros)
    v1, v2 = (matrices(name)["mlp.up_proj"][0] for name in ("gptq_v1", "gptq_v2"))
    assert v1.packing.v1 and not v2.packing.v1


def test_one_group_of_all_inputs_repeats_its_scale() -> None:
    words = np.zeros((8, 8), np.int32)
    zeros, scales = np.zeros((1, 1), np.int32), np.full((1, 8), 0.5, np.float16)
    matrix = PackedMatrix(
        "m", Packing(0, False, False, False, ()), 64, 8, words, zeros, scales, "F16"
    )
    assert matrix.columns(0, 8).scales.shape == (8, 1)


def test_formats_leave_out_lm_head_and_what_is_named() -> None:
    packing = Packing(32, False, False, True, ("mlp",))
    modules = {"layer.0.q": "self_attn.q_proj", "layer.0.up": "mlp.up_proj", "lm_head": "lm_head"}
    found = quantization(packing, modules, dict.fromkeys(modules, 64))
    assert dict(found.formats).keys() == {"layer.0.q"} and found.format("layer.0.q").group == 32
    assert not found.act_order


def test_routers_and_gates_of_experts_are_not_packed() -> None:
    packing = Packing(32, True, False, False, ())
    parts = {"router": "gate", "shared_gate": "shared_expert_gate",
             "expert.0.gate": "experts.0.gate_proj"}  # fmt: skip
    modules = {f"layer.0.{name}": f"model.layers.0.mlp.{part}" for name, part in parts.items()}
    found = quantization(packing, modules, dict.fromkeys(modules, 64))
    assert dict(found.formats).keys() == {"layer.0.expert.0.gate"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bits": 8}, "bits is 8, expected 4"),
        ({"bits": 3}, "bits is 3, expected 4"),
        ({"group_size": 0}, "group_size is 0"),
        ({"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin', expected one of gptq"),
        ({"desc_act": "yes"}, "desc_act"),
        ({"lm_head": True}, "lm_head is True: a packed lm_head: not supported"),
        ({"quant_method": "hqq"}, "quant_method is 'hqq', expected one of gptq, awq"),
        ({"quant_method": "awq", "version": "gemv"}, "version is 'gemv', expected gemm"),
        ({"quant_method": "awq", "zero_point": False}, "zero_point"),
    ],
)
def test_what_is_not_supported_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message.replace("(", "\\(")):
        read_packing({"quant_method": "gptq", "bits": 4, "group_size": 32} | values, "config")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"qweight": np.zeros((7, 128), np.int32)},
            "qweight: int32 \\[7, 128\\], expected int32 \\[8",
        ),
        ({"qweight": np.zeros((8, 128), np.int64)}, "qweight: int64"),
        ({"qzeros": np.zeros((2, 15), np.int32)}, "qzeros: int32 \\[2, 15\\]"),
        ({"scales": np.zeros((1, 128), np.float16)}, "scales: float16 \\[1, 128\\]"),
        ({"g_idx": np.full(64, 2, np.int32)}, "groups 2..2, expected 0..1"),
        ({"g_idx": np.arange(64, dtype=np.int32) // 33}, "group 0 has 33 inputs, expected 32"),
        ({"g_idx": np.arange(64, dtype=np.int32) % 2}, "not in order, though desc_act is false"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    good = matrices("gptq_v2")["mlp.up_proj"][0]
    with pytest.raises(ModelError, match=message):
        PackedMatrix(**{**vars(good), **change})


def test_groups_that_no_block_holds_are_refused() -> None:
    packing = Packing(16, False, False, False, ())
    with pytest.raises(ModelError, match=r"layer\.0\.q: groups of 16 along K"):
        quantization(packing, {"layer.0.q": "q"}, {"layer.0.q": 64})
    with pytest.raises(
        ModelError, match=r"layer\.0\.q: K is 96, not a multiple of its group of 64"
    ):
        quantization(Packing(64, False, False, False, ()), {"layer.0.q": "q"}, {"layer.0.q": 96})


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_opens_as_a_checkpoint(name: str) -> None:
    checkpoint = Checkpoint.open(FOLDERS / name)
    found = checkpoint.config.quantization
    assert found is not None and found.format("layer.0.down").kind == "w4a16"
    assert (found.act_order == frozenset(found.formats)) == (name == "gptq_act_order")
    matrix, _ = matrices(name)["mlp.down_proj"]
    part, whole = checkpoint.columns("layer.0.down", 8, 24), matrix.columns(8, 24)
    assert np.array_equal(part.values, whole.values)
    assert np.array_equal(part.scales, whole.scales) and np.array_equal(part.zeros, whole.zeros)
    order = checkpoint.permutation("layer.0.down")
    assert (order is not None) == (name == "gptq_act_order")
    assert checkpoint.matrix("lm_head").shape == (64, 64)


def test_a_folder_without_a_packed_tensor_names_it(tmp_path: Path) -> None:
    tensors = load_file(FOLDERS / "gptq_v2" / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.qzeros"]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((FOLDERS / "gptq_v2" / "config.json").read_text())
    with pytest.raises(ModelError, match=r"mlp\.up_proj\.qzeros: missing"):
        Checkpoint.open(tmp_path)
