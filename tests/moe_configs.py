"""config.json of random mixtures of experts: two of each family, with odd sizes, grouped heads and
other features than the defaults; and the names of their tensors, written apart from the SDK's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.latent_configs import LATENT_CONFIGS, LATENT_KINDS, latent_shapes

_COMMON = {"num_hidden_layers": 2, "max_position_embeddings": 384, "rms_norm_eps": 1e-5,
           "hidden_act": "silu", "tie_word_embeddings": False}  # fmt: skip
_MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **_COMMON}
_QWEN3 = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], **_COMMON}
_OLMOE = {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], **_COMMON}
_GRANITE = {"model_type": "granitemoe", "architectures": ["GraniteMoeForCausalLM"], **_COMMON}
_QWEN2 = {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], **_COMMON}
_SHARED = {**_GRANITE, "model_type": "granitemoeshared",
           "architectures": ["GraniteMoeSharedForCausalLM"]}  # fmt: skip
_OSS = {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], **_COMMON}
_GLM4 = {"model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], **_COMMON}

MOE_CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral": {
        **_MIXTRAL, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 200, "vocab_size": 291, "num_local_experts": 4,
        "num_experts_per_tok": 2, "sliding_window": None, "rope_theta": 5000.0,
    },
    "mixtral_tied": {
        **_MIXTRAL, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 136, "vocab_size": 283, "num_local_experts": 6,
        "num_experts_per_tok": 3, "sliding_window": 48, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "qwen3_moe": {
        **_QWEN3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 24, "intermediate_size": 296, "moe_intermediate_size": 72, "vocab_size": 299,
        "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 5000.0,
    },
    "qwen3_moe_mixed": {
        **_QWEN3, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 232, "moe_intermediate_size": 104, "vocab_size": 280,
        "num_hidden_layers": 4, "num_experts": 5, "num_experts_per_tok": 3,
        "norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [1],
        "attention_bias": True, "tie_word_embeddings": True,
    },
    "olmoe": {
        **_OLMOE, "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8,
        "intermediate_size": 96, "vocab_size": 298, "num_experts": 8, "num_experts_per_tok": 4,
        "norm_topk_prob": False, "rope_theta": 5000.0,
    },
    "granitemoe": {
        **_GRANITE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 88, "vocab_size": 295, "num_local_experts": 6,
        "num_experts_per_tok": 2, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625, "logits_scaling": 6.0, "rope_theta": 5000.0,
    },
    "granitemoe_tied": {
        **_GRANITE, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 72, "vocab_size": 281, "num_local_experts": 4,
        "num_experts_per_tok": 3, "embedding_multiplier": 3.3, "residual_multiplier": 1.7,
        "attention_multiplier": 0.5, "logits_scaling": 8.0, "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "olmoe_gqa": {
        **_OLMOE, "hidden_size": 176, "num_attention_heads": 11, "num_key_value_heads": 1,
        "intermediate_size": 72, "vocab_size": 284, "num_experts": 3, "num_experts_per_tok": 1,
        "norm_topk_prob": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "qwen2_moe": {
        **_QWEN2, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 296, "moe_intermediate_size": 72,
        "shared_expert_intermediate_size": 168, "vocab_size": 297, "num_experts": 7,
        "num_experts_per_tok": 2, "norm_topk_prob": False, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "rope_theta": 5000.0,
    },
    "qwen2_moe_mixed": {
        **_QWEN2, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 232, "moe_intermediate_size": 104,
        "shared_expert_intermediate_size": 40, "vocab_size": 283, "num_hidden_layers": 4,
        "num_experts": 5, "num_experts_per_tok": 3, "norm_topk_prob": True,
        "decoder_sparse_step": 2, "mlp_only_layers": [1], "qkv_bias": False,
        "use_sliding_window": True, "sliding_window": 48, "max_window_layers": 3,
        "tie_word_embeddings": True,
    },
    "granitemoeshared": {
        **_SHARED, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 88, "shared_intermediate_size": 120, "vocab_size": 294,
        "num_local_experts": 5, "num_experts_per_tok": 2, "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 6.0,
        "rope_theta": 5000.0,
    },
    "granitemoeshared_without": {
        **_SHARED, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 72, "shared_intermediate_size": 0, "vocab_size": 279,
        "num_local_experts": 4, "num_experts_per_tok": 3, "embedding_multiplier": 3.3,
        "residual_multiplier": 1.7, "attention_multiplier": 0.5, "logits_scaling": 8.0,
        "tie_word_embeddings": True,
    },
    "glm4_moe": {
        **_GLM4, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 24, "intermediate_size": 296, "moe_intermediate_size": 72, "vocab_size": 293,
        "num_hidden_layers": 3, "n_routed_experts": 12, "num_experts_per_tok": 3, "n_group": 4,
        "topk_group": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 2.5, "attention_bias": True,
        "use_qk_norm": True, "num_nextn_predict_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0,
                            "partial_rotary_factor": 0.5},
    },
    "glm4_moe_single": {
        **_GLM4, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 232, "moe_intermediate_size": 40, "vocab_size": 286,
        "n_routed_experts": 7, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
        "n_shared_experts": 2, "first_k_dense_replace": 0, "norm_topk_prob": False,
        "routed_scaling_factor": 1.5, "attention_bias": False, "use_qk_norm": False,
        "num_nextn_predict_layers": 0, "rope_theta": 20000.0, "tie_word_embeddings": True,
    },
    "gpt_oss": {
        **_OSS, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 96, "vocab_size": 290, "num_hidden_layers": 3,
        "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "swiglu_limit": 0.05, "attention_bias": True,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0,
                            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                            "original_max_position_embeddings": 48},
    },
    "gpt_oss_single": {
        **_OSS, "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 24, "intermediate_size": 64, "vocab_size": 277,
        "num_local_experts": 5, "num_experts_per_tok": 4, "sliding_window": 40,
        "swiglu_limit": 7.0, "attention_bias": False, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
    },
    **LATENT_CONFIGS,
}  # fmt: skip
MOE_KINDS = frozenset(config["model_type"] for config in MOE_CONFIGS.values())
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def moe_shapes(c: dict[str, Any]) -> Shapes:
    """Names and shapes of the tensors, as transformers saves them."""
    d, heads = c["hidden_size"], c["num_attention_heads"]
    size = c.get("head_dim") or d // heads
    q, kv = heads * size, c["num_key_value_heads"] * size
    kind = c["model_type"]
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        for norm in ("input", "post_attention"):
            yield f"{h}{norm}_layernorm.weight", (d,)
        if kind in LATENT_KINDS:
            yield from latent_shapes(c, f"{h}self_attn")
            yield from _mlp(c, layer)
            continue
        norms = {"qwen3_moe": (size, size), "olmoe": (q, kv)}.get(kind, ())
        if c.get("use_qk_norm"):
            norms = (size, size)
        for part, width in zip("qk", norms, strict=False):
            yield f"{h}self_attn.{part}_norm.weight", (width,)
        for part, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
            yield f"{h}self_attn.{part}_proj.weight", shape
            biased = kind == "qwen2_moe" and c.get("qkv_bias", True) and part != "o"
            unbiased = kind == "glm4_moe" and part == "o"
            if (c.get("attention_bias") and not unbiased) or biased:
                yield f"{h}self_attn.{part}_proj.bias", shape[:1]
        if kind == "gpt_oss":
            yield f"{h}self_attn.sinks", (heads,)
        yield from _mlp(c, layer)
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _mlp(c: dict[str, Any], layer: int) -> Shapes:
    d, lead = c["hidden_size"], f"model.layers.{layer}.mlp"
    dense = layer in c.get("mlp_only_layers", ()) or (layer + 1) % c.get("decoder_sparse_step", 1)
    dense = dense or layer < c.get("first_k_dense_replace", 0)
    dense = dense or c.get("mlp_layer_types", ["sparse"] * (layer + 1))[layer] == "dense"
    ffn = (
        c["intermediate_size"] if dense else c.get("moe_intermediate_size", c["intermediate_size"])
    )
    names = {"gate_proj": (ffn, d), "up_proj": (ffn, d), "down_proj": (d, ffn)}
    if dense:
        yield from ((f"{lead}.{name}.weight", shape) for name, shape in names.items())
        return
    if c["model_type"] == "mixtral":
        lead = f"model.layers.{layer}.block_sparse_moe"
        names = {"w1": (ffn, d), "w3": (ffn, d), "w2": (d, ffn)}
    count = c.get("num_experts") or c.get("n_routed_experts") or c["num_local_experts"]
    if c["model_type"].startswith("granitemoe"):
        lead = f"model.layers.{layer}.block_sparse_moe"
        yield f"{lead}.router.layer.weight", (count, d)
        yield f"{lead}.input_linear.weight", (count, 2 * ffn, d)
        yield f"{lead}.output_linear.weight", (count, d, ffn)
        shared = c.get("shared_intermediate_size")
        if shared:
            lead = f"model.layers.{layer}.shared_mlp"
            yield f"{lead}.input_linear.weight", (2 * shared, d)
            yield f"{lead}.output_linear.weight", (d, shared)
        return
    if c["model_type"] == "gpt_oss":
        yield f"{lead}.router.weight", (count, d)
        yield f"{lead}.router.bias", (count,)
        for name, shape in (("gate_up", (d, 2 * ffn)), ("down", (ffn, d))):
            yield f"{lead}.experts.{name}_proj", (count, *shape)
            yield f"{lead}.experts.{name}_proj_bias", (count, shape[1])
        return
    yield f"{lead}.gate.weight", (count, d)
    for expert in range(count):
        yield from ((f"{lead}.experts.{expert}.{name}.weight", s) for name, s in names.items())
    if "n_shared_experts" in c:
        if c["model_type"] != "deepseek_v2":
            yield f"{lead}.gate.e_score_correction_bias", (count,)
        width = c["n_shared_experts"] * ffn
        for name in names:
            shape = (d, width) if name == "down_proj" else (width, d)
            yield f"{lead}.shared_experts.{name}.weight", shape
    if c["model_type"] == "qwen2_moe":
        width = c["shared_expert_intermediate_size"]
        yield f"{lead}.shared_expert_gate.weight", (1, d)
        for name in names:
            shape = (d, width) if name == "down_proj" else (width, d)
            yield f"{lead}.shared_expert.{name}.weight", shape
