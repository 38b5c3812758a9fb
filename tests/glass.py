"""GlassLM's trained models (MIT), as model folders: English and Portuguese, stored in FP16, of
Llama's arithmetic with an inner width of 341. The package computes them in NumPy by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Arrays = Mapping[str, NDArray[np.float16]]
CONTEXT = 128
MATRICES = {
    "attn.W_Q": "self_attn.q_proj", "attn.W_K": "self_attn.k_proj", "attn.W_V": "self_attn.v_proj",
    "attn.W_O": "self_attn.o_proj", "ffn.W1": "mlp.gate_proj", "ffn.W3": "mlp.up_proj",
    "ffn.W2": "mlp.down_proj",
}  # fmt: skip
NORMS = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}


def write_glass(package: Path, language: str, folder: Path) -> Path:
    """The package's model of a language as a Hugging Face folder."""
    folder.mkdir(parents=True)
    with np.load(package / "weights" / f"{language}.npz") as file:
        fields = json.loads(str(file["__config__"]))
        tensors = dict(
            _tensors({name: file[name] for name in file if name != "__config__"}, fields)
        )
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "float16",
        "vocab_size": fields["vocab_size"], "hidden_size": fields["d_model"],
        "intermediate_size": tensors["model.layers.0.mlp.up_proj.weight"].shape[0],
        "num_hidden_layers": fields["n_layers"], "num_attention_heads": fields["n_heads"],
        "num_key_value_heads": fields["n_kv_heads"], "rms_norm_eps": fields["eps"],
        "max_position_embeddings": fields["max_len"], "tie_word_embeddings": True,
        "rope_theta": fields["rope_base"], "hidden_act": "silu",
        "bos_token_id": None, "eos_token_id": 3, "pad_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    words = json.loads((package / "weights" / f"{language}.tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(words)))
    return folder


def _tensors(arrays: Arrays, fields: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    yield "model.embed_tokens.weight", arrays["E"]
    yield "model.norm.weight", arrays["norm_f.gamma"]
    size = fields["d_model"] // fields["n_heads"]
    for layer in range(fields["n_layers"]):
        lead, own = f"blocks.{layer}", f"model.layers.{layer}"
        for name, norm in NORMS.items():
            yield f"{own}.{norm}.weight", arrays[f"{lead}.{name}.gamma"]
        for name, matrix in MATRICES.items():
            w = arrays[f"{lead}.{name}"].T
            if name in ("attn.W_Q", "attn.W_K"):  # rotated pairs are neighbours, here halves
                w = w.reshape(-1, size // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)
            yield f"{own}.{matrix}.weight", np.ascontiguousarray(w)


def _tokenizer(words: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer.json of its byte-pair encoding of characters."""
    special = ["<pad>", "<unk>", "<bos>", "<eos>"]
    tokens = [*special, *words["alphabet"], *(a + b for a, b in words["merges"])]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "\\n|\u2581*[^\u2581\\n]+|\u2581+"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [list(pair) for pair in words["merges"]],
        },
    }  # fmt: skip
