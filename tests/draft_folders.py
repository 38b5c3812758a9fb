"""Random drafts for the random small models: a model of another seed, and an EAGLE-3 head."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.variant_tensors import normal
from tests.variants import Variant, write_checkpoint


def write_draft_model(which: Variant, folder: Path) -> Path:
    """A model of the same shape and tokens with other weights."""
    return write_checkpoint(replace(which, name=f"{which.name}_draft"), folder)


def write_head(
    which: Variant, folder: Path, tokens: int, layer: str = "midlayer", **fields: Any
) -> Path:
    """An EAGLE-3 head for a LLaMA variant, whose draft vocabulary are `tokens` of the model's,
    every second one from the highest down. `fields` are added to its config."""
    folder.mkdir(parents=True, exist_ok=True)
    config = which.config
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    keys = config.get("num_key_value_heads", heads) * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, 3 * hidden),
        "norm": (hidden,),
        "lm_head": (tokens, hidden),
        f"{layer}.hidden_norm": (hidden,),
        f"{layer}.input_layernorm": (hidden,),
        f"{layer}.post_attention_layernorm": (hidden,),
        f"{layer}.self_attn.q_proj": (heads * head_dim, 2 * hidden),
        f"{layer}.self_attn.k_proj": (keys, 2 * hidden),
        f"{layer}.self_attn.v_proj": (keys, 2 * hidden),
        f"{layer}.self_attn.o_proj": (hidden, heads * head_dim),
        f"{layer}.mlp.gate_proj": (ffn, hidden),
        f"{layer}.mlp.up_proj": (ffn, hidden),
        f"{layer}.mlp.down_proj": (hidden, ffn),
    }
    tensors: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        values = normal(f"head/{name}", int(np.prod(shape))).reshape(shape)
        values = values * 0.1 + 1 if len(shape) == 1 else values * 0.05
        tensors[f"{name}.weight"] = values.astype(np.float16)
    ids = np.arange(tokens)
    tensors["d2t"] = (which.config["vocab_size"] - 1 - 3 * ids).astype(np.int64)
    tensors["t2d"] = np.isin(np.arange(config["vocab_size"]), ids + tensors["d2t"])
    save_file(tensors, str(folder / "model.safetensors"))
    head = {**config, "num_hidden_layers": 1, "draft_vocab_size": tokens, **fields}
    (folder / "config.json").write_text(json.dumps(head))
    return folder
