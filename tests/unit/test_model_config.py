"""config.json -> ModelConfig: what is read, what is refused and how it is said."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.model.config import load_config
from lora_sdk.model.spec import ModelConfig, RopeConfig
from tests.variants import VARIANTS, Variant, variant


def load(folder: Path, fields: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(fields))
    return load_config(folder)


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return {**variant(name).config, **fields}


@pytest.mark.parametrize("which", VARIANTS, ids=lambda which: which.name)
def test_variants_load_silently(which: Variant, tmp_path: Path, caplog: Any) -> None:
    config = load(tmp_path, which.config)
    assert config.heads * config.head_dim and config.heads % config.kv_heads == 0
    assert caplog.records == []


def test_gpt2_defaults_are_those_of_gpt2_small(tmp_path: Path) -> None:
    config = load(tmp_path, {"model_type": "gpt2"})
    assert (config.layers, config.hidden, config.heads, config.head_dim) == (12, 768, 12, 64)
    assert (config.ffn, config.vocabulary, config.positions) == (3072, 50257, 1024)
    assert config.tied and config.activation == "gelu_tanh" and config.norm_eps == 1e-5
    assert config.position_rows == 1024 and config.position_offset == 0


def test_opt_shapes(tmp_path: Path) -> None:
    post = load(tmp_path, variant("opt_post_norm").config)
    assert not post.norm_first and not post.final_norm and post.embed_dim == 80
    assert post.position_rows == post.positions + 2 and post.position_offset == 2
    plain = load(tmp_path, variant("opt_plain").config)
    assert not plain.norm_affine and not plain.qkv_bias and plain.final_norm
    assert not load(tmp_path, variant("opt_no_final_norm").config).final_norm


def test_llama_head_dim_given_or_derived(tmp_path: Path) -> None:
    assert load(tmp_path, variant("llama").config).head_dim == 16
    config = load(tmp_path, variant("llama_gqa_tied").config)
    assert (config.head_dim, config.kv_heads, config.tied) == (32, 4, True)


def test_attention_scale_is_one_rounding_of_the_double(tmp_path: Path) -> None:
    config = load(tmp_path, variant("gpt2_layer_scale").config)
    assert config.attention_scale(2) == np.float32(1 / math.sqrt(16) / 3)
    assert config.attention_scale(2).dtype == np.float32
    unscaled = load(tmp_path, variant("gpt2_unscaled").config)
    assert unscaled.attention_scale(1) == 1.0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, RopeConfig("default", 10000.0)),
        ({"rope_theta": 5e5}, RopeConfig("default", 5e5)),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
            RopeConfig("default", 7.0),
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 8}, "rope_theta": 3.0},
            RopeConfig("linear", 3.0, 8.0),
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 99,
                }
            },
            RopeConfig("llama3", 10000.0, 8.0, 1.0, 4.0, 99),
        ),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                }
            },
            RopeConfig("llama3", 10000.0, 8.0, 1.0, 4.0, 384),
        ),
    ],
)
def test_rope_old_and_new_spelling(
    tmp_path: Path, fields: dict[str, Any], expected: RopeConfig
) -> None:
    assert load(tmp_path, changed("llama", **fields)).rope == expected


REFUSED = [
    ("llama", {"sliding_window": 100}, "sliding_window"),
    ("llama", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ("llama", {"rope_scaling": {"rope_type": "proportional", "factor": 2.0}}, "rope_type"),
    ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "short_factor"),
    ("llama", {"rope_parameters": {"type": "default", "factor": 2.0}}, "factor is 2.0"),
    ("llama", {"rope_parameters": {"type": "linear", "factor": 2.0, "beta_fast": 3}}, "beta_fast"),
    (
        "llama",
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor",
    ),
    ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "full_attention"),
    (
        "llama",
        {"rope_parameters": {"type": "linear", "factor": 2.0, "attention_factor": 2.0}},
        "attention_factor",
    ),
    ("llama", {"rope_parameters": {"type": "linear"}}, "factor"),
    (
        "llama",
        {
            "rope_scaling": {"type": "linear", "factor": 2.0},
            "rope_parameters": {"type": "linear", "factor": 4.0},
        },
        "rope_scaling",
    ),
    ("llama", {"partial_rotary_factor": 0.25}, "partial_rotary_factor"),
    ("llama", {"rope_interleaved": True}, "rope_interleaved"),
    ("llama", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ("llama", {"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act"),
    ("llama", {"num_local_experts": 8}, "num_local_experts"),
    ("llama", {"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
    ("llama", {"num_key_value_heads": 4}, "num_key_value_heads"),
    ("llama", {"head_dim": 15}, "head_dim"),
    ("llama", {"hidden_size": 145}, "hidden_size"),
    ("llama", {"hidden_size": "144"}, "hidden_size"),
    ("llama", {"num_hidden_layers": 0}, "num_hidden_layers"),
    ("llama", {"num_hidden_layers": True}, "num_hidden_layers"),
    ("llama", {"rms_norm_eps": -1}, "rms_norm_eps"),
    ("llama", {"rms_norm_eps": float("nan")}, "rms_norm_eps"),
    ("llama", {"rope_theta": 0}, "rope_theta"),
    ("llama", {"eos_token_id": "</s>"}, "eos_token_id"),
    ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings"),
    ("gpt2", {"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention"),
    ("gpt2", {"activation_function": "tanh"}, "activation_function"),
    ("gpt2", {"n_head": 5}, "n_embd"),
    ("opt", {"activation_function": "silu"}, "activation_function"),
    ("opt", {"word_embed_proj_dim": -3}, "word_embed_proj_dim"),
    ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
    ("mistral", {"sliding_window": True}, "sliding_window is True"),
    ("mistral", {"sliding_window": 64, "use_sliding_window": False}, "use_sliding_window is False"),
    ("mistral", {"sliding_window": 64, "layer_types": ["full_attention"] * 2}, "layer_types"),
    ("mistral", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
]


@pytest.mark.parametrize(("name", "fields", "named"), REFUSED)
def test_other_arithmetic_is_refused_by_name(
    tmp_path: Path, name: str, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path, changed(name, **fields))
    assert named in str(caught.value) and "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_window_that_is_never_reached_is_no_window(tmp_path: Path) -> None:
    assert load(tmp_path, changed("mistral", sliding_window=384)).windows == ()
    assert load(tmp_path, changed("mistral", sliding_window=383)).windows == (383, 383)
    assert load(tmp_path, changed("mistral", sliding_window=None)).windows == ()


def test_mistral_without_the_field_has_its_default_window(tmp_path: Path) -> None:
    fields = changed("mistral", max_position_embeddings=8192)
    del fields["sliding_window"]
    assert load(tmp_path, fields).windows == (4096, 4096)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_type": "newnet"}, "'newnet' is not supported; docs/reference/models.md lists"),
        ({"model_type": "qwen_2"}, "did you mean 'qwen2'"),
        ({"model_type": "newnet", "num_experts": 8}, "'newnet': a mixture of experts: not"),
        ({"model_type": "newnet", "is_encoder_decoder": True}, "an encoder and a decoder"),
        (
            {"model_type": "newnet", "vision_config": {}, "n_routed_experts": 4},
            "image inputs and a mixture of experts: not supported",
        ),
        ({"model_type": "newnet", "state_size": 16}, "state-space layers"),
        ({"model_type": "newnet", "num_experts": 1, "alibi": True}, "is not supported; docs/"),
        ({"model_type": "x" * 500}, "is not supported; docs/"),
    ],
)
def test_an_unknown_type_is_refused_by_the_feature_that_is_missing(
    tmp_path: Path, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path, fields)
    text = str(caught.value)
    assert said in text and "gpt_bigcode" not in text and len(text) < 400 and "\n" not in text


def test_a_type_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="model_type"):
        load(tmp_path, {"model_type": ["gpt2"]})


def test_unknown_fields_warn_once_by_name(tmp_path: Path, caplog: Any) -> None:
    fields = changed("llama", shiny_new_option=3, embd_pdrop=0.1, none_at_all=None)
    with caplog.at_level(logging.WARNING):
        load(tmp_path, fields)
        load(tmp_path, fields)
    assert [record.getMessage().count("shiny_new_option") for record in caplog.records] == [1]
    assert "embd_pdrop" not in caplog.text and "none_at_all" not in caplog.text


HUB_FIELDS = {
    "gpt2": "attn_pdrop embd_pdrop n_ctx resid_pdrop summary_type task_specific_params _num_labels",
    "opt": "_name_or_path activation_dropout attention_dropout init_std layerdrop prefix use_cache",
    "llama": "pretraining_tp max_sequence_length attention_dropout torch_dtype is_llama_config",
    "mistral": "initializer_range use_cache transformers_version _attn_implementation_autoset",
}


@pytest.mark.parametrize("name", HUB_FIELDS)
def test_fields_of_well_known_models_are_known(tmp_path: Path, name: str, caplog: Any) -> None:
    load(tmp_path, changed(name, **dict.fromkeys(HUB_FIELDS[name].split(), 1)))
    assert caplog.records == []


def test_ids_come_from_both_files(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6], "pad_token_id": 0}')
    config = load(tmp_path, changed("llama", bos_token_id=1, eos_token_id=2, pad_token_id=-1))
    assert (config.bos, config.eos, config.pad) == (1, (5, 6), 0)
    assert load(tmp_path, changed("llama", eos_token_id=[7])).eos == (5, 6)


def test_an_end_beyond_the_vocabulary_is_left_out_with_a_notice(
    tmp_path: Path, caplog: Any
) -> None:
    size = variant("llama").config["vocab_size"]
    assert load(tmp_path, changed("llama", eos_token_id=[3, size - 1])).eos == (3, size - 1)
    assert caplog.records == []
    for _ in range(2):
        assert load(tmp_path, changed("llama", eos_token_id=[3, size])).eos == (3,)
    (notice,) = caplog.messages
    beyond = f"{size} is beyond the vocabulary of {size} tokens and ends no text"
    assert notice.endswith(f"config.json: eos_token_id {beyond}")
    (tmp_path / "generation_config.json").write_text(f'{{"eos_token_id": {size + 7}}}')
    assert load(tmp_path, changed("llama", eos_token_id=2)).eos == (2,)
    assert "generation_config.json: eos_token_id" in caplog.messages[-1]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN', "\xff", "[" * 100_000])
def test_malformed_json_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"config\.json") as caught:
        load_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_config_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json: not found"):
        load_config(tmp_path)
