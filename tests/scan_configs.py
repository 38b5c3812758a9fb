"""config.json of random models with Mamba2's layers, two of each family, and the names of their
tensors, as hybrid_configs.py has them of other models with recurrences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_COMMON = {"max_position_embeddings": 384, "tie_word_embeddings": False, "hidden_act": "silu"}
_GRANITE = {"model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
            **_COMMON, "rms_norm_eps": 1e-5, "attention_bias": False, "mamba_proj_bias": False,
            "mamba_expand": 2, "rope_theta": 5000.0}  # fmt: skip
_FALCON = {"model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], **_COMMON,
           "rms_norm_eps": 1e-5, "num_hidden_layers": 2, "mamba_norm_before_gate": False,
           "rope_theta": 5000.0}  # fmt: skip
_NEMOTRON = {"model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"],
             "max_position_embeddings": 384, "layer_norm_epsilon": 1e-5,
             "tie_word_embeddings": False, "mlp_hidden_act": "relu2"}  # fmt: skip
_MAMBA, _FULL = "linear_attention", "full_attention"

SCAN_CONFIGS: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {
        **_GRANITE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "num_hidden_layers": 4, "intermediate_size": 72, "shared_intermediate_size": 88,
        "num_local_experts": 5, "num_experts_per_tok": 2, "vocab_size": 293,
        "position_embedding_type": "rope", "embedding_multiplier": 12.0,
        "residual_multiplier": 0.4, "attention_multiplier": 0.0625, "logits_scaling": 6.0,
        "mamba_n_heads": 18, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 24,
        "mamba_d_conv": 4, "mamba_conv_bias": True,
        "layer_types": [_MAMBA, _MAMBA, _FULL, _MAMBA],
    },
    "granitemoehybrid_dense": {
        **_GRANITE, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "intermediate_size": 88, "shared_intermediate_size": 200,
        "num_local_experts": 0, "num_experts_per_tok": 0, "vocab_size": 281,
        "position_embedding_type": None, "embedding_multiplier": 3.3,
        "residual_multiplier": 0.7, "attention_multiplier": 0.5, "logits_scaling": 2.0,
        "mamba_n_heads": 14, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 20,
        "mamba_d_conv": 3, "mamba_conv_bias": False, "time_step_limit": [0.1, 0.3],
        "layer_types": [_FULL, _MAMBA, _MAMBA], "tie_word_embeddings": True,
    },
    "falcon_h1": {
        **_FALCON, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 24, "intermediate_size": 200, "vocab_size": 285, "mamba_d_ssm": 288,
        "mamba_n_heads": 9, "mamba_d_head": 32, "mamba_n_groups": 3, "mamba_d_state": 20,
        "mamba_d_conv": 4, "mamba_conv_bias": True, "mamba_rms_norm": True,
        "embedding_multiplier": 5.5, "lm_head_multiplier": 0.25, "mlp_multipliers": [0.8, 1.5],
        "key_multiplier": 0.7, "attention_in_multiplier": 1.2, "attention_out_multiplier": 0.9,
        "ssm_multipliers": [0.7, 1.3, 0.8, 1.1, 0.6], "ssm_in_multiplier": 1.25,
        "ssm_out_multiplier": 0.75,
    },
    "falcon_h1_plain": {
        **_FALCON, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 8, "intermediate_size": 232, "vocab_size": 279, "mamba_d_ssm": 224,
        "mamba_n_heads": 14, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 24,
        "mamba_d_conv": 3, "mamba_conv_bias": False, "mamba_rms_norm": False,
        "time_step_limit": [0.1, 0.3], "tie_word_embeddings": True,
    },
    "nemotron_h": {
        **_NEMOTRON, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 16, "intermediate_size": 200, "vocab_size": 287, "mamba_num_heads": 18,
        "mamba_head_dim": 12, "n_groups": 3, "ssm_state_size": 24, "conv_kernel": 4,
        "use_conv_bias": True,
        "layers_block_type": [_MAMBA, "mlp", _MAMBA, _FULL, "mlp", _MAMBA],
    },
    "nemotron_h_pattern": {
        **_NEMOTRON, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 12, "intermediate_size": 232, "vocab_size": 283, "mamba_num_heads": 14,
        "mamba_head_dim": 20, "n_groups": 1, "ssm_state_size": 20, "conv_kernel": 2,
        "use_conv_bias": False, "time_step_min": 0.15, "hybrid_override_pattern": "*-M*M-",
    },
}  # fmt: skip
SCAN_KINDS = frozenset(config["model_type"] for config in SCAN_CONFIGS.values())
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _kinds(c: dict[str, Any]) -> list[str]:
    """What each layer is made of."""
    letters = {"M": _MAMBA, "*": _FULL, "-": "mlp"}
    if c["model_type"] == "falcon_h1":
        return ["both"] * c["num_hidden_layers"]
    if "hybrid_override_pattern" in c:
        return [letters[letter] for letter in c["hybrid_override_pattern"]]
    found: list[str] = c.get("layer_types") or c["layers_block_type"]
    return found


def scan_shapes(c: dict[str, Any]) -> Shapes:
    """Names and shapes of the tensors, as transformers saves them."""
    d, family = c["hidden_size"], c["model_type"]
    tokens = "embeddings" if family == "nemotron_h" else "embed_tokens"
    yield f"model.{tokens}.weight", (c["vocab_size"], d)
    for layer, kind in enumerate(_kinds(c)):
        h = f"model.layers.{layer}."
        parts = _nemotron(c, kind) if family == "nemotron_h" else _layer(c, kind)
        yield from ((h + name, shape) for name, shape in parts)
    final = {"nemotron_h": "norm_f", "falcon_h1": "final_layernorm"}.get(family, "norm")
    yield f"model.{final}.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _layer(c: dict[str, Any], kind: str) -> Shapes:
    d, ffn = c["hidden_size"], c["intermediate_size"]
    yield "input_layernorm.weight", (d,)
    if kind in (_FULL, "both"):
        yield from _attention(c, "self_attn")
    if kind in (_MAMBA, "both"):
        yield from _mamba(c, "mamba")
    if c["model_type"] == "granitemoehybrid":
        yield "post_attention_layernorm.weight", (d,)
        yield from _mlp(c)
        return
    yield "pre_ff_layernorm.weight", (d,)
    for name, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
        yield f"feed_forward.{name}_proj.weight", shape


def _nemotron(c: dict[str, Any], kind: str) -> Shapes:
    d, ffn = c["hidden_size"], c["intermediate_size"]
    yield "norm.weight", (d,)
    if kind == "mlp":
        yield "mixer.up_proj.weight", (ffn, d)
        yield "mixer.down_proj.weight", (d, ffn)
    else:
        yield from _attention(c, "mixer") if kind == _FULL else _mamba(c, "mixer")


def _sizes(c: dict[str, Any]) -> tuple[int, int, int, int, bool]:
    """A scan's heads, values, keys, kernel; whether its convolution has biases."""
    if c["model_type"] == "nemotron_h":
        heads = c["mamba_num_heads"]
        return (heads, heads * c["mamba_head_dim"], c["n_groups"] * c["ssm_state_size"],
                c["conv_kernel"], c["use_conv_bias"])  # fmt: skip
    heads = c["mamba_n_heads"]
    return (heads, heads * c["mamba_d_head"], c["mamba_n_groups"] * c["mamba_d_state"],
            c["mamba_d_conv"], c["mamba_conv_bias"])  # fmt: skip


def _attention(c: dict[str, Any], lead: str) -> Shapes:
    d, heads = c["hidden_size"], c["num_attention_heads"]
    size = c.get("head_dim") or d // heads
    q, kv = heads * size, c["num_key_value_heads"] * size
    for part, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
        yield f"{lead}.{part}_proj.weight", shape


def _mamba(c: dict[str, Any], lead: str) -> Shapes:
    d = c["hidden_size"]
    heads, values, keys, kernel, biased = _sizes(c)
    wide = values + 2 * keys
    yield f"{lead}.in_proj.weight", (values + wide + heads, d)
    yield f"{lead}.conv1d.weight", (wide, 1, kernel)
    if biased:
        yield f"{lead}.conv1d.bias", (wide,)
    for name in ("A_log", "dt_bias", "D"):
        yield f"{lead}.{name}", (heads,)
    if c.get("mamba_rms_norm", True):
        yield f"{lead}.norm.weight", (values,)
    yield f"{lead}.out_proj.weight", (d, values)


def _mlp(c: dict[str, Any]) -> Shapes:
    d, count, ffn = c["hidden_size"], c["num_local_experts"], c["intermediate_size"]
    if count:
        yield "block_sparse_moe.router.layer.weight", (count, d)
        yield "block_sparse_moe.input_linear.weight", (count, 2 * ffn, d)
        yield "block_sparse_moe.output_linear.weight", (count, d, ffn)
    yield "shared_mlp.input_linear.weight", (2 * c["shared_intermediate_size"], d)
    yield "shared_mlp.output_linear.weight", (d, c["shared_intermediate_size"])


def scan_rows(c: dict[str, Any], module: str, outputs: int) -> dict[str, list[int]]:
    """Canonical name within its layer -> the module's outputs that it has, in its order."""
    last, every = module.rpartition(".")[2], list(range(outputs))
    if last == "in_proj":
        heads, values, keys, _, _ = _sizes(c)
        found, first = {}, 0
        sizes = {"z": values, "v": values, "k": keys, "q": keys, "a": heads}
        for part, size in sizes.items():
            found[f"mix.{part}"] = every[first : first + size]
            first += size
        return found
    if last == "out_proj":
        return {"mix.o": every}
    shared = "shared." if c.get("num_local_experts") else ""
    if last == "input_linear":
        return {f"{shared}gate": every[: outputs // 2], f"{shared}up": every[outputs // 2 :]}
    return {f"{shared}down" if last == "output_linear" else last.removesuffix("_proj"): every}
