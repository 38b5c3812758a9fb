"""config.json of random models of the families besides GPT-2, OPT and LLaMA: two or more each, with
grouped heads where the family has them, odd sizes, and other features than the defaults."""

from __future__ import annotations

from typing import Any

_SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 384}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_SIZES,
          "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
          "use_sliding_window": False, "sliding_window": 64, "max_window_layers": 1}  # fmt: skip

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
}  # fmt: skip
