"""config.json of random models of the families besides GPT-2, OPT and LLaMA: two or more each, with
grouped heads where the family has them, odd sizes, and other features than the defaults."""

from __future__ import annotations

from typing import Any

_SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 384}
_QWEN2 = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    **_SIZES,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 64,
    "max_window_layers": 1,
}
_GPTJ = {
    "model_type": "gptj",
    "architectures": ["GPTJForCausalLM"],
    "n_layer": 2,
    "n_positions": 384,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "rotary": True,
    "scale_attn_weights": True,
    "tie_word_embeddings": False,
}
_NEOX = {
    "model_type": "gpt_neox",
    "architectures": ["GPTNeoXForCausalLM"],
    **_SIZES,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
_PHI = {
    "model_type": "phi",
    "architectures": ["PhiForCausalLM"],
    **_SIZES,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "qk_layernorm": False,
}
_STABLELM = {"model_type": "stablelm", "architectures": ["StableLmForCausalLM"], **_SIZES,
             "layer_norm_eps": 1e-5, "tie_word_embeddings": False, "qk_layernorm": False,
             "hidden_act": "silu"}  # fmt: skip
_STARCODER2 = {
    "model_type": "starcoder2",
    "architectures": ["Starcoder2ForCausalLM"],
    **_SIZES,
    "norm_epsilon": 1e-5,
    "hidden_act": "gelu_pytorch_tanh",
}
_PHI3 = {
    "model_type": "phi3",
    "architectures": ["Phi3ForCausalLM"],
    **_SIZES,
    "original_max_position_embeddings": 384,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
_BIGCODE = {
    "model_type": "gpt_bigcode",
    "architectures": ["GPTBigCodeForCausalLM"],
    "n_layer": 2,
    "n_positions": 384,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_pytorch_tanh",
    "attention_softmax_in_fp32": True,
    "scale_attention_softmax_in_fp32": True,
}
_LLAMA_LIKE = {**_SIZES, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
_QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    **_LLAMA_LIKE,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": 64,
    "max_window_layers": 1,
}
_OLMO2 = {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], **_LLAMA_LIKE}
_GRANITE = {"model_type": "granite", "architectures": ["GraniteForCausalLM"], **_LLAMA_LIKE}
_SMOLLM3 = {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], **_LLAMA_LIKE,
            "use_sliding_window": False}  # fmt: skip

_BLOOM = {"model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_layer": 2,
          "layer_norm_epsilon": 1e-5, "seq_length": 384, "pretraining_tp": 1}  # fmt: skip
_MPT = {
    "model_type": "mpt",
    "architectures": ["MptForCausalLM"],
    "n_layers": 2,
    "max_seq_len": 384,
    "no_bias": True,
    "attn_config": {"alibi": True, "attn_impl": "torch", "alibi_bias_max": 8},
}
_FALCON = {
    "model_type": "falcon",
    "architectures": ["FalconForCausalLM"],
    **_SIZES,
    "layer_norm_epsilon": 1e-5,
}
_GEMMA_SIZES = {**_SIZES, "rms_norm_eps": 1e-6, "attention_bias": False}
_GEMMA = {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], **_GEMMA_SIZES}
_GEMMA2 = {
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    **_GEMMA_SIZES,
    "hidden_activation": "gelu_pytorch_tanh",
}
_GEMMA3 = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    **_GEMMA_SIZES,
    "hidden_activation": "gelu_pytorch_tanh",
}

_COHERE = {
    "model_type": "cohere",
    "architectures": ["CohereForCausalLM"],
    **_SIZES,
    "layer_norm_eps": 1e-5,
    "hidden_act": "silu",
    "use_qk_norm": False,
}

FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": {
        **_QWEN2, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "intermediate_size": 328, "vocab_size": 299, "rope_theta": 5000.0,
    },
    "qwen2_gqa_tied": {
        **_QWEN2, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 24, "intermediate_size": 304, "vocab_size": 283, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "gptj": {**_GPTJ, "n_embd": 144, "n_head": 6, "rotary_dim": 8, "vocab_size": 297},
    "gptj_whole_head": {
        **_GPTJ, "n_embd": 176, "n_head": 11, "rotary_dim": 16, "n_inner": 360, "vocab_size": 285,
        "activation_function": "gelu",
    },
    "gpt_neox": {
        **_NEOX, "hidden_size": 160, "num_attention_heads": 5, "intermediate_size": 392,
        "vocab_size": 301, "rotary_pct": 0.25, "rotary_emb_base": 5000, "hidden_act": "gelu",
        "use_parallel_residual": True,
    },
    "gpt_neox_sequential": {
        **_NEOX, "hidden_size": 144, "num_attention_heads": 6, "intermediate_size": 328,
        "vocab_size": 291, "rotary_pct": 1.0, "hidden_act": "gelu_fast", "attention_bias": False,
        "use_parallel_residual": False,
    },
    "phi": {
        **_PHI, "hidden_size": 120, "num_attention_heads": 5, "num_key_value_heads": None,
        "intermediate_size": 328, "vocab_size": 303, "partial_rotary_factor": 0.5,
        "hidden_act": "gelu_new",
    },
    "phi_gqa": {
        **_PHI, "hidden_size": 160, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 352, "vocab_size": 289, "hidden_act": "gelu",
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 3000.0, "partial_rotary_factor": 0.4,
        },
    },
    "stablelm": {
        **_STABLELM, "hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 5,
        "intermediate_size": 328, "vocab_size": 305, "use_qkv_bias": True, "rope_theta": 5000.0,
        "use_parallel_residual": False, "partial_rotary_factor": 0.25,
    },
    "stablelm_parallel_gqa": {
        **_STABLELM, "hidden_size": 144, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 360, "vocab_size": 293, "use_qkv_bias": False,
        "use_parallel_residual": True, "partial_rotary_factor": 0.5,
    },
    "starcoder2": {
        **_STARCODER2, "hidden_size": 144, "num_attention_heads": 6, "num_key_value_heads": 2,
        "intermediate_size": 328, "vocab_size": 306, "use_bias": True, "rope_theta": 5000.0,
        "sliding_window": None,
    },
    "starcoder2_plain": {
        **_STARCODER2, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 296, "vocab_size": 282, "use_bias": False,
        "tie_word_embeddings": False, "hidden_act": "gelu", "sliding_window": 384,
    },
    "phi3": {
        **_PHI3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "intermediate_size": 328, "vocab_size": 307, "rope_theta": 5000.0, "sliding_window": None,
        "rope_scaling": None,
    },
    "phi3_gqa_partial": {
        **_PHI3, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 2,
        "intermediate_size": 360, "vocab_size": 287, "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
        },
    },
    "gpt_bigcode": {**_BIGCODE, "n_embd": 144, "n_head": 6, "vocab_size": 309},
    "gpt_bigcode_heads": {
        **_BIGCODE, "n_embd": 160, "n_head": 5, "n_inner": 328, "vocab_size": 286,
        "multi_query": False, "activation_function": "gelu", "tie_word_embeddings": False,
    },
    "qwen3": {
        **_QWEN3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "head_dim": 24, "intermediate_size": 328, "vocab_size": 299, "rope_theta": 5000.0,
    },
    "qwen3_gqa_tied": {
        **_QWEN3, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 40, "intermediate_size": 304, "vocab_size": 283, "tie_word_embeddings": True,
        "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "olmo2": {
        **_OLMO2, "hidden_size": 144, "num_attention_heads": 6, "num_key_value_heads": 6,
        "intermediate_size": 328, "vocab_size": 298, "rope_theta": 5000.0,
    },
    "olmo2_gqa": {
        **_OLMO2, "hidden_size": 176, "num_attention_heads": 11, "num_key_value_heads": 1,
        "intermediate_size": 304, "vocab_size": 284,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "granite": {
        **_GRANITE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 328, "vocab_size": 295, "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22, "attention_multiplier": 0.0625, "logits_scaling": 6.0,
        "rope_theta": 5000.0,
    },
    "granite_bias_tied": {
        **_GRANITE, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "intermediate_size": 296, "vocab_size": 281, "embedding_multiplier": 3.3,
        "residual_multiplier": 1.7, "attention_multiplier": 0.5, "logits_scaling": 8.0,
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
    },
    "smollm3": {
        **_SMOLLM3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 328, "vocab_size": 294, "no_rope_layers": [1, 0],
        "rope_theta": 5000.0,
    },
    "smollm3_interval": {
        **_SMOLLM3, "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 7,
        "num_hidden_layers": 3, "intermediate_size": 296, "vocab_size": 280,
        "no_rope_layer_interval": 2, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "bloom": {**_BLOOM, "hidden_size": 144, "n_head": 9, "vocab_size": 311},
    "bloom_untied": {
        **_BLOOM, "hidden_size": 160, "n_head": 8, "vocab_size": 284, "tie_word_embeddings": False,
        "layer_norm_epsilon": 1e-3,
    },
    "mpt": {**_MPT, "d_model": 132, "n_heads": 11, "vocab_size": 313},
    "mpt_power_of_two": {
        **_MPT, "d_model": 152, "n_heads": 4, "vocab_size": 281, "attn_config": None,
        "tie_word_embeddings": False,
    },
    "falcon": {
        **_FALCON, "hidden_size": 144, "num_attention_heads": 9, "vocab_size": 314,
        "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
        "bias": False, "rope_theta": 5000.0,
    },
    "falcon_new": {
        **_FALCON, "hidden_size": 160, "num_attention_heads": 8, "num_kv_heads": 2,
        "vocab_size": 279, "new_decoder_architecture": True, "bias": True,
        "ffn_hidden_size": 344, "tie_word_embeddings": False,
    },
    "falcon_alibi": {
        **_FALCON, "hidden_size": 168, "num_attention_heads": 7, "vocab_size": 315,
        "new_decoder_architecture": False, "multi_query": False, "parallel_attn": False,
        "bias": True, "alibi": True,
    },
    "gemma": {
        **_GEMMA, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "head_dim": 24, "intermediate_size": 328, "vocab_size": 296, "rope_theta": 5000.0,
        "hidden_act": "gelu", "tie_word_embeddings": True,
    },
    "gemma_gqa_untied": {
        **_GEMMA, "hidden_size": 160, "num_attention_heads": 8, "num_key_value_heads": 1,
        "head_dim": 40, "intermediate_size": 304, "vocab_size": 278, "attention_bias": True,
        "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
    "gemma2": {
        **_GEMMA2, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "head_dim": 24, "intermediate_size": 328, "vocab_size": 293, "sliding_window": 21,
        "query_pre_attn_scalar": 20, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0,
        "rope_theta": 5000.0, "tie_word_embeddings": True, "num_hidden_layers": 3,
    },
    "gemma2_gqa": {
        **_GEMMA2, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 2,
        "head_dim": 40, "intermediate_size": 304, "vocab_size": 277, "sliding_window": 13,
        "query_pre_attn_scalar": 64, "attn_logit_softcapping": None, "tie_word_embeddings": False,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    "gemma3": {
        **_GEMMA3, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "head_dim": 24, "intermediate_size": 328, "vocab_size": 292, "sliding_window": 21,
        "query_pre_attn_scalar": 24, "rope_theta": 50000.0, "rope_local_base_freq": 500.0,
        "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
    },
    "gemma3_gqa": {
        **_GEMMA3, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 2,
        "head_dim": 40, "intermediate_size": 304, "vocab_size": 276, "sliding_window": 13,
        "query_pre_attn_scalar": 64, "tie_word_embeddings": False, "num_hidden_layers": 3,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 3000.0},
        },
    },
    "cohere": {
        **_COHERE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 9,
        "intermediate_size": 328, "vocab_size": 316, "rope_theta": 5000.0, "logit_scale": 0.25,
    },
    "cohere_gqa_bias": {
        **_COHERE, "hidden_size": 160, "num_attention_heads": 10, "num_key_value_heads": 2,
        "intermediate_size": 304, "vocab_size": 275, "attention_bias": True, "logit_scale": 0.0625,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0},
    },
}  # fmt: skip
