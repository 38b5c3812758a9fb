"""config.json of random models with Mamba2's layers, two of each family, and the names of their
tensors, as hybrid_configs.py has them of other models with recurrences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_COMMON = {"max_position_embeddings": 384, "tie_word_embeddings": False, "hidden_act": "silu"}
_GRANITE = {"model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
            **_COMMON, "rms_norm_eps": 1e-5, "attention_bias": False, "mamba_proj_bias": False,
            "mamba_expand": 2, "rope_theta": 5000.0}  # fmt: skip
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
}  # fmt: skip
SCAN_KINDS = frozenset(config["model_type"] for config in SCAN_CONFIGS.values())
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def scan_shapes(c: dict[str, Any]) -> Shapes:
    """Names and shapes of the tensors, as transformers saves them."""
    d = c["hidden_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer, kind in enumerate(c["layer_types"]):
        h = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{h}{norm}.weight", (d,)
        parts = _attention(c) if kind == _FULL else _mamba(c, f"{h}mamba")
        yield from ((name if name.startswith(h) else h + name, shape) for name, shape in parts)
        yield from ((h + name, shape) for name, shape in _mlp(c))
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _attention(c: dict[str, Any]) -> Shapes:
    d, heads = c["hidden_size"], c["num_attention_heads"]
    size = c.get("head_dim") or d // heads
    q, kv = heads * size, c["num_key_value_heads"] * size
    for part, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
        yield f"self_attn.{part}_proj.weight", shape


def _mamba(c: dict[str, Any], lead: str) -> Shapes:
    d, heads = c["hidden_size"], c["mamba_n_heads"]
    values, keys = heads * c["mamba_d_head"], c["mamba_n_groups"] * c["mamba_d_state"]
    wide = values + 2 * keys
    yield f"{lead}.in_proj.weight", (values + wide + heads, d)
    yield f"{lead}.conv1d.weight", (wide, 1, c["mamba_d_conv"])
    if c["mamba_conv_bias"]:
        yield f"{lead}.conv1d.bias", (wide,)
    for name in ("A_log", "dt_bias", "D"):
        yield f"{lead}.{name}", (heads,)
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
        values = c["mamba_n_heads"] * c["mamba_d_head"]
        keys, found, first = c["mamba_n_groups"] * c["mamba_d_state"], {}, 0
        sizes = {"z": values, "v": values, "k": keys, "q": keys, "a": c["mamba_n_heads"]}
        for part, size in sizes.items():
            found[f"mix.{part}"] = every[first : first + size]
            first += size
        return found
    if last == "out_proj":
        return {"mix.o": every}
    shared = "shared." if c["num_local_experts"] else ""
    if last == "input_linear":
        return {f"{shared}gate": every[: outputs // 2], f"{shared}up": every[outputs // 2 :]}
    return {f"{shared}down" if last == "output_linear" else last.removesuffix("_proj"): every}
