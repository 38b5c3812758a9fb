"""Random PEFT folders for the models of tests/variants.py, the same bytes on every machine. They do
not use the SDK's tables of names, which they check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from lora_sdk.adapters.weights import Target
from tests.family_tensors import FAMILY_SHAPES
from tests.hybrid_configs import HYBRID_KINDS, canonical_rows, hybrid_shapes
from tests.moe_configs import MOE_KINDS, moe_shapes
from tests.variant_tensors import normal
from tests.variants import Variant, write_container

BD_A = ("o_proj", "out_proj", "down_proj", "fc2", "c_proj")
BD_B = ("q_proj", "k_proj", "v_proj", "up_proj", "gate_proj", "fc1", "c_fc", "c_attn")
STD = 0.06  # large enough to change logits by a good part of their deviation


@dataclass(frozen=True)
class Folder:
    """An adapter that can be written. `blocks`: nblocks of BD-LoRA, 0 for plain LoRA."""

    name: str
    rank: int = 8
    blocks: int = 0
    targets: Sequence[str] | str | None = None  # None: all linears of the layers
    config: Mapping[str, Any] = field(default_factory=dict)
    drop: Sequence[str] = ()  # substrings of the names of omitted tensors


ADAPTED = (
    r"\.\d+\.(self_attn|conv|linear_attn|mamba|shared_mlp|feed_forward\.(w\d|\w+_proj)|mixer|"
    r"mlp\.(shared_expert\.|\w+_proj))"
)
"""Of models with recurrences: all linears but routers and experts that rows choose."""


def linears(config: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """(module, inputs, outputs) of every linear of the layers, named as PEFT names them."""
    kind = config["model_type"]
    if kind in MOE_KINDS:  # neither of experts that rows choose nor of routers
        for tensor, shape in moe_shapes(dict(config)):
            own = r"\.(self_attn|shared_experts?|shared_mlp)\.|\.mlp\.\w+_proj\."
            if len(shape) == 2 and re.search(own, tensor):
                yield tensor.removesuffix(".weight"), shape[1], shape[0]
        return
    if kind in HYBRID_KINDS:
        for tensor, shape in hybrid_shapes(dict(config)):
            if len(shape) == 2 and re.search(ADAPTED, tensor):
                yield tensor.removesuffix(".weight"), shape[1], shape[0]
        return
    if kind in FAMILY_SHAPES:
        for tensor, shape in FAMILY_SHAPES[kind](dict(config)):
            if len(shape) == 2 and re.search(r"\.\d+\.", tensor):
                yield tensor.removesuffix(".weight"), shape[1], shape[0]
        return
    if kind == "gpt2":
        d, ffn = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
        parts = {
            "attn.c_attn": (d, 3 * d),
            "attn.c_proj": (d, d),
            "mlp.c_fc": (d, ffn),
            "mlp.c_proj": (ffn, d),
        }
        lead, layers = "transformer.h", config["n_layer"]
    elif kind == "opt":
        d, ffn = config["hidden_size"], config["ffn_dim"]
        parts = {f"self_attn.{p}_proj": (d, d) for p in ("q", "k", "v", "out")}
        parts |= {"fc1": (d, ffn), "fc2": (ffn, d)}
        lead, layers = "model.decoder.layers", config["num_hidden_layers"]
    else:
        d, ffn, heads = (
            config[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads")
        )
        size = config.get("head_dim") or d // heads
        kv = config.get("num_key_value_heads", heads) * size
        parts = {
            "self_attn.q_proj": (d, heads * size),
            "self_attn.k_proj": (d, kv),
            "self_attn.v_proj": (d, kv),
            "self_attn.o_proj": (heads * size, d),
            "mlp.gate_proj": (d, ffn),
            "mlp.up_proj": (d, ffn),
            "mlp.down_proj": (ffn, d),
        }
        lead, layers = "model.layers", config["num_hidden_layers"]
    for layer in range(layers):
        for part, (inputs, outputs) in parts.items():
            yield f"{lead}.{layer}.{part}", inputs, outputs


def write_adapter(model: Variant, folder: Folder, path: Path) -> Path:
    """Write adapter_config.json and adapter_model.safetensors into `path` and return it."""
    path.mkdir(parents=True, exist_ok=True)
    chosen = list(linears(model.config))
    names = (
        folder.targets
        if folder.targets is not None
        else sorted({module.rpartition(".")[2] for module, _, _ in chosen})
    )
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": folder.rank,
        "lora_alpha": 2 * folder.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": names,
        "fan_in_fan_out": model.config["model_type"] == "gpt2",
        "use_bdlora": None,
    }
    if folder.blocks:
        config["use_bdlora"] = {
            "target_modules_bd_a": list(BD_A),
            "target_modules_bd_b": list(BD_B),
            "nblocks": folder.blocks,
        }
    config.update(folder.config)
    (path / "adapter_config.json").write_text(json.dumps(config, indent=1))
    tensors: dict[str, NDArray[np.float32]] = {}
    for module, inputs, outputs in chosen:
        last = module.rpartition(".")[2]
        if isinstance(names, str) or last not in names:
            continue
        rank = config.get("rank_pattern", {}).get(last, folder.rank)
        a = (rank, inputs // (folder.blocks if folder.blocks and last in BD_A else 1))
        b = (outputs, rank // (folder.blocks if folder.blocks and last in BD_B else 1))
        lead = f"base_model.model.{module}.lora_"
        tensors[f"{lead}A.weight"] = _values(folder.name, f"{module}.A", a)
        tensors[f"{lead}B.weight"] = _values(folder.name, f"{module}.B", b)
    kept = {n: t for n, t in tensors.items() if not any(part in n for part in folder.drop)}
    (path / "adapter_model.safetensors").write_bytes(write_container(kept, "F32"))
    return path


def _values(name: str, tensor: str, shape: tuple[int, int]) -> NDArray[np.float32]:
    draw = normal(f"{name}/{tensor}", int(np.prod(shape))) * STD
    return draw.astype(np.float16).astype(np.float32).reshape(shape)


LATENT = {
    "q_a_proj": ("q_a",), "q_b_proj": ("q",),
    "kv_a_proj_with_mqa": ("kv_a", "k_rope"), "kv_b_proj": ("k", "v"),
}  # fmt: skip
"""Of latent attention: modules, and the tensors that have some of their outputs."""


def read_factors(model: Variant, path: Path) -> dict[str, tuple[Any, Any, float]]:
    """Canonical name -> (A [rank, inputs], B [outputs, rank], scale), FP32, blocks written out."""
    config = json.loads((path / "adapter_config.json").read_text())
    tensors = load_file(path / "adapter_model.safetensors")
    found: dict[str, tuple[Any, Any, float]] = {}
    for module, inputs, outputs in linears(model.config):
        if f"base_model.model.{module}.lora_A.weight" not in tensors:
            continue
        a, b = (tensors[f"base_model.model.{module}.lora_{f}.weight"] for f in "AB")
        a = _written_out(a, inputs // a.shape[1])
        b = _written_out(b, len(a) // b.shape[1])
        rank = len(a)
        last = module.rpartition(".")[2]
        alpha = config.get("alpha_pattern", {}).get(last, config["lora_alpha"])
        scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
        layer = next(part for part in module.split(".") if part.isdigit())
        if model.config["model_type"] in HYBRID_KINDS:
            for own, rows in canonical_rows(dict(model.config), module, outputs).items():
                found[f"layer.{layer}.{own}"] = (a, b[rows], scale)
        elif last == "c_attn":
            for index, letter in enumerate("qkv"):
                rows = slice(index * outputs // 3, (index + 1) * outputs // 3)
                found[f"layer.{layer}.{letter}"] = (a, b[rows], scale)
        elif last == "input_linear":
            for part, half in zip(("gate", "up"), np.split(b, 2), strict=True):
                found[f"layer.{layer}.shared.{part}"] = (a, half, scale)
        elif last in LATENT:
            for own in LATENT[last]:
                found[f"layer.{layer}.{own}"] = (a, b, scale)
        else:
            found[f"layer.{layer}.{_canonical(module)}"] = (a, b, scale)
    return found


def _canonical(module: str) -> str:
    last = module.rpartition(".")[2]
    if last == "c_proj":
        return "o" if ".attn." in module else "down"
    if ".shared_" in module:
        return "shared.down" if last == "output_linear" else f"shared.{last.removesuffix('_proj')}"
    names = {"c_fc": "up", "fc1": "up", "fc2": "down", "out_proj": "o"}
    return names.get(last, last.removesuffix("_proj"))


def _written_out(packed: NDArray[np.float32], blocks: int) -> NDArray[np.float32]:
    rows, columns = packed.shape
    dense = np.zeros((rows, columns * blocks), np.float32)
    for i, block in enumerate(np.split(packed, blocks)):
        dense[i * len(block) : (i + 1) * len(block), i * columns : (i + 1) * columns] = block
    return dense


def dense_factors(target: Target) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """(A [rank, inputs], B [count, rank]) of a canonical tensor with blocks written out."""
    module = target.module
    a = _block_diagonal(module.a, module.a_blocks)
    b = _block_diagonal(module.b, module.b_blocks)
    return a, b[target.first : target.first + target.count]


def _block_diagonal(packed: NDArray[np.float16], blocks: int) -> NDArray[np.float16]:
    rows, columns = packed.shape
    dense = np.zeros((rows, columns * blocks), np.float16)
    for block, (top, left) in enumerate(_corners(rows, columns, blocks)):
        height = rows // blocks
        dense[top : top + height, left : left + columns] = packed[
            block * height : (block + 1) * height
        ]
    return dense


def _corners(rows: int, columns: int, blocks: int) -> Iterator[tuple[int, int]]:
    for block in range(blocks):
        yield block * (rows // blocks), block * columns
