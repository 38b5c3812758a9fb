"""config.json of random models with scaled rotary positions or sliding windows: the families'
models of tests/family_configs.py with other fields. 333 positions, the longest prompt of the parity
tests, go beyond the original context of all scalings but one, and beyond all windows."""

from __future__ import annotations

from typing import Any

from tests.family_configs import FAMILY_CONFIGS

_LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
SHORT = [1.0, 1.02, 1.1, 1.15, 1.2, 1.3]
LONG = [1.0, 1.3, 2.1, 3.4, 5.5, 6.0]

ROPE_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2_yarn": {
        **FAMILY_CONFIGS["qwen2_gqa_tied"],
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 500.0, "factor": 6.0,
            "original_max_position_embeddings": 64,
        },
    },
    "gpt_neox_yarn": {
        **FAMILY_CONFIGS["gpt_neox"], "rotary_pct": 0.75, "rotary_emb_base": 300,
        "rope_scaling": {
            "type": "yarn", "factor": 5.0, "original_max_position_embeddings": 80,
            "beta_fast": 16, "beta_slow": 2, "mscale": 1.5, "mscale_all_dim": 0.5,
            "truncate": False,
        },
    },
    "phi3_longrope": {
        **FAMILY_CONFIGS["phi3_gqa_partial"], "original_max_position_embeddings": 64,
        "rope_parameters": None, "rope_theta": 300.0, "partial_rotary_factor": 0.75,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    },
    "llama_longrope_short": {
        **_LLAMA, "hidden_size": 108, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 296, "vocab_size": 288, "max_position_embeddings": 384,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 300.0, "factor": 32.0, "short_factor": LONG,
            "long_factor": SHORT,
        },
    },
    "llama_dynamic": {
        **_LLAMA, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 296, "vocab_size": 292, "max_position_embeddings": 111,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 3.0},
    },
    "phi_dynamic": {
        **FAMILY_CONFIGS["phi"], "max_position_embeddings": 222, "rope_theta": 200.0,
        "rope_scaling": {"type": "dynamic", "factor": 1.5},
    },
}  # fmt: skip

WINDOW_CONFIGS: dict[str, dict[str, Any]] = {
    "mistral_window": {
        **_LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"],
        "hidden_size": 112, "num_attention_heads": 7, "num_key_value_heads": 1,
        "intermediate_size": 296, "vocab_size": 310, "max_position_embeddings": 384,
        "sliding_window": 70,
    },
    "phi3_window": {**FAMILY_CONFIGS["phi3"], "sliding_window": 33},
    "starcoder2_window": {**FAMILY_CONFIGS["starcoder2"], "sliding_window": 31},
    "qwen2_window": {
        **FAMILY_CONFIGS["qwen2"], "use_sliding_window": True, "max_window_layers": 1,
        "sliding_window": 29,
    },
    "qwen3_window": {
        **FAMILY_CONFIGS["qwen3_gqa_tied"], "use_sliding_window": True, "sliding_window": 27,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "smollm3_window": {
        **FAMILY_CONFIGS["smollm3_interval"], "use_sliding_window": True, "sliding_window": 32,
    },
}  # fmt: skip

POSITION_CONFIGS = {**ROPE_CONFIGS, **WINDOW_CONFIGS}
