"""Shapes of well-known models by name: the config.json that their folder would hold, no weights.

`lora lab synth` writes folders of these shapes and the timing model asks what they would take."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from lora_host.errors import ModelError
from lora_host.naming import did_you_mean
from lora_sdk.gguf.file import is_gguf
from lora_sdk.model.config import load_config, normalize
from lora_sdk.model.fields import Fields
from lora_sdk.model.spec import ModelConfig


def _gpt2(hidden: int, heads: int, layers: int) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": hidden,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "vocab_size": 50257,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    }


def _llama(**fields: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        **fields,
    }


_PHI4_MINI_LONG = [
    1.0, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817, 2.187582649,
    2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023, 4.785517845,
    5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158,
    11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105,
    25.61086418, 28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71,
    32.93, 32.97, 33.28, 33.49, 33.5, 44.16, 47.77,
]  # fmt: skip

_SHAPES: dict[str, dict[str, Any]] = {
    "gpt2-345m": _gpt2(1024, 16, 24),
    "gpt2-774m": _gpt2(1280, 20, 36),
    # 24 heads of 64, as the papers run it (VI.A): the released model has 25 and hidden size 1600.
    "gpt2-1.5b": _gpt2(1536, 24, 48),
    "gpt2-xl": _gpt2(1600, 25, 48),
    "opt-6.7b": {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "ffn_dim": 16384,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
        "word_embed_proj_dim": 4096,
        "do_layer_norm_before": True,
        "activation_function": "relu",
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": 2,
        "pad_token_id": 1,
    },
    "llama2-7b": _llama(
        intermediate_size=11008,
        num_key_value_heads=32,
        vocab_size=32000,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "llama2-70b": _llama(
        hidden_size=8192,
        num_hidden_layers=80,
        num_attention_heads=64,
        intermediate_size=28672,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "llama3.1-8b": _llama(
        intermediate_size=14336,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        bos_token_id=128000,
        eos_token_id=[128001, 128008, 128009],
    ),
    # As released; the table of the segment-KV paper has 32 layers and 32 heads of 128.
    "gpt-j-6b": {
        "model_type": "gptj",
        "architectures": ["GPTJForCausalLM"],
        "n_embd": 4096,
        "n_head": 16,
        "n_layer": 28,
        "n_positions": 2048,
        "rotary": True,
        "rotary_dim": 64,
        "vocab_size": 50400,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "tie_word_embeddings": False,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    },
    "qwen3-8b": _llama(
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        num_hidden_layers=36,
        intermediate_size=12288,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        attention_bias=False,
        use_sliding_window=False,
        bos_token_id=151643,
        eos_token_id=151645,
    ),
    "qwen3-30b-a3b": _llama(
        model_type="qwen3_moe",
        architectures=["Qwen3MoeForCausalLM"],
        hidden_size=2048,
        num_hidden_layers=48,
        intermediate_size=6144,
        num_key_value_heads=4,
        head_dim=128,
        vocab_size=151936,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        attention_bias=False,
        use_sliding_window=False,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        bos_token_id=151643,
        eos_token_id=151645,
    ),
    # v0.1: the release with a window, in every layer.
    "mistral-7b": _llama(
        model_type="mistral",
        architectures=["MistralForCausalLM"],
        intermediate_size=14336,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=32768,
        sliding_window=4096,
        rope_theta=10000.0,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "phi-4-mini": _llama(
        model_type="phi3",
        architectures=["Phi3ForCausalLM"],
        hidden_size=3072,
        num_attention_heads=24,
        intermediate_size=8192,
        num_key_value_heads=8,
        vocab_size=200064,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        sliding_window=262144,
        partial_rotary_factor=0.75,
        rope_theta=10000.0,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0] * 48,
            "long_factor": _PHI4_MINI_LONG,
        },
        tie_word_embeddings=True,
        bos_token_id=199999,
        eos_token_id=199999,
        pad_token_id=199999,
    ),
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2",
        "architectures": ["DeepseekV2ForCausalLM"],
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_hidden_layers": 27,
        "q_lora_rank": None,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "n_routed_experts": 64,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "topk_method": "greedy",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "vocab_size": 102400,
        "max_position_embeddings": 163840,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.707,
            "original_max_position_embeddings": 4096,
        },
        "tie_word_embeddings": False,
        "bos_token_id": 100000,
        "eos_token_id": 100001,
    },
    "glm-4.7-flash": {
        "model_type": "glm4_moe_lite",
        "architectures": ["Glm4MoeLiteForCausalLM"],
        "hidden_size": 2048,
        "num_attention_heads": 20,
        "num_key_value_heads": 20,
        "num_hidden_layers": 47,
        "q_lora_rank": 768,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64,
        "v_head_dim": 256,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 64,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.8,
        "num_nextn_predict_layers": 1,
        "vocab_size": 154880,
        "max_position_embeddings": 202752,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000,
        "tie_word_embeddings": False,
        "eos_token_id": [154820, 154827, 154829],
        "pad_token_id": 154820,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": 6144,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "intermediate_size": 24576,
        "max_position_embeddings": 2048,
        "vocab_size": 50432,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "hidden_act": "gelu_fast",
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "bloom-176b": {
        "model_type": "bloom",
        "architectures": ["BloomForCausalLM"],
        "hidden_size": 14336,
        "n_head": 112,
        "n_layer": 70,
        "seq_length": 2048,
        "vocab_size": 250880,
        "layer_norm_epsilon": 1e-5,
        "apply_residual_connection_post_layernorm": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 3,
    },
    # The text model; as released, with the vision tower's configuration left out.
    "gemma-3-4b": {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_size": 2560,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "num_hidden_layers": 34,
        "intermediate_size": 10240,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "tie_word_embeddings": True,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "pad_token_id": 0,
    },
}

SHAPES: tuple[str, ...] = tuple(_SHAPES)
"""Names that `shape_config` and `shape_json` take."""


def shape_json(name: str) -> dict[str, Any]:
    """The fields of config.json of the shape `name`, a fresh copy. ModelError: unknown name."""
    if name not in _SHAPES:
        raise ModelError(f"no model shape {name!r}; {did_you_mean(name, SHAPES)}")
    return deepcopy(_SHAPES[name])


def shape_config(name: str) -> ModelConfig:
    """The normalized configuration of the shape `name`. ModelError: unknown name."""
    return normalize(Fields(shape_json(name), name))


def find_shape(name: str | None) -> ModelConfig | None:
    """The configuration of the shape `name`; None where it may be a model's path or hub name.
    ModelError: it can be none of them."""
    if name in _SHAPES:
        return shape_config(name)
    if name is None or Path(name).exists() or "/" in name:
        return None
    raise _neither(name)


def _neither(name: str) -> ModelError:
    known = did_you_mean(name, SHAPES)
    if known.startswith("did"):
        known += f"; shapes: {', '.join(SHAPES)}"
    return ModelError(f"model {name!r}: neither a folder nor a known shape; {known}", usage=True)


def find_config(name_or_path: str | Path) -> ModelConfig:
    """The configuration of a shape by name, of a model folder, or of a config.json or GGUF
    file.

    A name wins over a folder of the same name; write ./NAME for the folder. ModelError names what
    was neither, or what is wrong in the file."""
    text = str(name_or_path)
    if text in _SHAPES:
        return shape_config(text)
    path = Path(name_or_path)
    if path.is_file():
        if is_gguf(path):
            return load_config(path)
        if path.name != "config.json":
            raise ModelError(
                f"{path}: is a file, expected a model folder, its config.json or a GGUF file",
                usage=True,
            )
        return load_config(path.parent)
    if path.is_dir():
        return load_config(path)
    raise _neither(text)
