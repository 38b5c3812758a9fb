"""Targets that are files: models, adapters, overlays, containers, clusters, tables, requests."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

from lora_host.overlay import load_overlay
from lora_sdk.model.checkpoint import Checkpoint
from tests import (
    hostile_gguf,
    hostile_host,
    hostile_models,
    hostile_quantized,
    hostile_requests,
)
from tests.fuzz import structure
from tests.fuzz.target import Mutate, Target, of_subject
from tests.hostile_quantized import WEIGHTS, read_quantized
from tests.mutations import Subject

Open = Callable[[Path], Target]


def _subject(make: Callable[[Path], Subject], mutate: Mutate) -> Open:
    return lambda folder: of_subject(make(folder), mutate)


def quantized(folder: Path, json: bool) -> Target:
    """config.json or the weights of a quantized folder; the first byte chooses the folder."""
    name = "config.json" if json else WEIGHTS
    known = hostile_quantized.folders(folder)
    whole = [(path / name).read_bytes() for path in known]
    inner = structure.of_json if json else structure.of_safetensors

    def read(data: bytes) -> None:
        chosen = data[0] % len(known) if data else 0
        (known[chosen] / name).write_bytes(data[1:])
        try:
            read_quantized(Checkpoint.open(known[chosen]))
        finally:
            (known[chosen] / name).write_bytes(whole[chosen])

    def mutate(random: Random, data: bytes) -> bytes:
        return data[:1] + inner(random, data[1:])

    seeds = [bytes([chosen]) + content for chosen, content in enumerate(whole)]
    return Target(read, lambda: seeds, mutate, folder=folder)


def image(folder: Path) -> Target:
    """The firmware image of an overlay, whose sums are made right."""
    overlay = load_overlay("lora_f_u280")
    head, code = 32, bytes(range(8))
    whole = overlay.image[: head - 16] + struct.pack("<IIII", len(code), 0, 0, 0) + code
    path = folder / "firmware.bin"

    def read(data: bytes) -> None:
        crc = zlib.crc32(data[head:])
        path.write_bytes(data[:20] + struct.pack("<I", crc) + data[24:])
        assert replace(overlay, image_path=path, image_crc=crc).image

    return Target(read, lambda: [whole, whole[:head]], structure.of_bytes, folder=folder)


FILES: dict[str, Open] = {
    "adapter_config": _subject(hostile_models.adapter, structure.of_json),
    "adapter_weights": _subject(hostile_models.adapter_weights, structure.of_safetensors),
    "batch": _subject(hostile_requests.batch, structure.of_lines),
    "cluster": _subject(hostile_host.cluster, structure.of_text),
    "config": _subject(hostile_models.config, structure.of_json),
    "design": _subject(hostile_host.design, structure.of_text),
    "fleet": _subject(hostile_host.fleet, structure.of_text),
    "generation_config": _subject(hostile_models.generation_config, structure.of_json),
    "gguf": _subject(hostile_gguf.mutated, structure.of_bytes),
    "image": image,
    "index": _subject(hostile_models.index, structure.of_json),
    "manifest": _subject(hostile_host.manifest, structure.of_text),
    "overlay_vrtbin": _subject(hostile_host.vrtbin, structure.of_bytes),
    "overlay_xclbin": _subject(hostile_host.xclbin, structure.of_bytes),
    "quantized_config": partial(quantized, json=True),
    "quantized_weights": partial(quantized, json=False),
    "ranks": _subject(hostile_models.ranks, structure.of_bytes),
    "safetensors": _subject(hostile_models.container, structure.of_safetensors),
    "tables": _subject(hostile_requests.tables, structure.of_json),
    "template": _subject(hostile_requests.template, structure.of_text),
    "tokenizer": _subject(hostile_models.tokenizer, structure.of_json),
}
