"""Names and shapes of the tensors of the families in tests/family_configs.py, as transformers saves
them. Written apart from the SDK's tables of names, which it is there to check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Shape = tuple[int, ...]
Shapes = Iterator[tuple[str, Shape]]
Config = dict[str, Any]


def _linear(name: str, outputs: int, inputs: int, bias: bool) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)


def _norm(name: str, size: int) -> Shapes:
    yield f"{name}.weight", (size,)
    yield f"{name}.bias", (size,)


def _sizes(c: Config) -> tuple[int, int, int, int]:
    """hidden, ffn, columns of q, columns of k."""
    heads = c["num_attention_heads"]
    size = c.get("head_dim") or c["hidden_size"] // heads
    kv = c.get("num_key_value_heads") or heads
    return c["hidden_size"], c["intermediate_size"], heads * size, kv * size


def _qwen2(c: Config) -> Shapes:
    d, ffn, q, kv = _sizes(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield h + "input_layernorm.weight", (d,)
        yield h + "post_attention_layernorm.weight", (d,)
        for part, outputs in (("q", q), ("k", kv), ("v", kv)):
            yield from _linear(f"{h}self_attn.{part}_proj", outputs, d, True)
        yield h + "self_attn.o_proj.weight", (d, q)
        for part, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
            yield f"{h}mlp.{part}_proj.weight", shape
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _gptj(c: Config) -> Shapes:
    d, ffn = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    yield "transformer.wte.weight", (c["vocab_size"], d)
    for layer in range(c["n_layer"]):
        h = f"transformer.h.{layer}."
        yield from _norm(h + "ln_1", d)
        for part in ("k", "v", "q", "out"):
            yield f"{h}attn.{part}_proj.weight", (d, d)
        yield from _linear(h + "mlp.fc_in", ffn, d, True)
        yield from _linear(h + "mlp.fc_out", d, ffn, True)
    yield from _norm("transformer.ln_f", d)
    yield from _linear("lm_head", c["vocab_size"], d, True)


def _gpt_neox(c: Config) -> Shapes:
    d, ffn, _, _ = _sizes(c)
    bias = c.get("attention_bias", True)
    yield "gpt_neox.embed_in.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"gpt_neox.layers.{layer}."
        yield from _norm(h + "input_layernorm", d)
        yield from _norm(h + "post_attention_layernorm", d)
        yield from _linear(h + "attention.query_key_value", 3 * d, d, bias)
        yield from _linear(h + "attention.dense", d, d, bias)
        yield from _linear(h + "mlp.dense_h_to_4h", ffn, d, True)
        yield from _linear(h + "mlp.dense_4h_to_h", d, ffn, True)
    yield from _norm("gpt_neox.final_layer_norm", d)
    yield "embed_out.weight", (c["vocab_size"], d)


def _phi(c: Config) -> Shapes:
    d, ffn, q, kv = _sizes(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield from _norm(h + "input_layernorm", d)
        for part, outputs in (("q", q), ("k", kv), ("v", kv)):
            yield from _linear(f"{h}self_attn.{part}_proj", outputs, d, True)
        yield from _linear(h + "self_attn.dense", d, q, True)
        yield from _linear(h + "mlp.fc1", ffn, d, True)
        yield from _linear(h + "mlp.fc2", d, ffn, True)
    yield from _norm("model.final_layernorm", d)
    yield from _linear("lm_head", c["vocab_size"], d, True)


def _stablelm(c: Config) -> Shapes:
    d, ffn, q, kv = _sizes(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield from _norm(h + "input_layernorm", d)
        if not c.get("use_parallel_residual"):
            yield from _norm(h + "post_attention_layernorm", d)
        for part, outputs in (("q", q), ("k", kv), ("v", kv)):
            yield from _linear(f"{h}self_attn.{part}_proj", outputs, d, c["use_qkv_bias"])
        yield h + "self_attn.o_proj.weight", (d, q)
        for part, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
            yield f"{h}mlp.{part}_proj.weight", shape
    yield from _norm("model.norm", d)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (c["vocab_size"], d)


def _starcoder2(c: Config) -> Shapes:
    d, ffn, q, kv = _sizes(c)
    bias = c.get("use_bias", True)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield from _norm(h + "input_layernorm", d)
        yield from _norm(h + "post_attention_layernorm", d)
        for part, outputs in (("q", q), ("k", kv), ("v", kv)):
            yield from _linear(f"{h}self_attn.{part}_proj", outputs, d, bias)
        yield from _linear(h + "self_attn.o_proj", d, q, bias)
        yield from _linear(h + "mlp.c_fc", ffn, d, bias)
        yield from _linear(h + "mlp.c_proj", d, ffn, bias)
    yield from _norm("model.norm", d)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _phi3(c: Config) -> Shapes:
    d, ffn, q, kv = _sizes(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        yield h + "input_layernorm.weight", (d,)
        yield h + "post_attention_layernorm.weight", (d,)
        yield h + "self_attn.qkv_proj.weight", (q + 2 * kv, d)
        yield h + "self_attn.o_proj.weight", (d, q)
        yield h + "mlp.gate_up_proj.weight", (2 * ffn, d)
        yield h + "mlp.down_proj.weight", (d, ffn)
    yield "model.norm.weight", (d,)
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", (c["vocab_size"], d)


def _gpt_bigcode(c: Config) -> Shapes:
    d, ffn = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    kv = d // c["n_head"] if c.get("multi_query", True) else d
    yield "transformer.wte.weight", (c["vocab_size"], d)
    yield "transformer.wpe.weight", (c["n_positions"], d)
    for layer in range(c["n_layer"]):
        h = f"transformer.h.{layer}."
        yield from _norm(h + "ln_1", d)
        yield from _norm(h + "ln_2", d)
        yield from _linear(h + "attn.c_attn", d + 2 * kv, d, True)
        yield from _linear(h + "attn.c_proj", d, d, True)
        yield from _linear(h + "mlp.c_fc", ffn, d, True)
        yield from _linear(h + "mlp.c_proj", d, ffn, True)
    yield from _norm("transformer.ln_f", d)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _llama_like(
    c: Config, norms: tuple[str, ...], qk: tuple[int, int] | None, bias: bool = False
) -> Shapes:
    """LLaMA's names with other norms. `qk`: sizes of the norms of q and k."""
    d, ffn, q, kv = _sizes(c)
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"model.layers.{layer}."
        for norm in norms:
            yield f"{h}{norm}_layernorm.weight", (d,)
        for part, size in zip("qk", qk or (), strict=False):
            yield f"{h}self_attn.{part}_norm.weight", (size,)
        attention = c.get("attention_bias", bias)
        for part, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
            yield from _linear(f"{h}self_attn.{part}_proj", *shape, attention)
        for part, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
            yield from _linear(f"{h}mlp.{part}_proj", *shape, c.get("mlp_bias", False))
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def _plain(c: Config) -> Shapes:
    yield from _llama_like(c, ("input", "post_attention"), None)


def _qwen3(c: Config) -> Shapes:
    size = c["head_dim"]
    yield from _llama_like(c, ("input", "post_attention"), (size, size))


def _olmo2(c: Config) -> Shapes:
    yield from _llama_like(c, ("post_attention", "post_feedforward"), _sizes(c)[2:])


def _gemma2(c: Config) -> Shapes:
    norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    size = c["head_dim"]
    qk = (size, size) if c["model_type"] == "gemma3_text" else None
    yield from _llama_like(c, norms, qk)


def _bloom(c: Config) -> Shapes:
    d = c["hidden_size"]
    yield "transformer.word_embeddings.weight", (c["vocab_size"], d)
    yield from _norm("transformer.word_embeddings_layernorm", d)
    for layer in range(c["n_layer"]):
        h = f"transformer.h.{layer}."
        yield from _norm(h + "input_layernorm", d)
        yield from _norm(h + "post_attention_layernorm", d)
        yield from _linear(h + "self_attention.query_key_value", 3 * d, d, True)
        yield from _linear(h + "self_attention.dense", d, d, True)
        yield from _linear(h + "mlp.dense_h_to_4h", 4 * d, d, True)
        yield from _linear(h + "mlp.dense_4h_to_h", d, 4 * d, True)
    yield from _norm("transformer.ln_f", d)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _mpt(c: Config) -> Shapes:
    d = c["d_model"]
    yield "transformer.wte.weight", (c["vocab_size"], d)
    for layer in range(c["n_layers"]):
        h = f"transformer.blocks.{layer}."
        yield h + "norm_1.weight", (d,)
        yield h + "norm_2.weight", (d,)
        yield h + "attn.Wqkv.weight", (3 * d, d)
        yield h + "attn.out_proj.weight", (d, d)
        yield h + "ffn.up_proj.weight", (4 * d, d)
        yield h + "ffn.down_proj.weight", (d, 4 * d)
    yield "transformer.norm_f.weight", (d,)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _falcon(c: Config) -> Shapes:
    d, ffn = c["hidden_size"], c.get("ffn_hidden_size") or 4 * c["hidden_size"]
    new, heads = c["new_decoder_architecture"], c["num_attention_heads"]
    kv = c.get("num_kv_heads", heads) if new else 1 if c["multi_query"] else heads
    if new:
        norms = ["ln_attn", "ln_mlp"]
    else:
        norms = ["input_layernorm"] + ([] if c["parallel_attn"] else ["post_attention_layernorm"])
    yield "transformer.word_embeddings.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"transformer.h.{layer}."
        for name in norms:
            yield from _norm(h + name, d)
        fused = (heads + 2 * kv) * (d // heads)
        yield from _linear(h + "self_attention.query_key_value", fused, d, c["bias"])
        yield from _linear(h + "self_attention.dense", d, d, c["bias"])
        yield from _linear(h + "mlp.dense_h_to_4h", ffn, d, c["bias"])
        yield from _linear(h + "mlp.dense_4h_to_h", d, ffn, c["bias"])
    yield from _norm("transformer.ln_f", d)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _cohere(c: Config) -> Shapes:
    yield from _llama_like({"tie_word_embeddings": True, **c}, ("input",), None)


FAMILY_SHAPES: dict[str, Callable[[Config], Shapes]] = {
    "qwen2": _qwen2,
    "gptj": _gptj,
    "gpt_neox": _gpt_neox,
    "phi": _phi,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "phi3": _phi3,
    "gpt_bigcode": _gpt_bigcode,
    "qwen3": _qwen3,
    "olmo2": _olmo2,
    "granite": _plain,
    "smollm3": _plain,
    "bloom": _bloom,
    "mpt": _mpt,
    "falcon": _falcon,
    "gemma": _plain,
    "gemma2": _gemma2,
    "gemma3_text": _gemma2,
    "cohere": _cohere,
}
