"""config.json of random models of which some layers have no attention: two of each family, with odd
sizes, grouped heads and other features than the defaults; and the names of their tensors, written
apart from the SDK's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.scan_configs import SCAN_CONFIGS, SCAN_KINDS, scan_rows, scan_shapes

_COMMON = {"max_position_embeddings": 384, "tie_word_embeddings": False}
_LFM2 = {"model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], **_COMMON, "norm_eps": 1e-5,
         "pad_token_id": None, "rope_theta": 5000.0}  # fmt: skip
_QWEN = {**_COMMON, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False,
         "num_hidden_layers": 4}  # fmt: skip
_QWEN35 = {"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"], **_QWEN}
_NEXT = {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], **_QWEN}
_LFM2_MOE = {**_LFM2, "model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"]}
_QWEN35_MOE = {**_QWEN35, "model_type": "qwen3_5_moe_text",
               "architectures": ["Qwen3_5MoeForCausalLM"]}  # fmt: skip
_CONV, _FULL, _DELTA = "conv", "full_attention", "linear_attention"


def _rope(factor: float, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": factor, **more}


HYBRID_CONFIGS: dict[str, dict[str, Any]] = {
    "lfm2": {
        **_LFM2, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "num_hidden_layers": 4, "intermediate_size": 200, "block_auto_adjust_ff_dim": False,
        "vocab_size": 291, "conv_L_cache": 3, "layer_types": [_CONV, _FULL, _CONV, _FULL],
    },
    "lfm2_last": {
        **_LFM2, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "intermediate_size": 200, "block_multiple_of": 24,
        "vocab_size": 283, "conv_L_cache": 4, "layer_types": [_FULL, _CONV, _CONV],
        "tie_word_embeddings": True,
    },
    "qwen3_5": {
        **_QWEN35, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 16, "intermediate_size": 200, "vocab_size": 293,
        "linear_num_key_heads": 3, "linear_key_head_dim": 16, "linear_num_value_heads": 9,
        "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4,
        "layer_types": [_DELTA, _DELTA, _DELTA, _FULL],
        "rope_parameters": _rope(0.5, mrope_section=[2, 1, 1]),
    },
    "qwen3_5_last": {
        **_QWEN35, "hidden_size": 112, "num_attention_heads": 8, "num_key_value_heads": 8,
        "head_dim": 12, "intermediate_size": 232, "vocab_size": 287,
        "linear_num_key_heads": 8, "linear_key_head_dim": 12, "linear_num_value_heads": 8,
        "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3,
        "layer_types": [_DELTA, _FULL, _FULL, _DELTA], "tie_word_embeddings": True,
        "rope_parameters": _rope(1.0, mrope_section=[2, 2, 2]),
    },
    "qwen3_next": {
        **_NEXT, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 24, "intermediate_size": 296, "vocab_size": 299,
        "moe_intermediate_size": 72, "shared_expert_intermediate_size": 88, "num_experts": 6,
        "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "linear_num_key_heads": 3, "linear_key_head_dim": 20,
        "linear_num_value_heads": 6, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
        "layer_types": [_DELTA, _DELTA, _DELTA, _FULL], "rope_parameters": _rope(0.25),
    },
    "qwen3_next_mixed": {
        **_NEXT, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 232, "vocab_size": 280,
        "moe_intermediate_size": 104, "shared_expert_intermediate_size": 40, "num_experts": 5,
        "num_experts_per_tok": 3, "norm_topk_prob": False, "decoder_sparse_step": 2,
        "mlp_only_layers": [1], "linear_num_key_heads": 2, "linear_key_head_dim": 16,
        "linear_num_value_heads": 4, "linear_value_head_dim": 28, "linear_conv_kernel_dim": 2,
        "layer_types": [_FULL, _DELTA, _DELTA, _DELTA], "tie_word_embeddings": True,
        "rope_parameters": _rope(0.5),
    },
    "qwen3_5_moe": {
        **_QWEN35_MOE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "head_dim": 16, "vocab_size": 297, "moe_intermediate_size": 72,
        "shared_expert_intermediate_size": 88, "num_experts": 6, "num_experts_per_tok": 2,
        "linear_num_key_heads": 3, "linear_key_head_dim": 16, "linear_num_value_heads": 9,
        "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4,
        "layer_types": [_DELTA, _DELTA, _DELTA, _FULL],
        "rope_parameters": _rope(0.5, mrope_section=[2, 1, 1]),
    },
    "qwen3_5_moe_stacked": {
        **_QWEN35_MOE, "hidden_size": 112, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 12, "vocab_size": 282, "moe_intermediate_size": 104,
        "shared_expert_intermediate_size": 40, "num_experts": 5, "num_experts_per_tok": 3,
        "linear_num_key_heads": 4, "linear_key_head_dim": 12, "linear_num_value_heads": 8,
        "linear_value_head_dim": 10, "linear_conv_kernel_dim": 3,
        "layer_types": [_DELTA, _FULL, _FULL, _DELTA], "tie_word_embeddings": True,
        "rope_parameters": _rope(1.0, mrope_section=[2, 2, 2]),
    },
    "lfm2_moe": {
        **_LFM2_MOE, "hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3,
        "num_hidden_layers": 4, "intermediate_size": 200, "moe_intermediate_size": 72,
        "num_experts": 8, "num_experts_per_tok": 3, "num_dense_layers": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 1.0, "use_expert_bias": True,
        "vocab_size": 289, "conv_L_cache": 3, "layer_types": [_CONV, _CONV, _FULL, _CONV],
    },
    "lfm2_moe_plain": {
        **_LFM2_MOE, "hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2,
        "num_hidden_layers": 3, "intermediate_size": 208, "moe_intermediate_size": 104,
        "num_experts": 5, "num_experts_per_tok": 2, "num_dense_layers": 0,
        "norm_topk_prob": False, "routed_scaling_factor": 1.7, "use_expert_bias": True,
        "vocab_size": 277, "conv_L_cache": 4, "layer_types": [_FULL, _CONV, _CONV],
        "tie_word_embeddings": True,
    },
    **SCAN_CONFIGS,
}  # fmt: skip
HYBRID_KINDS = frozenset(config["model_type"] for config in HYBRID_CONFIGS.values())
Shapes = Iterator[tuple[str, tuple[int, ...]]]


def hybrid_shapes(c: dict[str, Any]) -> Shapes:
    """Names and shapes of the tensors, as transformers saves them."""
    if c["model_type"] in SCAN_KINDS:
        yield from scan_shapes(c)
        return
    d, lfm2 = c["hidden_size"], _lfm2(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer, kind in enumerate(c["layer_types"]):
        h = f"model.layers.{layer}."
        for norm in ("operator_norm", "ffn_norm") if lfm2 else (
            "input_layernorm", "post_attention_layernorm"
        ):  # fmt: skip
            yield f"{h}{norm}.weight", (d,)
        parts = {_FULL: _attention, _CONV: _conv, _DELTA: _delta}[kind](c)
        yield from ((h + name, shape) for name, shape in parts)
        yield from ((h + name, shape) for name, shape in _mlp(c, layer))
    yield "model.embedding_norm.weight" if lfm2 else "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _attention(c: dict[str, Any]) -> Shapes:
    d, heads, lfm2 = c["hidden_size"], c["num_attention_heads"], _lfm2(c)
    size = c.get("head_dim") or d // heads
    q, kv = heads * size, c["num_key_value_heads"] * size
    for part in "qk":
        yield f"self_attn.{part}_{'layernorm' if lfm2 else 'norm'}.weight", (size,)
    for part, outputs in (("q", q if lfm2 else 2 * q), ("k", kv), ("v", kv)):
        yield f"self_attn.{part}_proj.weight", (outputs, d)
    yield f"self_attn.{'out' if lfm2 else 'o'}_proj.weight", (d, q)


def _conv(c: dict[str, Any]) -> Shapes:
    d = c["hidden_size"]
    yield "conv.in_proj.weight", (3 * d, d)
    yield "conv.conv.weight", (d, 1, c["conv_L_cache"])
    yield "conv.out_proj.weight", (d, d)


def _delta(c: dict[str, Any]) -> Shapes:
    d, heads = c["hidden_size"], c["linear_num_value_heads"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = heads * c["linear_value_head_dim"]
    inputs = {"qkv": 2 * keys + values, "z": values, "b": heads, "a": heads}
    if c["model_type"] == "qwen3_next":
        inputs = {"qkvz": 2 * keys + 2 * values, "ba": 2 * heads}
    for part, outputs in inputs.items():
        yield f"linear_attn.in_proj_{part}.weight", (outputs, d)
    yield "linear_attn.conv1d.weight", (2 * keys + values, 1, c["linear_conv_kernel_dim"])
    yield "linear_attn.A_log", (heads,)
    yield "linear_attn.dt_bias", (heads,)
    yield "linear_attn.norm.weight", (c["linear_value_head_dim"],)
    yield "linear_attn.out_proj.weight", (d, values)


def _lfm2(c: dict[str, Any]) -> bool:
    """LFM2, with experts or without."""
    found: bool = c["model_type"].startswith("lfm2")
    return found


def _inner(c: dict[str, Any]) -> int:
    """The inner size of LFM2's MLP."""
    ffn: int = c["intermediate_size"]
    if c["model_type"] == "lfm2_moe" or not c.get("block_auto_adjust_ff_dim", True):
        return ffn
    step = c["block_multiple_of"]
    return step * -(-(2 * ffn // 3) // step)


def _mlp(c: dict[str, Any], layer: int) -> Shapes:
    d = c["hidden_size"]
    if _lfm2(c):
        yield from _lfm2_mlp(c, layer)
        return
    if "num_experts" not in c or layer in c.get("mlp_only_layers", ()) or (
        (layer + 1) % c.get("decoder_sparse_step", 1)
    ):  # fmt: skip
        yield from _gated("mlp", d, c["intermediate_size"])
        return
    count, ffn = c["num_experts"], c["moe_intermediate_size"]
    yield "mlp.gate.weight", (count, d)
    if c["model_type"] == "qwen3_5_moe_text" and c["tie_word_embeddings"]:  # as in released files
        yield "mlp.experts.gate_up_proj", (count, 2 * ffn, d)
        yield "mlp.experts.down_proj", (count, d, ffn)
    else:
        for expert in range(count):
            yield from _gated(f"mlp.experts.{expert}", d, ffn)
    yield "mlp.shared_expert_gate.weight", (1, d)
    yield from _gated("mlp.shared_expert", d, c["shared_expert_intermediate_size"])


def _lfm2_mlp(c: dict[str, Any], layer: int) -> Shapes:
    d = c["hidden_size"]
    ffn, leads = _inner(c), ["feed_forward"]
    if layer >= c.get("num_dense_layers", c["num_hidden_layers"]):
        ffn = c["moe_intermediate_size"]
        leads = [f"feed_forward.experts.{expert}" for expert in range(c["num_experts"])]
        yield "feed_forward.gate.weight", (c["num_experts"], d)
        yield "feed_forward.expert_bias", (c["num_experts"],)
    for lead in leads:
        for name, shape in (("w1", (ffn, d)), ("w3", (ffn, d)), ("w2", (d, ffn))):
            yield f"{lead}.{name}.weight", shape


def _gated(lead: str, d: int, ffn: int) -> Shapes:
    for name, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
        yield f"{lead}.{name}_proj.weight", shape


def canonical_rows(c: dict[str, Any], module: str, outputs: int) -> dict[str, list[int]]:
    """Canonical name within its layer -> the module's outputs that it has, in its order."""
    if c["model_type"] in SCAN_KINDS:
        return scan_rows(c, module, outputs)
    last, every = module.rpartition(".")[2], list(range(outputs))
    if last == "in_proj":
        return {f"mix.{part}": every[i * outputs // 3 :][: outputs // 3]
                for i, part in enumerate("bcx")}  # fmt: skip
    if last == "out_proj" and "self_attn" not in module:
        return {"mix.o": every}
    if last.startswith("in_proj_"):
        return _delta_rows(c, last, every)
    if last in ("q_proj", "k_proj") and not _lfm2(c):
        size, order = c["head_dim"], _rotated(c)
        step = 2 * size if last == "q_proj" else size
        heads = range(0, outputs, step)
        found = {last[0]: [head + column for head in heads for column in order]}
        if last == "q_proj":
            found["q_gate"] = [head + size + column for head in heads for column in range(size)]
        return found
    names = {"out_proj": "o", "w1": "gate", "w3": "up", "w2": "down"}
    own = names.get(last, last.removesuffix("_proj"))
    return {f"shared.{own}" if ".shared_expert." in module else own: every}


def _rotated(c: dict[str, Any]) -> list[int]:
    """A head's columns as boards rotate them: the pairs first in each half."""
    size = c["head_dim"]
    width = int(size * c["rope_parameters"]["partial_rotary_factor"])
    half, rest = width // 2, (size - width) // 2
    return [*range(half), *range(width, width + rest), *range(half, width),
            *range(width + rest, size)]  # fmt: skip


def _delta_rows(c: dict[str, Any], last: str, every: list[int]) -> dict[str, list[int]]:
    parts = last.removeprefix("in_proj_")
    group = c["linear_num_value_heads"] // c["linear_num_key_heads"]
    keys, values = c["linear_key_head_dim"], group * c["linear_value_head_dim"]
    sizes = {"q": keys, "k": keys, "v": values, "z": values, "a": group, "b": group}
    heads, found, first = c["linear_num_key_heads"], {}, 0
    fused = c["model_type"] == "qwen3_next"  # of each key head all parts, else part after part
    for part in parts:
        size = sizes[part]
        step = sum(sizes[one] for one in parts) if fused else size
        found[f"mix.{part}"] = [every[first + head * step + i] for head in range(heads)
                                for i in range(size)]  # fmt: skip
        first += size if fused else size * heads
    return found
