"""GGUF files give the configuration and the tensors of the Hugging Face folders that they were
converted from, to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.model import gguf_sources
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from tests.gguf_files import write_gguf
from tests.variants import Variant, variant, write_checkpoint

NAMES = (
    "llama", "llama_gqa_tied", "llama_gqa_bias", "llama_linear", "llama_llama3", "llama_narrow",
    "mistral", "granite", "granite_bias_tied", "qwen2", "qwen2_gqa_tied", "qwen3",
    "qwen3_gqa_tied", "olmo2", "olmo2_gqa", "phi", "phi3", "phi3_gqa_partial", "stablelm",
    "stablelm_parallel_gqa", "starcoder2", "gpt2", "gpt_bigcode", "gpt_neox", "bloom",
    "bloom_untied", "mpt_power_of_two", "mpt", "falcon", "falcon_new",
)  # fmt: skip


def smollm3() -> Variant:
    """With every fourth layer unrotated, which the format leaves to the name."""
    config = dict(variant("smollm3").config, num_hidden_layers=4)
    del config["no_rope_layers"]
    return Variant("smollm3", config)


def mistral_window() -> Variant:
    """The converter's name does not say that it is no LLaMA."""
    return replace(variant("mistral"), config={**variant("mistral").config, "sliding_window": 40})


def scaled(name: str, rope: dict[str, Any], **fields: Any) -> Variant:
    """With other rotary positions."""
    config = {**variant(name).config, "rope_parameters": rope, **fields}
    return Variant(name, {key: one for key, one in config.items() if key not in UNSCALED})


def gemma(name: str, size: int, **fields: Any) -> Variant:
    """With the scale of scores by the size of a head, as the format has it, and a tied lm_head. In
    BF16, of which 1 + w in FP32 loses next to nothing."""
    which = variant(name)
    config = {**which.config, "tie_word_embeddings": True, **fields}
    if which.config["model_type"] != "gemma":
        config["query_pre_attn_scalar"] = size
    if config.get("attn_logit_softcapping", 1) is None:
        config["attn_logit_softcapping"] = 40.0
    return Variant(name, config, dtype="BF16")


def largest_gemma(name: str, layers: int) -> Variant:
    """llama.cpp knows the largest model by its layers: its scores are scaled otherwise."""
    config = {**variant(name).config, "num_hidden_layers": layers, "query_pre_attn_scalar": 8,
              "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 1,
              "head_dim": 16, "intermediate_size": 32, "sliding_window_pattern": 6}  # fmt: skip
    if name == "gemma2":
        del config["sliding_window_pattern"]
    return Variant(name, config, dtype="BF16")


UNSCALED = ("rope_scaling", "rope_theta")
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 96}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0,
            "short_factor": [1.0, 1.08, 1.1, 1.13, 1.2, 1.3, 1.4, 2.06],
            "long_factor": [1.1, 2.3, 4.7, 9.01, 18.6, 33.3, 64.2, 64.9]}  # fmt: skip
CASES = {
    **{name: variant(name) for name in NAMES},
    "smollm3": smollm3(),
    "mistral_window": mistral_window(),
    "yarn": scaled("llama", YARN),
    "longrope": scaled("phi3", LONGROPE, original_max_position_embeddings=96),
    "gemma": gemma("gemma", 24),
    "gemma_gqa": gemma("gemma_gqa_untied", 40),
    "gemma2": gemma("gemma2", 24),
    "gemma2_gqa": gemma("gemma2_gqa", 40),
    "gemma3": gemma("gemma3", 24),
    "gemma3_gqa": gemma("gemma3_gqa", 40),
    "gemma3_released": gemma("gemma3_gqa", 40, layer_types=None, num_hidden_layers=7),
    "gemma2_27b": largest_gemma("gemma2", 46),
    "gemma3_27b": largest_gemma("gemma3", 62),
}
ALWAYS = (
    "llama_gqa_bias",
    "llama_llama3",
    "gpt2",
    "phi3_gqa_partial",
    "gpt_neox",
    "falcon_new",
    "longrope",
    "gemma2_gqa",
    "gemma3",
    "gemma3_gqa",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ALWAYS)) for name in CASES],
)
def test_a_file_is_the_folder_it_was_converted_from(name: str, tmp_path: Path) -> None:
    which = CASES[name]
    folder = Checkpoint.open(write_checkpoint(which, tmp_path / "folder"))
    file = Checkpoint.open(write_gguf(which, tmp_path / "model.gguf"))
    assert file.config == folder.config
    assert file.names == folder.names and file.bytes == folder.bytes
    for tensor in folder.names:
        kind = "table" if tensor.startswith("embed.") else "vector"
        kind = "matrix" if kind == "vector" and len(folder.shape(tensor)) == 2 else kind
        found, wanted = getattr(file, kind)(tensor), getattr(folder, kind)(tensor)
        if file.config.one_plus and tensor.endswith("gamma"):  # 1 + w in FP32 has dropped bits
            assert np.abs(found.astype(float) - wanted.astype(float)).max() <= 2**-24, tensor
            found = wanted
        assert found.tobytes() == wanted.tobytes(), tensor


def test_more_outputs_than_any_tensor_has_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is made that is as long: 9 million heads would take all memory."""

    def many(writer: Any) -> None:
        writer.kv_data[0]["llama.attention.head_count"].value = 9 << 20

    monkeypatch.setattr(gguf_sources, "_file_order", None)
    file = write_gguf(variant("llama"), tmp_path / "heads.gguf", more=many)
    with pytest.raises(ModelError, match=r"heads.gguf: layer\.0\.q.* has \d{8,} outputs by"):
        load_config(file)
