"""Names, shapes and values of a variant's tensors, as saved by transformers. They do not use the
SDK's tables of names, which they check."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.family_tensors import FAMILY_SHAPES
from tests.hybrid_configs import HYBRID_KINDS, hybrid_shapes
from tests.moe_configs import MOE_KINDS, moe_shapes
from tests.scan_configs import SCAN_KINDS

WEIGHT_STD = 0.02
EMBED_STD = 0.06  # large enough for tokens to differ despite the biases
BIAS_STD = 0.06  # large enough for a missing bias to be detected
NORM_STD = 0.1
CHOICE_STD = 0.1
TAP_FACTOR = 15  # of a convolution's weights
MIX_FACTOR = 2  # of the inputs of a recurrence
SCAN_VECTORS = {"A_log": (0.5, 0.0), "dt_bias": (0.5, -1.5), "D": (0.3, 1.0)}
"""Deviations and means of a scan's vectors: it remembers a page, and D shows."""
EMBEDDINGS = ("wte", "wpe", "embed_", "word_embeddings")
# The centered sum of four uniform 16-bit numbers: nearly normal, and exact on every machine.
_SUM_STD = 65536.0 / np.sqrt(3.0)

Shape = tuple[int, ...]


def make_tensors(
    name: str, config: dict[str, Any], prefix: bool, factor: float
) -> dict[str, NDArray[np.float32]]:
    """File's tensor name -> FP32 values that FP16 holds; all but the norms times `factor`."""
    kind = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    if kind in MOE_KINDS:
        return {full: _values(name, full, shape, factor) for full, shape in moe_shapes(config)}
    if kind in HYBRID_KINDS:
        return dict(_hybrid(name, config, factor))
    if kind in FAMILY_SHAPES:
        assert prefix, kind
        shapes = FAMILY_SHAPES[kind](config)
        center = 0.0 if kind.startswith("gemma") else 1.0  # its norms multiply by 1 + w
        return {full: _values(name, full, shape, factor, center) for full, shape in shapes}
    shapes = {"gpt2": _gpt2, "opt": _opt, "llama": _llama}[kind](config)
    lead = {"gpt2": "transformer.", "opt": "model.decoder.", "llama": "model."}[kind]
    tensors = {}
    for tensor, shape in shapes:
        full = lead + tensor if prefix and not tensor.startswith("lm_head") else tensor
        tensors[full] = _values(name, tensor, shape, factor)
    return tensors


def _hybrid(
    name: str, config: dict[str, Any], factor: float
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Recurrences are of three factors and more: without larger ones they would vanish."""
    # The others' norms multiply by 1 + w, but one.
    plain = config["model_type"].startswith(("lfm2", *SCAN_KINDS))
    for full, shape in hybrid_shapes(config):
        center = 1.0 if plain or "linear_attn.norm" in full else 0.0
        own = factor * (MIX_FACTOR if "in_proj" in full else 1)
        yield full, _values(name, full, shape, TAP_FACTOR if "conv" in full and len(shape) > 2
                            else own, center)  # fmt: skip


def normal(key: str, count: int) -> NDArray[np.float64]:
    """`count` numbers with mean 0 and deviation 1, determined by `key`."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "little")
    words: NDArray[np.uint64] = np.random.PCG64(seed).random_raw(count)
    parts = words.astype("<u8").view("<u2").reshape(count, 4).astype(np.int64)
    total: NDArray[np.float64] = parts.sum(axis=1) - 2.0 * 65535
    scaled: NDArray[np.float64] = total / _SUM_STD
    return scaled


def _values(
    name: str, tensor: str, shape: Shape, factor: float, center: float = 1.0
) -> NDArray[np.float32]:
    draw = normal(f"{name}/{tensor}", int(np.prod(shape)))
    if tensor.endswith(
        ("e_score_correction_bias", "expert_bias")
    ):  # stays FP32; so different that it decides
        return (draw * CHOICE_STD + 1).astype(np.float32)
    if (".mamba." in tensor or ".mixer." in tensor) and tensor.endswith(tuple(SCAN_VECTORS)):
        spread, middle = SCAN_VECTORS[tensor.rpartition(".")[2]]
        draw = draw * spread + middle
        return draw.astype(np.float16).astype(np.float32)
    if len(shape) > 1:
        last = tensor.removesuffix(".weight").rpartition(".")[2]
        draw *= (EMBED_STD if last.startswith(EMBEDDINGS) else WEIGHT_STD) * factor
    elif "norm" in tensor or "ln_" in tensor:
        draw *= NORM_STD
        draw += center if tensor.endswith(".weight") else 0.0
    else:
        draw *= BIAS_STD * factor
    return draw.astype(np.float16).astype(np.float32).reshape(shape)


Shapes = Iterator[tuple[str, Shape]]


def _gpt2(c: dict[str, Any]) -> Shapes:
    d, ffn = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    yield "wte.weight", (c["vocab_size"], d)
    yield "wpe.weight", (c["n_positions"], d)
    for layer in range(c["n_layer"]):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            yield h + norm + ".weight", (d,)
            yield h + norm + ".bias", (d,)
        for part, shape in (
            ("attn.c_attn", (d, 3 * d)),
            ("attn.c_proj", (d, d)),
            ("mlp.c_fc", (d, ffn)),
            ("mlp.c_proj", (ffn, d)),
        ):
            yield h + part + ".weight", shape
            yield h + part + ".bias", shape[1:]
    yield "ln_f.weight", (d,)
    yield "ln_f.bias", (d,)
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], d)


def _opt(c: dict[str, Any]) -> Shapes:
    d, ffn, e = c["hidden_size"], c["ffn_dim"], c.get("word_embed_proj_dim") or c["hidden_size"]
    affine, bias = c.get("layer_norm_elementwise_affine", True), c.get("enable_bias", True)
    before = c.get("do_layer_norm_before", True)
    yield "embed_tokens.weight", (c["vocab_size"], e)
    yield "embed_positions.weight", (c["max_position_embeddings"] + 2, d)
    if e != d:
        yield "project_in.weight", (d, e)
        yield "project_out.weight", (e, d)
    norms = ["final_layer_norm"] if before and not c.get("_remove_final_layer_norm") else []
    linears = []
    for layer in range(c["num_hidden_layers"]):
        h = f"layers.{layer}."
        norms += [h + "self_attn_layer_norm", h + "final_layer_norm"]
        linears += [(h + f"self_attn.{p}_proj", (d, d)) for p in ("q", "k", "v", "out")]
        linears += [(h + "fc1", (ffn, d)), (h + "fc2", (d, ffn))]
    for norm in norms if affine else []:
        yield norm + ".weight", (d,)
        yield norm + ".bias", (d,)
    for linear, shape in linears:
        yield linear + ".weight", shape
        if bias:
            yield linear + ".bias", shape[:1]
    if not c.get("tie_word_embeddings", True):
        yield "lm_head.weight", (c["vocab_size"], e)


def _llama(c: dict[str, Any]) -> Shapes:
    d, ffn, heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"]
    head_dim = c.get("head_dim") or d // heads
    q, kv = heads * head_dim, c.get("num_key_value_heads", heads) * head_dim
    yield "embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        h = f"layers.{layer}."
        yield h + "input_layernorm.weight", (d,)
        yield h + "post_attention_layernorm.weight", (d,)
        for part, shape in (("q", (q, d)), ("k", (kv, d)), ("v", (kv, d)), ("o", (d, q))):
            yield h + f"self_attn.{part}_proj.weight", shape
            if c.get("attention_bias"):
                yield h + f"self_attn.{part}_proj.bias", shape[:1]
        for part, shape in (("gate", (ffn, d)), ("up", (ffn, d)), ("down", (d, ffn))):
            yield h + f"mlp.{part}_proj.weight", shape
            if c.get("mlp_bias"):
                yield h + f"mlp.{part}_proj.bias", shape[:1]
    yield "norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)
