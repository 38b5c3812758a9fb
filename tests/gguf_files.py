"""GGUF files of the random models, written with the `gguf` package as llama.cpp's converter would:
its names of keys and tensors, and the rows that the converter moves."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.variant_tensors import make_tensors
from tests.variant_tokenizer import make_tokenizer
from tests.variants import BOS, EOS, PAD, Variant

Array = NDArray[Any]
Types = Callable[[str, Array], gguf.GGMLQuantizationType]
ARCHITECTURES = {
    "llama": "LLAMA", "mistral": "LLAMA", "qwen2": "QWEN2", "qwen3": "QWEN3", "olmo2": "OLMO2",
    "granite": "GRANITE", "smollm3": "SMOLLM3", "phi": "PHI2", "phi3": "PHI3",
    "stablelm": "STABLELM", "starcoder2": "STARCODER2", "gpt2": "GPT2", "gpt_bigcode": "STARCODER",
    "gpt_neox": "GPTNEOX", "bloom": "BLOOM", "mpt": "MPT", "falcon": "FALCON",
    "mixtral": "LLAMA", "qwen2_moe": "QWEN2MOE", "qwen3_moe": "QWEN3MOE", "olmoe": "OLMOE",
    "granitemoe": "GRANITE_MOE", "granitemoeshared": "GRANITE_MOE", "gemma": "GEMMA",
    "gemma2": "GEMMA2", "gemma3_text": "GEMMA3", "gpt_oss": "GPT_OSS",
}  # fmt: skip
GEMMA = ("gemma", "gemma2", "gemma3_text")
GRANITES = ("granite", "granitemoe", "granitemoeshared")
PERMUTED = ("llama", "mistral", "smollm3", "mixtral", *GRANITES)


ROUTER = "ffn_gate_inp"


def as_f16(name: str, array: Array) -> gguf.GGMLQuantizationType:
    """Matrices in FP16, vectors in FP32."""
    kinds = gguf.GGMLQuantizationType
    wide = array.ndim == 1 or ROUTER in name or name.endswith(".bias")
    return kinds.F32 if wide else kinds.F16


def matrices_as(kind: str) -> Types:
    """Matrices of the layers in `kind` where a row holds whole blocks."""

    def chosen(name: str, array: Array) -> gguf.GGMLQuantizationType:
        blocks = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]
        fits = as_f16(name, array).name == "F16" and array.shape[-1] % blocks == 0
        return gguf.GGMLQuantizationType[kind] if fits else as_f16(name, array)

    return chosen


def write_gguf(
    which: Variant,
    path: Path,
    types: Types = as_f16,
    factor: float = 1.0,
    more: Callable[[gguf.GGUFWriter], None] | None = None,
    split: int = 0,
) -> Path:
    """Write a variant's model, its tensors in the `types` that a function of the file's name and
    the array gives. `more` adds keys. `split`: that many tensors at most in a file."""
    config = which.config
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[config["model_type"]]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture], split_max_tensors=split)
    add_keys(writer, config)
    add_tokens(writer, config["vocab_size"])
    if more is not None:
        more(writer)
    layers = _field(config, "num_hidden_layers", "n_layer", "n_layers")
    names = gguf.get_tensor_name_map(architecture, layers)
    tensors = make_tensors(which.name, config, which.prefix, factor)
    if which.dtype == "BF16":
        tensors = {name: _cut(array) for name, array in tensors.items()}
    for hugging_face, array in with_experts(config, converted(config, tensors)).items():
        bare = hugging_face.removeprefix("transformer.")  # the converter drops BLOOM's
        found = (names.get_name(n, try_suffixes=(".weight", ".bias")) for n in (hugging_face, bare))
        own = (hugging_face,) if hugging_face.startswith("blk.") else ()
        name = next(one for one in (*own, *found) if one is not None)
        kind = types(name, array)
        plain = kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
        data = np.ascontiguousarray(array)
        if plain:
            dtype = np.float16 if kind.name == "F16" else np.float32
            writer.add_tensor(name, data.astype(dtype))
        else:
            writer.add_tensor(name, packed(data, kind), raw_dtype=kind)
    for name, factors in rope_factors(config).items():
        writer.add_tensor(name, factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SCALES = {"Q2_K": (80, 84), "Q3_K": (108, 110), "Q4_K": (0, 4), "Q5_K": (0, 4), "Q6_K": (208, 210),
          "IQ4_NL": (0, 2)}  # fmt: skip
"""Bytes of the FP16 numbers in blocks that the package does not make."""


def packed(data: NDArray[np.float32], kind: gguf.GGMLQuantizationType) -> NDArray[np.uint8]:
    """The rows in blocks; where the package cannot make them, blocks of any values and scales of
    about 2^-13, some of them much smaller."""
    try:
        return gguf.quants.quantize(data, kind)
    except NotImplementedError:
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (*data.shape[:-1], data.shape[-1] // weights, size)
        blocks = np.random.default_rng(data.size).integers(0, 256, shape).astype(np.uint8)
        start, stop = SCALES[kind.name]
        for high in range(start + 1, stop, 2):
            blocks[..., high] = blocks[..., high] & 0x83 | np.where(blocks[..., high] & 16, 0x08, 0)
        return blocks.reshape(*data.shape[:-1], -1)


def converted(config: Mapping[str, Any], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors with their rows where the converter puts them."""
    kind = config["model_type"]
    heads = _field(config, "num_attention_heads", "n_head", "n_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    found = {}
    for name, array in tensors.items():
        moved = array
        if kind.startswith("gemma") and name.endswith("norm.weight"):
            moved = array + np.float32(1)
        elif kind in PERMUTED and ".q_proj." in name:
            moved = _adjacent(array, heads)
        elif kind in PERMUTED and ".k_proj." in name:
            moved = _adjacent(array, kv_heads)
        elif kind == "gpt2" and array.ndim > 1 and (".c_" in name):
            moved = array.T
        elif kind in ("gpt_neox", "bloom") and "query_key_value" in name:
            parts = array.reshape(heads, 3, -1, *array.shape[1:])
            moved = parts.swapaxes(0, 1).reshape(array.shape)
        elif kind == "falcon" and "query_key_value" in name:
            moved = _falcon(config, array, heads)
        found[name] = moved
    return found


def with_experts(config: Mapping[str, Any], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The matrices of a layer's experts in one tensor of three axes, gate and up apart."""
    found: dict[str, Array] = {}
    experts: dict[str, list[Array]] = {}
    for name, array in tensors.items():
        turns = re.fullmatch(
            r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj(_bias)?", name
        )
        if turns:  # GPT-OSS: [experts, inputs, outputs], gate and up in turns
            outputs = array if turns[3] else array.swapaxes(1, 2)
            lead, end = f"blk.{turns[1]}.ffn_", "bias" if turns[3] else "weight"
            if turns[2] == "down":
                found[f"{lead}down_exps.{end}"] = outputs
            else:
                found[f"{lead}gate_exps.{end}"] = outputs[:, ::2]
                found[f"{lead}up_exps.{end}"] = outputs[:, 1::2]
            continue
        if name.endswith("sinks"):
            found[f"blk.{name.split('.')[2]}.attn_sinks.weight"] = array
            continue
        one = re.fullmatch(r"(.*\.experts)\.\d+\.(\w+\.weight)", name)
        if one:
            experts.setdefault(f"{one[1]}.{one[2]}", []).append(array)
        elif name.endswith("input_linear.weight"):
            layer, kind = name.split(".")[2], "shexp" if "shared_mlp" in name else "exps"
            for part, half in zip(("gate", "up"), np.split(array, 2, axis=-2), strict=True):
                found[f"blk.{layer}.ffn_{part}_{kind}.weight"] = half
        else:
            found[name] = array
    return found | {name: np.stack(arrays) for name, arrays in experts.items()}


def _cut(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """What BF16 keeps."""
    return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _adjacent(array: Array, heads: int) -> Array:
    """Halves of each head's rows interleaved."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def _falcon(config: Mapping[str, Any], array: Array, heads: int) -> Array:
    new = config["new_decoder_architecture"]
    groups = config.get("num_kv_heads", heads) if new else 1
    size = config["hidden_size"] // heads
    parts = array.reshape(groups, heads // groups + 2, size, *array.shape[1:])
    pieces = (parts[:, :-2], parts[:, -2], parts[:, -1])
    return np.concatenate([piece.reshape(-1, *array.shape[1:]) for piece in pieces])


def rope_factors(config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """What the converter stores of longrope and of Llama 3's scaling, in FP32."""
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"], np.float32)
            for kind in ("long", "short")
        }
    if rope.get("rope_type") != "llama3":
        return {}
    size = config["head_dim"]
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    frequencies = np.float32(1) / np.float32(rope["rope_theta"]) ** exponents
    old, low, high = (
        rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    )  # fmt: skip
    factors = []
    for frequency in frequencies.tolist():
        wave = 2 * math.pi / frequency
        smooth = (old / wave - low) / (high - low)
        blended = 1 / ((1 - smooth) / rope["factor"] + smooth)
        short, long = wave < old / high, wave > old / low
        factors.append(1.0 if short else rope["factor"] if long else blended)
    return {"rope_freqs.weight": np.array(factors, np.float32)}


def add_keys(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """The architecture's keys."""
    hidden = _field(config, "hidden_size", "n_embd", "d_model")
    heads = _field(config, "num_attention_heads", "n_head", "n_heads")
    size = config.get("head_dim") or hidden // heads
    rope = config.get("rope_parameters") or {}
    local = rope.get("sliding_attention", {})
    rope = rope.get("full_attention", rope)
    writer.add_context_length(
        _field(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    )
    writer.add_embedding_length(hidden)
    writer.add_block_count(_field(config, "num_hidden_layers", "n_layer", "n_layers"))
    inner = ("intermediate_size", "n_inner", "ffn_hidden_size")
    writer.add_feed_forward_length(next((config[n] for n in inner if config.get(n)), 4 * hidden))
    writer.add_head_count(heads)
    kv_heads = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
    writer.add_head_count_kv(1 if _one_kv_head(config) else kv_heads)
    _add_eps(writer, config)
    factor = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor")
    factor = factor or config.get("rotary_pct") or (0.5 if config["model_type"] == "phi" else 1.0)
    if config["model_type"] not in ("gpt2", "gpt_bigcode", "bloom", "mpt", *GEMMA):
        writer.add_rope_dimension_count(int(factor * size))
    if "head_dim" in config:
        writer.add_key_length(size)
        writer.add_value_length(size)
    theta = rope.get("rope_theta") or config.get("rope_theta") or config.get("rotary_emb_base")
    if theta:
        writer.add_rope_freq_base(theta)
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "longrope":
        original = config["original_max_position_embeddings"]
        scale = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(original)))
    scaling = config.get("rope_scaling") or {}
    if "linear" in (scaling.get("type"), scaling.get("rope_type")):
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config["rope_scaling"]["factor"])
    if config["model_type"] in ("gpt_neox", "stablelm"):
        writer.add_parallel_residual(config["use_parallel_residual"])
    if config["model_type"] in GRANITES:
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    for field, add in (
        ("num_local_experts", writer.add_expert_count),
        ("num_experts", writer.add_expert_count),
        ("num_experts_per_tok", writer.add_expert_used_count),
        ("moe_intermediate_size", writer.add_expert_feed_forward_length),
        ("shared_expert_intermediate_size", writer.add_expert_shared_feed_forward_length),
        ("shared_intermediate_size", writer.add_expert_shared_feed_forward_length),
    ):
        if config.get(field):
            add(config[field])
    if config["model_type"] == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if config.get("sliding_window") and not config.get("max_window_layers"):
        writer.add_sliding_window(config["sliding_window"])
    if config["model_type"] in GEMMA:
        _add_gemma(writer, config, local)
    if config["model_type"] == "mpt":
        writer.add_max_alibi_bias(8)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _add_gemma(
    writer: gguf.GGUFWriter, config: Mapping[str, Any], local: Mapping[str, Any]
) -> None:
    theta = local.get("rope_theta") or config.get("rope_local_base_freq")
    if theta:
        writer.add_rope_freq_base_swa(theta)
    if config.get("attn_logit_softcapping"):
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("layer_types"):
        writer.add_sliding_window_pattern(
            [kind == "sliding_attention" for kind in config["layer_types"]]
        )
    elif "sliding_window_pattern" in config:
        writer.add_sliding_window_pattern(config["sliding_window_pattern"])


def _one_kv_head(config: Mapping[str, Any]) -> bool:
    if config["model_type"] == "falcon":
        return not config["new_decoder_architecture"]
    return config["model_type"] == "gpt_bigcode"


def _add_eps(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        return
    names = ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon")
    writer.add_layer_norm_eps(next((config[n] for n in names if n in config), 1e-5))


def add_tokens(writer: gguf.GGUFWriter, size: int) -> None:
    """The byte-level tokenizer of the random models."""
    tokenizer = make_tokenizer(size)
    pieces = [tokenizer.id_to_token(token) for token in range(size)]
    kinds = gguf.TokenType
    special = (BOS, EOS, PAD)
    types = [kinds.CONTROL if token in special else kinds.NORMAL for token in range(size)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types(types)
    merges = [f"{piece[0]} {piece[1]}" for piece in pieces if len(piece) == 2 and piece.isalpha()]
    writer.add_token_merges(merges)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_pad_token_id(PAD)


def _field(config: Mapping[str, Any], *names: str) -> Any:
    return next(config[name] for name in names if name in config)
