"""config.json of the families in tests/family_configs.py: what is read, what is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import ModelError
from lora_sdk.model.config import load_config, model_types
from lora_sdk.model.shapes import shape_json
from lora_sdk.model.spec import LatentConfig, ModelConfig, RopeConfig, SigmoidRouting
from tests import made_up_family
from tests.family_configs import FAMILY_CONFIGS
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.moe_configs import MOE_CONFIGS
from tests.position_configs import POSITION_CONFIGS
from tools.family_table import family_table, with_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "models.md"


def load(folder: Path, fields: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(fields))
    return load_config(folder)


YARN_FIELDS = {"rope_type": "yarn", "factor": 4.0}
YARN = {"rope_parameters": None, "rope_scaling": YARN_FIELDS}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
CONFIGS = {**FAMILY_CONFIGS, **POSITION_CONFIGS, **MOE_CONFIGS, **HYBRID_CONFIGS}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen2", {"use_sliding_window": True, "sliding_window": -1}, "sliding_window is -1"),
    ("qwen2", {"use_sliding_window": True, "layer_types": ["full_attention"]}, "layer_types"),
    ("qwen2", {"use_sliding_window": True, "layer_types": ["full", "full"]}, "layer_types"),
    ("qwen2", {"max_window_layers": -1}, "max_window_layers is -1"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    (
        "qwen2",
        {"rope_scaling": {"type": "mrope", "mrope_section": [1]}},
        "mrope, rotary positions of images",
    ),
    ("qwen2", {"num_key_value_heads": 4}, "num_key_value_heads is 4"),
    ("qwen2", {"hidden_act": "gelu"}, "hidden_act"),
    ("qwen2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ("gptj", {"rotary_dim": None}, "rotary_dim is None"),
    ("gptj", {"rotary_dim": 7}, "rotary_dim is 7"),
    ("gptj", {"rotary_dim": 26}, "rotary_dim is 26"),
    ("gptj", {"rotary": False}, "rotary is False"),
    ("gptj", {"scale_attn_weights": False}, "scale_attn_weights"),
    ("gptj", {"activation_function": "tanh"}, "activation_function"),
    ("gptj", {"n_head": 5}, "n_embd is 144"),
    ("gpt_neox", {"rotary_pct": 0.1}, "rotary_pct is 0.1"),
    ("gpt_neox", {"rotary_pct": 1.5}, "rotary_pct is 1.5"),
    ("gpt_neox", {"head_dim": 16}, "head_dim is 16"),
    ("gpt_neox", {"hidden_act": "swish"}, "hidden_act"),
    ("gpt_neox", {"rope_scaling": {"type": "dynamic", "factor": 0.5}}, "factor is 0.5"),
    ("phi", {"qk_layernorm": True}, "qk_layernorm is True: norms of q and k"),
    ("phi", {"partial_rotary_factor": 0.01}, "partial_rotary_factor is 0.01"),
    ("phi", {"num_key_value_heads": 3}, "num_key_value_heads is 3"),
    ("stablelm", {"qk_layernorm": True}, "qk_layernorm is True: norms of q and k"),
    ("stablelm", {"hidden_act": "gelu"}, "hidden_act"),
    ("stablelm", {"use_qkv_bias": 1}, "use_qkv_bias is 1"),
    ("starcoder2", {"sliding_window": 1.5}, "sliding_window is 1.5"),
    ("starcoder2", {"hidden_act": "silu"}, "hidden_act"),
    ("phi3", {"sliding_window": "long"}, "sliding_window is 'long'"),
    (
        "phi3",
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}},
        "short_factor is [1.0]",
    ),
    ("phi3", {"rope_scaling": {"type": "su", "short_factor": [0.5] * 8}}, "short_factor is [0.5"),
    ("phi3", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type is 'dynamic'"),
    ("phi3_longrope", {"original_max_position_embeddings": 1}, "embeddings is 1"),
    ("qwen2_yarn", {"rope_parameters": {"type": "yarn"}}, "factor is missing"),
    ("qwen2_yarn", {"rope_parameters": {"type": "yarn", "factor": 1e7}}, "factor is 10000000"),
    ("qwen2_yarn", YARN | {"rope_theta": 1}, "rope_theta is 1"),
    ("qwen2_yarn", {"rope_parameters": {**YARN_FIELDS, "beta_fast": 0.5}}, "beta_fast is 0.5"),
    ("qwen2_yarn", {"rope_parameters": {**YARN_FIELDS, "truncate": 1}}, "truncate is 1"),
    ("qwen2_yarn", {"rope_parameters": {**YARN_FIELDS, "attention_factor": 0}}, "attention_factor"),
    ("qwen2_yarn", {"rope_parameters": {**YARN_FIELDS, "short_factor": [1]}}, "does not read it"),
    ("llama_dynamic", {"rope_parameters": {**DYNAMIC, "beta_slow": 1}}, "dynamic does not read it"),
    ("llama_dynamic", {"head_dim": 2}, "rope_type is 'dynamic'"),
    ("phi3", {"hidden_act": "gelu"}, "hidden_act"),
    ("gpt_bigcode", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("gpt_bigcode", {"multi_query": 1}, "multi_query is 1"),
    ("gpt_bigcode", {"num_key_value_heads": 2}, "num_key_value_heads is 2"),
    ("qwen3", {"use_sliding_window": 1}, "use_sliding_window is 1"),
    ("qwen3", {"head_dim": 23}, "head_dim is 23"),
    ("olmo2", {"clip_qkv": 8.0}, "clip_qkv"),
    ("olmo2", {"layer_types": ["sliding_attention"]}, "layer_types"),
    ("granite", {"embedding_multiplier": 0}, "embedding_multiplier is 0"),
    ("granite", {"logits_scaling": "16"}, "logits_scaling is '16'"),
    ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers is [1]"),
    ("smollm3", {"no_rope_layers": [1, 2]}, "no_rope_layers is [1, 2]"),
    ("smollm3", {"layer_types": ["sliding_attention"] * 2}, "layer_types"),
    ("bloom", {"n_head": 7}, "hidden_size is 144"),
    ("gemma", {"use_bidirectional_attention": True}, "bidirectional attention: not supported"),
    ("gemma", {"hidden_act": "silu"}, "hidden_act is 'silu'"),
    ("gemma", {"final_logit_softcapping": 30.0}, "soft-capping of logits"),
    ("gemma2", {"hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping is -1.0"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
    ("gemma2", {"sliding_window": 0}, "sliding_window is 0"),
    ("gemma2", {"layer_types": ["full_attention"]}, "3 of full_attention"),
    ("gemma2", {"layer_types": ["full_attention", "chunked_attention", []]}, "3 of full_attention"),
    ("gemma2", {"num_local_experts": 4}, "a mixture of experts"),
    ("mixtral", {"num_local_experts": 2000}, "num_local_experts is 2000, expected an integer in 1"),
    ("mixtral", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("qwen2_moe", {"shared_expert_intermediate_size": 0}, "shared_expert_intermediate_size is 0"),
    ("glm4_moe", {"n_group": 5}, "n_group is 5, expected a number of equal groups of two or more"),
    ("glm4_moe", {"n_group": 12}, "n_group is 12, expected a number of equal groups of two"),
    ("glm4_moe", {"n_group": 0}, "n_group is 0"),
    ("glm4_moe", {"topk_group": 5}, "topk_group is 5, expected an integer in 1..4"),
    ("glm4_moe", {"n_group": 6, "topk_group": 1}, "groups of 2 with 3 experts or more together"),
    ("glm4_moe", {"routed_scaling_factor": 0}, "routed_scaling_factor is 0"),
    ("glm4_moe", {"routed_scaling_factor": "2"}, "routed_scaling_factor is '2'"),
    ("glm4_moe", {"first_k_dense_replace": -1}, "first_k_dense_replace is -1"),
    ("glm4_moe", {"n_shared_experts": 0}, "n_shared_experts is 0"),
    ("glm4_moe", {"num_nextn_predict_layers": True}, "num_nextn_predict_layers is True"),
    (
        "deepseek_v2",
        {"num_key_value_heads": 3},
        "num_key_value_heads is 3, expected num_att",
    ),
    ("deepseek_v2", {"qk_nope_head_dim": 15}, "qk_nope_head_dim is 15, expected an even number"),
    ("deepseek_v2", {"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7, expected an even number"),
    ("deepseek_v2", {"v_head_dim": 26}, "v_head_dim is 26, expected at most qk_nope"),
    ("deepseek_v2", {"v_head_dim": 0}, "v_head_dim is 0"),
    ("deepseek_v2", {"kv_lora_rank": 0}, "kv_lora_rank is 0"),
    ("deepseek_v2", {"q_lora_rank": 0}, "q_lora_rank is 0"),
    ("deepseek_v2", {"norm_topk_prob": True}, "norm_topk_prob is True"),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, "topk_method is 'noaux_tc', expected one of gre"),
    ("deepseek_v2", {"n_group": 5}, "n_group is 5, expected a number of equal groups"),
    ("deepseek_v2", {"topk_group": 0}, "topk_group is 0"),
    ("deepseek_v2", {"n_group": 12, "topk_group": 2}, "groups of 1 with 3 experts or more"),
    ("deepseek_v2", {"moe_layer_freq": 2}, "moe_layer_freq is 2"),
    ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
    ("deepseek_v2", {"mlp_bias": True}, "mlp_bias is True"),
    ("deepseek_v2", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is"),
    ("deepseek_v3", {"topk_method": "greedy"}, "topk_method is 'greedy'"),
    ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("deepseek_v3", {"n_group": 12}, "n_group is 12, expected a number of equal groups of two"),
    ("deepseek_v3", {"rope_interleave": 1}, "rope_interleave is 1"),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types is"),
    ("glm4_moe_lite", {"mlp_layer_types": ["dense", "sparse", "none"]}, "mlp_layer_types is"),
    ("glm4_moe_lite", {"first_k_dense_replace": 2}, "first_k_dense_replace is 2"),
    ("glm4_moe_lite_mixed", {"first_k_dense_replace": 1}, "first_k_dense_replace is 1"),
    ("granitemoeshared", {"shared_intermediate_size": -1}, "shared_intermediate_size is -1"),
    ("qwen3_moe", {"num_experts_per_tok": 9}, "num_experts_per_tok is 9, expected an integer in 1"),
    ("qwen3_moe", {"num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
    ("qwen3_moe", {"num_experts": True}, "num_experts is True"),
    ("qwen3_moe", {"decoder_sparse_step": 0}, "decoder_sparse_step is 0"),
    ("qwen3_moe", {"mlp_only_layers": [2]}, "mlp_only_layers is [2], expected layers in 0..1"),
    ("qwen3_moe", {"mlp_only_layers": [True]}, "mlp_only_layers is [True], expected a list"),
    ("qwen3_moe", {"mlp_only_layers": "1"}, "mlp_only_layers is '1', expected a list"),
    ("olmoe", {"clip_qkv": 8.0}, "clipped q, k and v"),
    ("granitemoe", {"intermediate_size": -1}, "intermediate_size is -1"),
    ("gemma3", {"use_bidirectional_attention": "all"}, "bidirectional attention"),
    (
        "gemma3_gqa",
        {"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "factor": 4.0}}},
        "rope_type is 'yarn'",
    ),
    ("gemma3", {"rope_parameters": {"rope_theta": 1e6}}, "full_attention and sliding_attention"),
    ("gemma3_gqa", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ("gemma3", {"rope_local_base_freq": 0}, "rope_local_base_freq is 0"),
    ("bloom", {"apply_residual_connection_post_layernorm": True}, "behind the norms"),
    ("mpt", {"attn_config": {"alibi": False}}, "attn_config: alibi is False"),
    ("mpt", {"attn_config": {"alibi_bias_max": 16}}, "alibi_bias_max is 16"),
    ("mpt", {"attn_config": {"clip_qkv": 6.0}}, "clip_qkv is 6.0: clipped q, k and v"),
    ("mpt", {"attn_config": {"qk_ln": True}}, "qk_ln is True: norms of q and k"),
    ("mpt", {"attn_config": {"softmax_scale": 0.5}}, "softmax_scale is 0.5"),
    ("mpt", {"attn_config": 8}, "attn_config is 8"),
    ("mpt", {"no_bias": False}, "no_bias is False: biases"),
    ("mpt", {"logit_scale": "inv_sqrt_d_model"}, "logit_scale"),
    ("mpt", {"expansion_ratio": 3}, "expansion_ratio is 3"),
    ("falcon", {"activation": "swish"}, "activation is"),
    ("falcon", {"multi_query": False, "num_kv_heads": 3}, "num_kv_heads is 3"),
    ("falcon_new", {"num_kv_heads": 3}, "num_kv_heads is 3"),
    ("falcon_new", {"parallel_attn": False}, "parallel_attn is False"),
    ("falcon_new", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn is 3"),
    ("falcon", {"alibi": 1}, "alibi is 1"),
    ("cohere", {"use_qk_norm": True}, "use_qk_norm is True: LayerNorms of q and k"),
    ("cohere", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ("cohere", {"logit_scale": 0}, "logit_scale is 0"),
    ("cohere", {"attention_bias": 1}, "attention_bias is 1"),
    ("cohere", {"num_key_value_heads": 4}, "num_key_value_heads is 4"),
]


@pytest.mark.parametrize(("name", "fields", "named"), REFUSED)
def test_other_arithmetic_is_refused_by_name(
    tmp_path: Path, name: str, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(ModelError) as caught:
        load(tmp_path, {**CONFIGS[name], **fields})
    assert named in str(caught.value) and "config.json" in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) <= 500


def test_windows_of_some_layers(tmp_path: Path) -> None:
    used = {"use_sliding_window": True, "num_hidden_layers": 4}
    qwen2 = {**FAMILY_CONFIGS["qwen2"], **used}
    assert load(tmp_path, qwen2 | {"max_window_layers": 3}).windows == (0, 0, 0, 64)
    assert load(tmp_path, qwen2 | {"max_window_layers": 4}).windows == ()
    assert load(tmp_path, qwen2 | {"sliding_window": 384}).windows == ()
    kinds = ["sliding_attention", "full_attention"] * 2
    assert load(tmp_path, qwen2 | {"layer_types": kinds}).windows == (64, 0, 64, 0)
    smollm3 = {**FAMILY_CONFIGS["smollm3_interval"], **used, "sliding_window": 50}
    assert load(tmp_path, smollm3).windows == (0, 50, 0, 50)
    assert load(tmp_path, smollm3 | {"sliding_window": None}).windows == ()


def test_qwen2_has_biases_on_q_k_and_v_alone(tmp_path: Path) -> None:
    config = load(tmp_path, FAMILY_CONFIGS["qwen2"])
    assert (config.qkv_bias, config.o_bias, config.mlp_bias) == (True, False, False)


def test_rotary_width_and_theta_in_old_and_new_spelling(tmp_path: Path) -> None:
    old = load(tmp_path, FAMILY_CONFIGS["gpt_neox"])
    assert old.rope == RopeConfig("default", 5000.0, width=8)
    values = {k: v for k, v in FAMILY_CONFIGS["gpt_neox"].items() if not k.startswith("rotary")}
    given = {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25}
    assert load(tmp_path, {**values, "rope_parameters": given}) == old
    assert load(tmp_path, FAMILY_CONFIGS["gpt_neox_sequential"]).rope == RopeConfig("default", 1e4)


def test_yarn_and_dynamic_reach_factor_times_their_positions(tmp_path: Path) -> None:
    assert load(tmp_path, POSITION_CONFIGS["llama_dynamic"]).positions == 333
    assert load(tmp_path, POSITION_CONFIGS["qwen2_yarn"]).positions == 384
    config = load(tmp_path, {**FAMILY_CONFIGS["qwen2"], "rope_scaling": YARN_FIELDS})
    assert config.positions == 4 * 384 and config.rope is not None
    assert config.rope.original_positions == 384
    noted = {**YARN_FIELDS, "finetuned": True}  # as hubs have it; no arithmetic
    assert load(tmp_path, {**FAMILY_CONFIGS["qwen2"], "rope_scaling": noted}) == config
    far = {**YARN_FIELDS, "factor": 1e6}
    assert load(tmp_path, {**FAMILY_CONFIGS["qwen2"], "rope_scaling": far}).positions == 2**20


def test_phi3_has_original_positions_of_its_own(tmp_path: Path) -> None:
    fields = POSITION_CONFIGS["phi3_longrope"]
    within = {**fields["rope_scaling"], "original_max_position_embeddings": 64}
    old = {**fields["rope_scaling"], "type": "su"}
    expected = load(tmp_path, fields)
    for scaling in (within, old):
        assert load(tmp_path, {**fields, "rope_scaling": scaling}) == expected
    within["original_max_position_embeddings"] = 65
    with pytest.raises(ModelError, match="65: a value besides the model's own 64"):
        load(tmp_path, {**fields, "rope_scaling": within})
    silent = {k: v for k, v in fields.items() if not k.startswith("original")}
    assert load(tmp_path, silent).rope.original_positions == 4096  # type: ignore[union-attr]


def test_a_hub_folder_of_gpt_j_loads_silently(tmp_path: Path, caplog: Any) -> None:
    shape = shape_json("gpt-j-6b")
    config = load(tmp_path, {**shape, "summary_type": "cls_index", "gradient_checkpointing": False})
    assert (config.layers, config.heads, config.head_dim) == (28, 16, 256)
    assert config.rope == RopeConfig("default", 1e4, width=64) and caplog.records == []


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("olmo", "norms without weights"), ("phimoe", "a mixture of experts"),
     ("gemma3n", "several residual streams"), ("t5", "an encoder and a decoder")],
)  # fmt: skip
def test_a_known_model_type_is_refused_with_what_is_missing(
    tmp_path: Path, kind: str, missing: str
) -> None:
    with pytest.raises(ModelError, match=f"model_type is '{kind}': .*{missing}.*not supported"):
        load(tmp_path, {"model_type": kind})
    assert kind not in model_types()


def test_the_page_of_models_has_the_table_of_the_registry() -> None:
    registered = [kind for kind in model_types() if kind != made_up_family.NAME]
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, registered), "run python -m tools.family_table"
    assert page.count("\n| qwen2 | RMSNorm, ") == 1 and "YaRN" in family_table(["qwen2"])
    with pytest.raises(ValueError, match="made_up: 0 test models"):
        family_table(["made_up"])


def test_defaults_of_gemma(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = load(tmp_path, {"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None})
    assert (one.hidden, one.heads, one.kv_heads, one.head_dim) == (3072, 16, 16, 256)
    assert one.gated and one.activation == "gelu_tanh" and one.tied and one.one_plus
    assert one.embed_scale == 3072**0.5 and one.stream_scale == 2**-6 and not one.windows
    two = load(tmp_path, {"model_type": "gemma2", "cache_implementation": "hybrid"})
    assert two.windows == (4096, 0) * 13 and two.branch_norms == "both"
    assert (two.score_cap, two.logit_cap, two.score_factor) == (50, 30, 1 / 16)
    none = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    off = load(tmp_path, {"model_type": "gemma2", "query_pre_attn_scalar": 144, **none})
    assert (off.score_cap, off.logit_cap, off.score_factor) == (0, 0, 1 / 12)
    three = load(tmp_path, {"model_type": "gemma3_text"})
    assert three.windows == ((4096,) * 5 + (0,)) * 4 + (4096,) * 2
    assert (three.score_cap, three.logit_cap, three.head_norms) == (0, 0, "heads")
    assert (three.rope, three.local_rope) == (
        RopeConfig("default", 1e6),
        RopeConfig("default", 1e4),
    )
    assert three.rope_of(0) is three.local_rope and three.rope_of(5) is three.rope
    capped = load(tmp_path, {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0})
    assert capped.score_cap == 50
    short = load(tmp_path, {"model_type": "gemma3_text", "max_position_embeddings": 4096})
    assert short.windows == () and short.local_layers == three.local_layers  # none is reached
    assert caplog.records == []


def test_both_spellings_of_gemma_3s_rotary_positions(tmp_path: Path) -> None:
    kind = {"model_type": "gemma3_text"}
    old = {"rope_theta": 5e5, "rope_local_base_freq": 2e3}
    scaled = {"rope_type": "linear", "factor": 8.0}
    new = {
        "full_attention": {**scaled, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e3},
    }
    by_fields = load(tmp_path, {**kind, **old, "rope_scaling": scaled})
    by_parameters = load(tmp_path, {**kind, "rope_parameters": new})
    assert by_fields == by_parameters
    assert by_fields.rope == RopeConfig("linear", 5e5, factor=8.0)
    assert by_fields.local_rope == RopeConfig("default", 2e3)


def test_a_multimodal_folder_is_its_text_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = {**FAMILY_CONFIGS["gemma3"]}
    plain = load(tmp_path, {**text, "eos_token_id": [1, 106]})
    outer = {"model_type": "gemma3", "vision_config": {"hidden_size": 1}, "eos_token_id": [1, 106]}
    assert load(tmp_path, {**outer, "text_config": text}) == plain
    unnamed = {name: value for name, value in text.items() if name != "model_type"}
    assert load(tmp_path, {**outer, "text_config": unnamed}) == plain
    assert caplog.records == []
    for wrong in (None, [], "gemma3_text"):
        with pytest.raises(ModelError, match=r"text_config is .*expected an object"):
            load(tmp_path, {**outer, "text_config": wrong})
    with pytest.raises(ModelError, match=r"model_type is 'llama'.*gemma3_text"):
        load(tmp_path, {**outer, "text_config": {**text, "model_type": "llama"}})
    with pytest.raises(ModelError, match="text_config: sliding_window is -1"):
        load(tmp_path, {**outer, "text_config": {**text, "sliding_window": -1}})


def test_sigmoid_routing_and_dense_layers(tmp_path: Path) -> None:
    fields = CONFIGS["glm4_moe"]
    config = load(tmp_path, fields)
    assert config.experts is not None and config.rope is not None
    assert config.experts.sigmoid == SigmoidRouting(4, 2, 2.5)
    assert (config.experts.layers, config.experts.shared) == ({1, 2}, 72)
    assert (config.rope.width, config.head_norms, config.extra_layers) == (12, "heads", 1)
    assert (config.qkv_bias, config.o_bias) == (True, False)
    assert load(tmp_path, {**fields, "first_k_dense_replace": 3}).experts is None
    absent = ("use_qk_norm", "attention_bias", "n_group", "topk_group", "routed_scaling_factor")
    plain = load(tmp_path, {k: v for k, v in fields.items() if k not in absent})
    assert plain.experts is not None and plain.experts.sigmoid == SigmoidRouting()
    assert (plain.head_norms, plain.qkv_bias) == ("none", False)


def test_scans_and_what_of_them_is_refused(tmp_path: Path) -> None:
    granite = CONFIGS["granitemoehybrid"]
    config = load(tmp_path, granite)
    assert config.recurrent is not None and config.experts is not None and config.rope is not None
    assert config.recurrent.layers == {0, 1, 3} and config.recurrent.limits == (0, float("inf"))
    assert (config.recurrent.key_heads, config.recurrent.keys) == (1, 24)
    old = {"layer_types": ["mamba", "mamba", "attention", "mamba"]}
    assert load(tmp_path, {**granite, **old}) == config
    spelled = {"time_step_limit": [0.0, {"__float__": "Infinity"}], "mamba_d_head": "auto"}
    assert load(tmp_path, {**granite, **spelled}) == config
    pattern = load(tmp_path, CONFIGS["nemotron_h_pattern"])
    assert pattern.recurrent is not None and pattern.recurrent.layers == {2, 4}
    assert (pattern.without_mixer, pattern.without_mlp) == ({1, 5}, {0, 2, 3, 4})
    assert [pattern.planes(layer) > 0 for layer in range(6)] == [True, False, *[True] * 3, False]
    falcon = load(tmp_path, CONFIGS["falcon_h1"])
    assert falcon.recurrent is not None and falcon.recurrent.beside and falcon.attends(0)
    for name, fields, match in (
        ("granitemoehybrid", {"mamba_proj_bias": True}, "biases of its matmuls"),
        ("granitemoehybrid", {"mamba_d_head": 15}, "18 heads with 288 columns together"),
        ("granitemoehybrid", {"mamba_n_groups": 4}, "a divisor of mamba_n_heads 18"),
        ("granitemoehybrid", {"time_step_limit": [0.2, 0.1]}, "the lower one first"),
        ("granitemoehybrid", {"time_step_limit": "all"}, "two numbers"),
        ("granitemoehybrid", {"position_embedding_type": "alibi"}, "rope, nope or null"),
        ("falcon_h1", {"mamba_norm_before_gate": True}, "a norm behind the gate"),
        ("falcon_h1", {"ssm_multipliers": [1, 2]}, "5 numbers"),
        ("falcon_h1", {"attention_bias": True}, "biases of matmuls"),
        ("nemotron_h_pattern", {"hybrid_override_pattern": "MEM*E"}, "experts are not supported"),
        ("nemotron_h", {"residual_in_fp32": True}, "in FP32"),
        ("nemotron_h", {"mlp_hidden_act": "gelu"}, "one of relu2"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=match):
            load(tmp_path, {**CONFIGS[name], **fields})


def test_experts_beside_recurrences(tmp_path: Path) -> None:
    text = CONFIGS["qwen3_5_moe"]
    config = load(tmp_path, text)
    assert config.experts is not None and config.experts.renormalize and config.experts.shared_gate
    outer = {"model_type": "qwen3_5_moe", "vision_config": {"hidden_size": 1}}
    assert load(tmp_path, {**outer, "text_config": text}) == config
    lfm2 = load(tmp_path, CONFIGS["lfm2_moe"])
    assert lfm2.experts is not None and lfm2.experts.layers == {1, 2, 3} and lfm2.ffn == 200
    assert lfm2.experts.sigmoid == SigmoidRouting(least=1e-6)
    with pytest.raises(ModelError, match="without its bias"):
        load(tmp_path, {**CONFIGS["lfm2_moe"], "use_expert_bias": False})


def test_latent_attention_is_read(tmp_path: Path) -> None:
    fields = CONFIGS["deepseek_v2"]
    config = load(tmp_path, fields)
    assert config.latent == LatentConfig(80, 112, 8, 12, biased=True) and config.rope is not None
    assert (config.head_dim, config.kv_heads, config.o_bias, config.qkv_bias) == (
        24,
        9,
        True,
        False,
    )
    assert (config.rope.width, config.norm_eps, config.latent.eps) == (8, 1e-5, 1e-6)
    scale = 0.1 * 0.9 * math.log(8) + 1
    assert config.score_factor == pytest.approx(24**-0.5 * scale**2, rel=1e-15)
    assert config.experts is not None and config.experts.sigmoid is None
    assert (config.experts.groups, config.experts.taken, config.experts.factor) == (4, 2, 6.0)
    assert (config.experts.layers, config.experts.shared) == ({1, 2}, 144)
    rope = {**fields["rope_parameters"], "mscale_all_dim": 0.0}
    assert load(tmp_path, {**fields, "rope_parameters": rope}).score_factor is None
    greedy = load(tmp_path, {**fields, "topk_method": "greedy", "n_group": None})
    assert greedy.experts is not None and greedy.experts.groups == 1
    single = load(tmp_path, CONFIGS["deepseek_v2_lite"])
    assert single.latent == LatentConfig(64, 0, 4, 16) and single.score_factor is None
    by_default = load(tmp_path, {"model_type": "deepseek_v2"})
    assert by_default.latent == LatentConfig(512, 1536, 64, 128)


def test_which_layers_of_glm_lite_are_dense(tmp_path: Path) -> None:
    def sparse(**fields: Any) -> frozenset[int]:
        found = load(tmp_path, {**CONFIGS["glm4_moe_lite"], **fields}).experts
        assert found is not None
        return found.layers

    assert sparse() == sparse(first_k_dense_replace=None) == {1, 2}
    kinds = ["sparse", "dense", "sparse"]
    assert sparse(first_k_dense_replace=None, mlp_layer_types=kinds) == {0, 2}
    kinds = ["dense", "dense", "sparse"]
    assert sparse(first_k_dense_replace=2, mlp_layer_types=kinds) == {2}
    config = load(tmp_path, CONFIGS["glm4_moe_lite"])
    assert config.latent == LatentConfig(64, 96, 4, 16) and config.extra_layers == 1
    assert load(tmp_path, CONFIGS["glm4_moe_lite_mixed"]).latent.interleaved is False  # type: ignore[union-attr]


def test_fields_of_released_deepseeks_are_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1, "moe_layer_freq": 1,
            "pretraining_tp": 1, "n_group": 1, "topk_group": 1, "head_dim": 64}  # fmt: skip
    own = {"scoring_func": "softmax", "topk_method": "greedy", "attention_bias": False}
    load(tmp_path, {**shape_json("deepseek-v2-lite"), **more, **own})
    own = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "rope_interleave": True}
    load(tmp_path, {**CONFIGS["deepseek_v3"], **more, **own, "num_experts_per_tok": 3})
    load(tmp_path, {**shape_json("glm-4.7-flash"), "first_k_dense_replace": 1,
                    "topk_method": "noaux_tc", "partial_rotary_factor": 1.0})  # fmt: skip
    assert caplog.records == []
