"""Folders of models with random weights for measurements, written on first use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from lora_host.errors import RequestError
from lora_lab.bench.machine import free_memory
from lora_lab.synth.folder import synthesize
from lora_sdk.quant.recipe import Recipe

_LLAMA = {"model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
OWN_SHAPES: dict[str, dict[str, Any]] = {
    "demo-size": {  # the demo's shape: it stays in the cache
        **_LLAMA, "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
        "num_key_value_heads": 8, "intermediate_size": 704, "vocab_size": 2048,
        "max_position_embeddings": 1024,
    },
    "llama-1b-wide": {  # four of the layers, and a quarter of the vocabulary: their shares stay
        **_LLAMA, "hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32064,
        "max_position_embeddings": 16640,
    },
}  # fmt: skip


class LacksRoom(RequestError):
    """This machine has too little memory or disk for a measurement."""


class SyntheticModels:
    """Folders below `folder` by shape and scheme ("fp16", "w8a8", "w4a8", ...)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, str], Path] = {}

    def get(self, shape: str, scheme: str = "fp16") -> Path:
        """A published shape by name, or one of OWN_SHAPES. RequestError: no room on the disk."""
        key = (shape, scheme)
        if key not in self._made:
            recipe = None if scheme == "fp16" else Recipe(scheme)
            folder = self._folder / f"{shape}-{scheme}"
            synthesize(self._source(shape), folder, recipe=recipe)
            self._made[key] = folder
        return self._made[key]

    def drop(self, shape: str, scheme: str = "fp16") -> None:
        """Delete a folder that is not needed any more."""
        folder = self._made.pop((shape, scheme), None)
        if folder is not None:
            shutil.rmtree(folder)

    def need(self, memory: int, disk: int) -> None:
        """LacksRoom if fewer bytes are free."""
        found = {"memory": free_memory(), "disk": shutil.disk_usage(self._folder).free}
        for name, wanted in (("memory", memory), ("disk", disk)):
            if found[name] < wanted:
                raise LacksRoom(
                    f"needs {wanted / 1e9:.0f} GB of {name}, {found[name] / 1e9:.1f} GB are free"
                )

    def _source(self, shape: str) -> str | Path:
        if shape not in OWN_SHAPES:
            return shape
        config = self._folder / f"{shape}-shape" / "config.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(json.dumps(OWN_SHAPES[shape]))
        return config
