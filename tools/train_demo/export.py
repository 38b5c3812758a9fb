"""Write trained models as Hugging Face folders in FP16, and read them back for training."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from .model import Llama, Shape
from .tokenizer import END_OF_TEXT_ID, save_tokenizer


def as_fp16(name: str, weight: torch.Tensor) -> torch.Tensor:
    """`weight` in FP16. A value out of range is an error, not an infinity."""
    half = weight.detach().to(torch.float16).contiguous()
    if not bool(torch.isfinite(half).all()):
        raise ValueError(f"{name}: a value is not finite in FP16")
    return half


def llama_config(shape: Shape) -> dict[str, object]:
    """Fields of config.json that a LLaMA of `shape` needs."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": END_OF_TEXT_ID,
        "dtype": "float16",
        "eos_token_id": END_OF_TEXT_ID,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": shape.positions,
        "mlp_bias": False,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": END_OF_TEXT_ID,
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": {"rope_theta": shape.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    }


def write_json(path: Path, content: dict[str, object]) -> None:
    """Write `content` with two spaces of indentation and a final newline."""
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_generation_config(folder: Path) -> None:
    """Write the ids of the BOS, EOS and padding token."""
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    write_json(folder / "generation_config.json", dict.fromkeys(names, END_OF_TEXT_ID))


def write_weights(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    """Write model.safetensors with the metadata that transformers requires."""
    path = folder / "model.safetensors"
    save_file(weights, path, metadata={"format": "pt"})
    path.chmod(0o644)  # safetensors writes files readable only by the owner


def export_llama(model: Llama, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a complete folder that transformers loads."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"model.{name}": as_fp16(name, w) for name, w in model.state_dict().items()}
    write_weights(folder, weights)
    write_json(folder / "config.json", llama_config(model.shape))
    write_generation_config(folder)
    save_tokenizer(tokenizer, folder, model.shape.positions)


def read_shape(folder: Path) -> Shape:
    """Shape of a folder written by `export_llama`."""
    config = json.loads((folder / "config.json").read_text())
    return Shape(
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        positions=config["max_position_embeddings"],
        rope_theta=config["rope_parameters"]["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )


def load_llama(folder: Path) -> Llama:
    """Read a folder written by `export_llama`, with its FP16 values in float32."""
    model = Llama(read_shape(folder))
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({name.removeprefix("model."): w for name, w in weights.items()})
    return model.eval()


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read the folder's tokenizer.json."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
