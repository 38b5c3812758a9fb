"""Quantized folders to mutate: compressed-tensors, FP8, GPTQ and AWQ, their fields and the headers
and numbers of their weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from lora_sdk.model.checkpoint import Checkpoint
from tests.hostile_models import mutated_header
from tests.mutations import Subject, as_json, damaged
from tests.preset_folders import PRESETS, write_preset

PACKED = Path(__file__).parent / "fixtures" / "packed"
WEIGHTS = "model.safetensors"


def folders(root: Path) -> list[Path]:
    """A small folder of each way to store quantized weights."""
    found = [
        write_preset("llama_narrow", PRESETS[name], root / name, kv=name == "w8a8")
        for name in ("w8a8", "w4a8", "fp8_block")
    ]
    for name in ("gptq_act_order", "awq"):
        found.append(root / name)
        found[-1].mkdir()
        for file in ("config.json", WEIGHTS):
            shutil.copyfile(PACKED / name / file, found[-1] / file)
    return found


def quantized(folder: Path) -> Subject:
    """One of the folders with one of its files mutated. `path` holds the mutation alone."""
    known = folders(folder)
    whole = {path / name: (path / name).read_bytes()
             for path in known for name in ("config.json", WEIGHTS)}  # fmt: skip
    targets: list[Path] = [known[0] / "config.json"]
    path = folder / "mutation"

    def mutate(random: Random) -> bytes:
        chosen = random.choice(known)
        targets[0] = chosen / random.choice(("config.json", WEIGHTS))
        content = whole[targets[0]]
        if targets[0].name == WEIGHTS:
            return mutated_header(random, content)
        value = json.loads(content)
        if random.random() < 0.1:
            return damaged(random, content)
        part = value["quantization_config"]
        return b'{"quantization_config": ' + as_json(random, part) + b", " + _others(value)

    def read() -> None:
        target = targets[0]
        target.write_bytes(path.read_bytes())
        try:
            read_quantized(Checkpoint.open(target.parent))
        finally:
            target.write_bytes(whole[target])

    return Subject(path, mutate, read)


def _others(value: dict[str, object]) -> bytes:
    others = {name: field for name, field in value.items() if name != "quantization_config"}
    return json.dumps(others).encode()[1:]


def read_quantized(checkpoint: Checkpoint) -> None:
    """What placing reads of the quantized matrices: values, scales and orders."""
    checkpoint.activation_scales()
    found = checkpoint.config.quantization
    for name in checkpoint.names:
        if found is None or name not in found.formats:
            continue
        checkpoint.part(name, 0, 1)
        checkpoint.columns(name, 0, 1)
        checkpoint.column_scales(name, 0, 1)
        checkpoint.permutation(name)
