"""Random small checkpoints of every model variant, the same bits on every machine: parity with
transformers, identity over boards and everything else that needs a model is tested on these."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.family_configs import FAMILY_CONFIGS
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.moe_configs import MOE_CONFIGS
from tests.position_configs import POSITION_CONFIGS
from tests.variant_tensors import make_tensors
from tests.variant_tokenizer import make_tokenizer

Scale = Literal["init", "x3"]
BOS, EOS, PAD = 0, 1, 2


@dataclass(frozen=True)
class Variant:
    """A checkpoint that can be written: config.json's fields and how its files look."""

    name: str
    config: dict[str, Any]
    dtype: Literal["F32", "F16", "BF16"] = "F32"
    prefix: bool = True
    shards: int = 1
    extra: tuple[str, ...] = field(default=())  # buffers of old files, to be ignored


def _gpt2(**fields: Any) -> dict[str, Any]:
    base = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": 384,
        "n_layer": 2,
        "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new",
    }
    return {**base, **fields}


def _opt(**fields: Any) -> dict[str, Any]:
    base = {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "num_hidden_layers": 2,
        "max_position_embeddings": 384,
        "activation_function": "relu",
    }
    return {**base, **fields}


def _llama(**fields: Any) -> dict[str, Any]:
    base = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "max_position_embeddings": 384,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    return {**base, **fields}


VARIANTS: tuple[Variant, ...] = (
    Variant("gpt2", _gpt2(n_embd=192, n_head=12, vocab_size=515), extra=("h.0.attn.bias",)),
    Variant(
        "gpt2_layer_scale",
        _gpt2(
            n_embd=128,
            n_head=8,
            n_inner=320,
            n_layer=3,
            vocab_size=300,
            activation_function="gelu",
            scale_attn_by_inverse_layer_idx=True,
        ),
        dtype="F16",
        prefix=False,
    ),
    Variant(
        "gpt2_unscaled",
        _gpt2(
            n_embd=160,
            n_head=10,
            vocab_size=331,
            activation_function="gelu_pytorch_tanh",
            scale_attn_weights=False,
            tie_word_embeddings=False,
        ),
        dtype="BF16",
    ),
    Variant(
        "opt",
        _opt(hidden_size=160, num_attention_heads=10, ffn_dim=416, vocab_size=387),
        dtype="F16",
    ),
    Variant(
        "opt_post_norm",
        _opt(
            hidden_size=128,
            num_attention_heads=8,
            ffn_dim=256,
            vocab_size=297,
            do_layer_norm_before=False,
            word_embed_proj_dim=80,
        ),
    ),
    Variant(
        "opt_plain",
        _opt(
            hidden_size=192,
            num_attention_heads=8,
            ffn_dim=352,
            vocab_size=301,
            enable_bias=False,
            layer_norm_elementwise_affine=False,
            activation_function="gelu",
        ),
        shards=3,
    ),
    Variant(
        "opt_no_final_norm",
        _opt(
            hidden_size=144,
            num_attention_heads=9,
            ffn_dim=288,
            vocab_size=299,
            _remove_final_layer_norm=True,
            tie_word_embeddings=False,
        ),
    ),
    Variant(
        "llama",
        _llama(hidden_size=144, num_attention_heads=9, intermediate_size=392, vocab_size=521),
    ),
    Variant(
        "llama_gqa_tied",
        _llama(
            hidden_size=192,
            num_attention_heads=12,
            num_key_value_heads=4,
            head_dim=32,
            intermediate_size=400,
            vocab_size=330,
            tie_word_embeddings=True,
        ),
        dtype="BF16",
        shards=2,
        extra=("layers.0.self_attn.rotary_emb.inv_freq",),
    ),
    Variant(
        "llama_gqa_bias",
        _llama(
            hidden_size=144,
            num_attention_heads=12,
            num_key_value_heads=3,
            head_dim=24,
            intermediate_size=336,
            vocab_size=311,
            attention_bias=True,
            mlp_bias=True,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        ),
    ),
    Variant(
        "llama_linear",
        _llama(
            hidden_size=128,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=64,
            intermediate_size=352,
            vocab_size=317,
            rope_theta=10000.0,
            rope_scaling={"type": "linear", "factor": 4.0},
        ),
        dtype="F16",
    ),
    Variant(
        "llama_llama3",
        _llama(
            hidden_size=160,
            num_attention_heads=10,
            num_key_value_heads=5,
            head_dim=48,
            intermediate_size=416,
            vocab_size=345,
            max_position_embeddings=512,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        ),
    ),
    Variant(
        "llama_narrow",
        _llama(
            hidden_size=48,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=16,
            rope_theta=2e4,
            intermediate_size=80,
            vocab_size=290,
            num_hidden_layers=3,
        ),
    ),
    Variant(
        "mistral",
        _llama(
            model_type="mistral",
            architectures=["MistralForCausalLM"],
            hidden_size=96,
            num_attention_heads=8,
            num_key_value_heads=4,
            head_dim=16,
            intermediate_size=224,
            vocab_size=309,
            sliding_window=None,
        ),
        dtype="BF16",
    ),
    *(Variant(name, config) for name, config in FAMILY_CONFIGS.items()),
    *(Variant(name, config) for name, config in POSITION_CONFIGS.items()),
    *(Variant(name, config) for name, config in MOE_CONFIGS.items()),
    *(Variant(name, config) for name, config in HYBRID_CONFIGS.items()),
)


def variant(name: str) -> Variant:
    """The variant called `name`. StopIteration if there is none."""
    return next(one for one in VARIANTS if one.name == name)


def write_checkpoint(which: Variant, folder: Path, scale: Scale = "init") -> Path:
    """Write config.json, safetensors, tokenizer.json and generation_config.json into `folder`
    (made where missing) and return it. Every byte follows from the variant and the scale."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    dtype = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[which.dtype]
    config = {**which.config, **ids, "dtype": dtype, "transformers_version": "5.0.0"}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", ids)
    make_tokenizer(which.config["vocab_size"]).save(str(folder / "tokenizer.json"))
    tensors = make_tensors(which.name, which.config, which.prefix, 3.0 if scale == "x3" else 1.0)
    for name in which.extra:
        tensors[_extra_name(which, name)] = np.zeros((4,), np.float32)
    write_weights(folder, tensors, which.dtype, which.shards)
    return folder


def _extra_name(which: Variant, name: str) -> str:
    prefix = "transformer." if which.config["model_type"] == "gpt2" else "model."
    return prefix + name if which.prefix else name


def write_weights(
    folder: Path, tensors: dict[str, np.ndarray[Any, Any]], dtype: str, shards: int
) -> None:
    """Write FP32 values that `dtype` holds into `shards` files, with an index where several."""
    if shards == 1:
        (folder / "model.safetensors").write_bytes(write_container(tensors, dtype))
        return
    places = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = dict(list(tensors.items())[shard::shards])
        (folder / file).write_bytes(write_container(part, dtype))
        places.update(dict.fromkeys(part, file))
    total = sum(array.nbytes for array in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    _write_json(folder / "model.safetensors.index.json", index)


def write_container(tensors: dict[str, np.ndarray[Any, Any]], dtype: str) -> bytes:
    """A safetensors file. By hand: the library writes BF16 only from torch's tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, array in tensors.items():
        start = len(data)
        data += _encode(array, dtype)
        shape = list(array.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(data)


def _encode(array: np.ndarray[Any, Any], dtype: str) -> bytes:
    """FP32 values of FP16 precision as raw bytes; BF16 drops the lower half's bits."""
    if dtype == "F16":
        return array.astype("<f2").tobytes()
    if dtype == "BF16":
        return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return array.astype("<f4").tobytes()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
