"""Every type of tensor and every architecture that llama.cpp's own writer has, and its mixtures in
each family: a file loads, or is refused in one line that names why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.partition import Partition
from lora_sdk.plan.tensors import matrix_specs
from tests.gguf_files import ARCHITECTURES, as_f16, write_gguf
from tests.variants import VARIANTS, Variant, variant

KINDS = gguf.GGMLQuantizationType
SUPPORTED = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K",
             "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"}  # fmt: skip
FAMILIES = {one.config["model_type"]: one for one in reversed(VARIANTS)}
MIXTURES = {  # llama.cpp's, by what a tensor's name holds; rows of no whole blocks are Q8_0
    "Q4_K_M": {"attn_v": "Q6_K", "attn_qkv": "Q5_K", "ffn_down": "Q6_K", "token_embd": "Q6_K",
               "output": "Q6_K", "": "Q4_K"},
    "Q5_K_S": {"token_embd": "Q6_K", "output": "Q6_K", "": "Q5_K"},
    "Q3_K_M": {"attn_v": "Q5_K", "ffn_down": "Q4_K", "output": "Q6_K", "": "Q3_K"},
    "Q2_K": {"attn_v": "Q4_K", "ffn_down": "Q3_K", "output": "Q6_K", "": "Q2_K"},
    "Q4_0": {"output": "Q6_K", "": "Q4_0"},
    "IQ4_NL": {"ffn_down": "Q5_0", "output": "Q6_K", "": "IQ4_NL"},
}  # fmt: skip


def filled(data: Any, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Rows in this type, all bytes 0: there is no quantizer of each."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    return np.zeros((*data.shape[:-1], data.shape[-1] // weights * size), np.uint8)


def of_whole_blocks(which: Variant) -> Variant:
    """The same features with rows of 256 and 512."""
    sizes = {"hidden_size": 256, "n_embd": 256, "d_model": 256, "num_attention_heads": 8,
             "n_head": 8, "n_heads": 8, "head_dim": 32, "intermediate_size": 512,
             "n_inner": 512, "num_kv_heads": 8, "moe_intermediate_size": 256,
             "shared_expert_intermediate_size": 512, "shared_intermediate_size": 512}  # fmt: skip
    config = {key: sizes.get(key, value) for key, value in which.config.items()}
    heads = which.config.get("num_key_value_heads")
    if heads is not None:
        config["num_key_value_heads"] = 1 if heads == 1 else 4
    return replace(which, config=config)


@pytest.fixture(autouse=True)
def empty_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tensors hold does not matter here, but their types and sizes."""
    monkeypatch.setattr("tests.gguf_files.packed", filled)


def loads(path: Path) -> Checkpoint:
    """The opened file, of which each part of a matrix that boards would have can be read."""
    checkpoint = Checkpoint.open(path)
    config = checkpoint.config
    for spec in matrix_specs(config, Partition(config, 1).share(0)):
        for part in spec.parts:
            if spec.streamed and spec.format.weights.columns is not None:
                checkpoint.part(part.tensor, 0, part.width)
    return checkpoint


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_type_loads_or_is_refused_by_name(
    kind: gguf.GGMLQuantizationType, tmp_path: Path
) -> None:
    config = dict(
        variant("llama_narrow").config, hidden_size=256, intermediate_size=256, num_hidden_layers=1
    )

    def types(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
        return kind if "ffn_down" in name else as_f16(name, array)

    path = write_gguf(Variant("llama_narrow", config), tmp_path / "a.gguf", types)
    if kind.name in SUPPORTED:
        loads(path)
        return
    with pytest.raises(ModelError, match=rf"ffn_down\.weight has the type {kind.name}, which is"):
        loads(path)


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("family", sorted(ARCHITECTURES))
def test_each_familys_mixtures_load(family: str, mixture: str, tmp_path: Path) -> None:
    def types(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
        if array.ndim < 2 or "position" in name or name.endswith(".bias"):
            return KINDS.F32
        chosen = next(kind for part, kind in MIXTURES[mixture].items() if part in name)
        for one in (chosen, "Q8_0"):
            if array.shape[-1] % gguf.GGML_QUANT_SIZES[KINDS[one]][0] == 0:
                return KINDS[one]
        return KINDS.F16

    checkpoint = loads(write_gguf(of_whole_blocks(FAMILIES[family]), tmp_path / "a.gguf", types))
    assert checkpoint.config.quantization is not None


KNOWN = {gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[one]] for one in ARCHITECTURES.values()}
OTHERS = set(gguf.MODEL_ARCH_NAMES.values()) - KNOWN - {"clip-vision"}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_each_other_architecture_is_refused_by_name(name: str, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", name)
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=rf"general\.architecture is '{name}'") as caught:
        Checkpoint.open(tmp_path / "a.gguf")
    assert "\n" not in str(caught.value)
