"""The model and the adapters of a campaign: tiny, random, the same bytes on every machine."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lora_lab.synth.folder import synthesize

HELD = "lora-torture-"  # prefix of temporary folders, which the next campaign removes
HIDDEN, LAYERS, RANK = 64, 2, 4
VOCABULARY = 300
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "hidden_size": HIDDEN,
    "intermediate_size": 2 * HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 256,
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
TARGETS = ("q_proj", "o_proj")


@dataclass(frozen=True)
class Folders:
    """Below `root`."""

    root: Path

    @property
    def model(self) -> Path:
        """The model."""
        return self.root / "model"

    def adapter(self, name: str) -> Path:
        """An adapter: "a" or "b"."""
        return self.root / name


def write_folders(root: Path) -> Folders:
    """Write the model and both adapters below `root`."""
    folders = Folders(root)
    shape = root / "shape"
    shape.mkdir()
    (shape / "config.json").write_text(json.dumps(CONFIG))
    synthesize(shape / "config.json", folders.model)
    for seed, name in enumerate("ab"):
        _write_adapter(folders.adapter(name), seed)
    return folders


def _write_adapter(path: Path, seed: int) -> None:
    path.mkdir()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": RANK,
        "lora_alpha": 2 * RANK,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(TARGETS),
        "fan_in_fan_out": False,
    }
    (path / "adapter_config.json").write_text(json.dumps(config))
    draws = np.random.Generator(np.random.Philox(seed))
    tensors = {
        f"base_model.model.model.layers.{layer}.self_attn.{target}.lora_{factor}.weight": (
            draws.standard_normal((RANK, HIDDEN) if factor == "A" else (HIDDEN, RANK)).astype(
                np.float32
            )
            * np.float32(0.1)
        )
        for layer in range(LAYERS)
        for target in TARGETS
        for factor in "AB"
    }
    header, data = {}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.tobytes()
        header[name] = {
            "dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, len(data)],
        }  # fmt: skip
    text = json.dumps(header).encode()
    (path / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
