"""Folders as llm-compressor's presets write them: what is read is what the file says, and each
error is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.float8_matrix import e4m3_values
from tests.preset_folders import PRESETS, Edit, Preset, e4m3_grid, write_preset

MODEL = "llama_linear"
Q = "model.layers.0.self_attn.q_proj"


def test_the_values_of_every_code() -> None:
    found, grid = e4m3_values(), e4m3_grid()
    assert found[:127].tobytes() == grid.tobytes() and found[128:255].tobytes() == (-grid).tobytes()
    assert np.isnan(found[[127, 255]]).all()
    assert found[126] == 448 and found[1] == 2.0**-9


def held(name: str, tmp_path: Path) -> tuple[Checkpoint, dict[str, NDArray[np.generic]]]:
    """The folder opened, and its raw tensors."""
    raw: dict[str, NDArray[np.generic]] = {}
    path = write_preset(
        MODEL, PRESETS[name], tmp_path, edit=lambda t: raw.update({k: a for k, (_, a) in t.items()})
    )
    return Checkpoint.open(path), raw


@pytest.mark.parametrize(
    ("name", "kind", "scheme"), [("w8a8", "int8", "W8A8"), ("w4a8", "w4a8", "W4A8")]
)
def test_dynamic_inputs_have_no_scale(name: str, kind: str, scheme: str, tmp_path: Path) -> None:
    checkpoint, raw = held(name, tmp_path)
    config = checkpoint.config.quantization
    assert config is not None and config.scheme == f"{scheme} dynamic"
    found = config.format("layer.1.down")
    assert found.kind == kind and found.dynamic
    assert not any(tensor.endswith("input_scale") for tensor in raw)
    assert not checkpoint.activation_scales().inputs
    with pytest.raises(ModelError, match="has no static scale of its inputs"):
        checkpoint.input_scale("layer.1.down")


@pytest.mark.parametrize("name", ["fp8", "fp8_dynamic", "fp8_block"])
def test_fp8_is_one_product_rounded_to_fp16(name: str, tmp_path: Path) -> None:
    checkpoint, raw = held(name, tmp_path)
    config = checkpoint.config.quantization
    assert config is not None and config.scheme == "FP8"
    for module, matrix in ((Q, "layer.0.q"), ("model.layers.1.mlp.down_proj", "layer.1.down")):
        codes, scales = raw[f"{module}.weight"], raw[f"{module}.weight_scale"]
        for first, count in ((0, codes.shape[0]), (45, 9)):
            read = checkpoint.columns(matrix, first, first + count).dense()
            for row in range(count):
                for k in (0, 39, 40, codes.shape[1] - 1):
                    at = {"fp8": (0,), "fp8_dynamic": (first + row, 0)}.get(
                        name, ((first + row) // 48, k // 40)
                    )
                    code = int(codes[first + row, k])  # type: ignore[call-overload]
                    value = e4m3_grid()[code & 127] * (-1 if code > 127 else 1)
                    want = np.float32(np.float16(np.float32(value) * scales[at]))
                    assert read[row, k] == want


def test_four_bits_in_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    checkpoint, raw = held("w4afp8", tmp_path)
    config = checkpoint.config.quantization
    assert config is not None and config.format("layer.0.q").kind == "w4a16"
    found = checkpoint.columns("layer.0.q", 3, 50)
    assert np.array_equal(found.values, raw[f"{Q}.weight"][3:50] + 8)  # type: ignore[operator]
    assert (found.zeros == 8).all()
    assert np.array_equal(found.scales, raw[f"{Q}.weight_scale"][3:50])


def test_zero_points_in_bytes(tmp_path: Path) -> None:
    preset = Preset("int-quantized", "int", 4, "group", None, (32,), symmetric=False)

    def zeros(tensors: dict[str, tuple[str, NDArray[np.generic]]]) -> None:
        for name in [name for name in tensors if name.endswith("_scale")]:
            shape = tensors[name][1].shape
            drawn = np.random.default_rng(3).integers(-8, 8, shape)
            tensors[name.replace("scale", "zero_point")] = ("I8", drawn.astype(np.int8))
        kept.append(tensors[f"{Q}.weight_zero_point"][1])

    kept: list[NDArray[np.generic]] = []
    checkpoint = Checkpoint.open(write_preset(MODEL, preset, tmp_path, edit=zeros))
    zeros_read = checkpoint.columns("layer.0.q", 3, 50).zeros
    assert np.array_equal(zeros_read, kept[0][3:50] + 8)  # type: ignore[operator]


def test_static_scales_of_k_and_v_alone_mean_scales_by_head(tmp_path: Path) -> None:
    path = write_preset(MODEL, PRESETS["fp8"], tmp_path, kv=True)
    found = load_config(path).quantization
    assert found is not None and found.kv == "int8-heads"
    Checkpoint.open(path)  # k_scale and v_scale are in the files, and unused


def put(name: str, kind: str, array: NDArray[np.generic]) -> Edit:
    return lambda tensors: tensors.__setitem__(f"{Q}.{name}", (kind, array))


NAN = np.full((512, 128), 0x7F, np.uint8)
BAD: list[tuple[str, Edit, str]] = [
    ("fp8", put("weight", "F8_E4M3", NAN), f"{Q}.weight: 65536 weights are nan"),
    ("fp8", put("weight_scale", "F32", np.full(1, 1e6, np.float32)), "out of FP16's range"),
    ("fp8", put("weight_scale", "F32", np.full(1, -1, np.float32)), "a scale is -1.0"),
    ("fp8", put("weight", "I8", NAN.view(np.int8)), r"weight: dtype I8 in .*expected F8_E4M3"),
    ("fp8", put("weight", "F8_E4M3", NAN[:, :64]), r"weight: shape \[512, 64\]"),
    ("fp8", put("weight_scale", "F32", np.ones((512, 1), np.float32)), r"shape \[512, 1\]"),
    ("fp8_block", put("weight_scale", "F32", np.ones((4, 4), np.float32)), r"shape \[4, 4\]"),
    ("w4afp8", put("weight", "I8", np.full((512, 128), 8, np.int8)), "has 8, expected 4-bit"),
    ("w4afp8", put("weight", "I8", np.full((512, 128), -9, np.int8)), "has -9, expected 4-bit"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), BAD)
def test_a_bad_tensor_is_named(name: str, spoil: Edit, message: str, tmp_path: Path) -> None:
    path = write_preset(MODEL, PRESETS[name], tmp_path, edit=spoil)
    with pytest.raises(ModelError, match=message) as raised:
        Checkpoint.open(path).columns("layer.0.q")
    assert "\n" not in str(raised.value)
