"""config.json of random models with latent attention: two of each family; and the names of their
attention's tensors, written apart from the SDK's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_COMMON = {"num_hidden_layers": 2, "max_position_embeddings": 384, "rms_norm_eps": 1e-5,
           "hidden_act": "silu", "tie_word_embeddings": False}  # fmt: skip
_V2 = {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], **_COMMON}
_V3 = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], **_COMMON}
_LITE = {"model_type": "glm4_moe_lite", "architectures": ["Glm4MoeLiteForCausalLM"], **_COMMON}

LATENT_CONFIGS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {
        **_V2, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "num_hidden_layers": 3, "q_lora_rank": 112, "kv_lora_rank": 80, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 12, "intermediate_size": 296,
        "moe_intermediate_size": 72, "vocab_size": 289, "n_routed_experts": 12,
        "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 2,
        "topk_method": "group_limited_greedy", "routed_scaling_factor": 6.0,
        "norm_topk_prob": False, "first_k_dense_replace": 1, "attention_bias": True,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707,
                            "mscale_all_dim": 0.9, "original_max_position_embeddings": 48},
    },
    "deepseek_v2_lite": {
        **_V2, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "q_lora_rank": None, "kv_lora_rank": 64, "qk_nope_head_dim": 12, "qk_rope_head_dim": 4,
        "v_head_dim": 16, "intermediate_size": 232, "moe_intermediate_size": 104,
        "vocab_size": 276, "n_routed_experts": 7, "num_experts_per_tok": 4,
        "n_shared_experts": 1, "topk_method": "greedy", "routed_scaling_factor": 1.0,
        "norm_topk_prob": False, "first_k_dense_replace": 0, "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
        "tie_word_embeddings": True,
    },
    "deepseek_v3": {
        **_V3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "num_hidden_layers": 3, "q_lora_rank": 72, "kv_lora_rank": 104, "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 12, "v_head_dim": 16, "intermediate_size": 296,
        "moe_intermediate_size": 72, "vocab_size": 287, "n_routed_experts": 12,
        "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2, "n_shared_experts": 1,
        "routed_scaling_factor": 2.5, "norm_topk_prob": True, "first_k_dense_replace": 1,
        "attention_bias": True, "num_nextn_predict_layers": 1, "rope_interleave": False,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 6.0,
                            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                            "mscale_all_dim": 1.0, "original_max_position_embeddings": 64},
    },
    "deepseek_v3_single": {
        **_V3, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "q_lora_rank": None, "kv_lora_rank": 56, "qk_nope_head_dim": 8, "qk_rope_head_dim": 16,
        "v_head_dim": 24, "intermediate_size": 232, "moe_intermediate_size": 40,
        "vocab_size": 281, "n_routed_experts": 7, "num_experts_per_tok": 4, "n_group": 1,
        "topk_group": 1, "n_shared_experts": 2, "routed_scaling_factor": 1.5,
        "norm_topk_prob": False, "first_k_dense_replace": 0, "attention_bias": False,
        "num_nextn_predict_layers": 0, "rope_theta": 20000.0, "tie_word_embeddings": True,
    },
    "glm4_moe_lite": {
        **_LITE, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 10,
        "num_hidden_layers": 3, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 4, "v_head_dim": 16, "intermediate_size": 296,
        "moe_intermediate_size": 72, "vocab_size": 301, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
        "routed_scaling_factor": 1.8, "norm_topk_prob": True, "first_k_dense_replace": 1,
        "attention_bias": False, "num_nextn_predict_layers": 1, "rope_theta": 5000.0,
        "rope_scaling": None, "partial_rotary_factor": 1.0,
    },
    "glm4_moe_lite_mixed": {
        **_LITE, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "num_hidden_layers": 4, "q_lora_rank": 48, "kv_lora_rank": 40, "qk_nope_head_dim": 20,
        "qk_rope_head_dim": 4, "v_head_dim": 20, "intermediate_size": 232,
        "moe_intermediate_size": 104, "vocab_size": 282, "n_routed_experts": 6,
        "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1, "n_shared_experts": 1,
        "routed_scaling_factor": 1.3, "norm_topk_prob": False,
        "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "attention_bias": True,
        "rope_interleave": False, "num_nextn_predict_layers": 0, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
}  # fmt: skip
LATENT_KINDS = frozenset(config["model_type"] for config in LATENT_CONFIGS.values())


def latent_shapes(c: dict[str, Any], module: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of a layer's attention, as transformers saves them."""
    d, heads, nope = c["hidden_size"], c["num_attention_heads"], c["qk_nope_head_dim"]
    rope, v, kv = c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
    rank, q = c["q_lora_rank"], heads * (nope + rope)
    biased = ["kv_a_proj_with_mqa", "o_proj"]
    shapes = {"kv_a_proj_with_mqa": (kv + rope, d), "kv_b_proj": (heads * (nope + v), kv),
              "o_proj": (d, heads * v)}  # fmt: skip
    yield f"{module}.kv_a_layernorm.weight", (kv,)
    if rank is None:
        shapes["q_proj"] = (q, d)
    else:
        yield f"{module}.q_a_layernorm.weight", (rank,)
        shapes |= {"q_a_proj": (rank, d), "q_b_proj": (q, rank)}
        biased.append("q_a_proj")
    for name, shape in shapes.items():
        yield f"{module}.{name}.weight", shape
    for name in biased if c["attention_bias"] else ():
        yield f"{module}.{name}.bias", shapes[name][:1]
