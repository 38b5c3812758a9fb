"""Checkpoints of a published shape with random weights, to measure speed without a download. The
folder is a complete Hugging Face model folder. Only its output is meaningless."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lora_host.errors import RequestError
from lora_host.writing import writing
from lora_lab.synth.quantized import quantized_parts
from lora_lab.synth.tensor import Tensor, chunk
from lora_lab.synth.tokenizer import write_tokenizer
from lora_sdk.model.config import family_of, load_config, read_json
from lora_sdk.model.folder import INDEX, SINGLE
from lora_sdk.model.shapes import SHAPES, find_config, shape_json
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.config_json import quantized_config
from lora_sdk.quant.recipe import Recipe

CHUNK = 1 << 20  # elements that a thread generates and writes at once
MAX_SHARDS = 999
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
"""Weight types that can be written, and their names in config.json."""

Progress = Callable[[int, int], None]


def synthesize(
    config: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    dtype: str = "F16",
    shards: int = 1,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a checkpoint of shape `config`, a known name or a config.json, into the new `folder`.

    Weights are uniform with a standard deviation of 0.02, norms multiply by one. Equal arguments
    give equal files. With `recipe` the folder is quantized in compressed-tensors' format, with
    random integers and constant scales. `progress(done, total)` receives bytes. Returns the bytes
    of the weight files. RequestError: the folder exists, the disk is too full, or an argument is
    out of range. ModelError: no such shape.
    """
    folder = Path(folder)
    _check_arguments(seed, dtype, shards)
    _check_new(folder)
    values = _config_json(config) | {"torch_dtype": DTYPES[dtype]}
    model = find_config(config)
    tensors = list_tensors(model, dtype)
    if recipe is not None:
        tensors = quantized_tensors(model, recipe, dtype)
        values = quantized_config(values, model, recipe)
    total = sum(tensor.bytes for tensor in tensors)
    _check_room(folder.parent, total)
    # The hidden name marks an unfinished model. The folder is removed on any failure.
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with writing(folder):
            partial.chmod(0o755)
            (partial / "config.json").write_text(json.dumps(values, indent=2) + "\n")
            write_tokenizer(partial, load_config(partial))
            _write_weights(partial, tensors, shards, seed, total, progress)
            partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return total


def list_tensors(config: ModelConfig, dtype: str = "F16") -> list[Tensor]:
    """All tensors of a model's files, under the names of its original library."""
    family = family_of(config)
    found: dict[str, Tensor] = {}
    for name, source in family.sources(config).items():
        if source.tensor not in found:
            full = source.full_name(family.PREFIXES[0])
            constant = (0.0 if config.one_plus else 1.0) if name.endswith(".gamma") else None
            found[source.tensor] = Tensor(full, source.file_shape, dtype, constant, len(found))
    return list(found.values())


def quantized_tensors(config: ModelConfig, recipe: Recipe, dtype: str = "F16") -> list[Tensor]:
    """As list_tensors, for a folder in compressed-tensors' format. RequestError: a K that is not a
    multiple of the group."""
    recipe.check(config)
    if recipe.head == "w8":
        config = replace(config, tied=False)
    family = family_of(config)
    sources = {
        source.full_name(family.PREFIXES[0]): (name, source)
        for name, source in family.sources(config).items()
    }
    found: list[Tensor] = []
    for tensor in list_tensors(config, dtype):
        name, source = sources[tensor.name]
        if source.layout == "io" and name.startswith("layer."):  # Conv1D holds [in, out]
            tensor = replace(tensor, shape=tensor.shape[::-1])
        found += quantized_parts(tensor, name, config, recipe)
    return [replace(tensor, index=index) for index, tensor in enumerate(found)]


def _check_arguments(seed: int, dtype: str, shards: int) -> None:
    if dtype not in DTYPES:
        raise RequestError(f"dtype {dtype!r}; expected {', '.join(DTYPES)}")
    if not 0 <= seed < 1 << 64:
        raise RequestError(f"seed {seed}; expected 0..2^64-1")
    if not 1 <= shards <= MAX_SHARDS:
        raise RequestError(f"{shards} shards; expected 1..{MAX_SHARDS}")


def _check_new(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RequestError(f"{folder} exists already; name a new folder, nothing is overwritten")
    if not folder.absolute().parent.is_dir():
        raise RequestError(f"{folder}: {folder.parent} is no folder; make it first")


def _check_room(parent: Path, total: int) -> None:
    free = shutil.disk_usage(parent).free
    if total > free:
        raise RequestError(
            f"{parent}: {total / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free; name another disk"
        )


def _config_json(config: str | Path) -> dict[str, Any]:
    if str(config) in SHAPES:
        return shape_json(str(config))
    path = Path(config)
    return read_json(path / "config.json" if path.is_dir() else path)


def _write_weights(
    folder: Path,
    tensors: list[Tensor],
    shards: int,
    seed: int,
    total: int,
    progress: Progress | None,
) -> None:
    parts = _split(tensors, min(shards, len(tensors)))
    names = [SINGLE]
    if len(parts) > 1:
        names = [f"model-{i:05}-of-{len(parts):05}.safetensors" for i in range(1, len(parts) + 1)]
        weight_map = {t.name: name for name, part in zip(names, parts, strict=True) for t in part}
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    done = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name, part in zip(names, parts, strict=True):
            for written in _write_file(pool, folder / name, part, seed):
                done += written
                if progress is not None:
                    progress(done, total)


def _split(tensors: list[Tensor], shards: int) -> list[list[Tensor]]:
    """Consecutive tensors in groups of about equal size, each with at least one tensor."""
    total = sum(tensor.bytes for tensor in tensors)
    parts: list[list[Tensor]] = [[]]
    done = 0
    for index, tensor in enumerate(tensors):
        left, needed = len(tensors) - index, shards - len(parts)
        if parts[-1] and needed and (left == needed or done * shards >= total * len(parts)):
            parts.append([])
        parts[-1].append(tensor)
        done += tensor.bytes
    return parts


def _write_file(
    pool: ThreadPoolExecutor, path: Path, tensors: list[Tensor], seed: int
) -> Iterator[int]:
    """Write one safetensors file, chunks in any order. Yields the bytes of each. The library's own
    writer needs all tensors in memory."""
    header, offset = _header(tensors), 0
    with path.open("xb") as file:
        file.write(header)
        file.flush()
        file.truncate(len(header) + sum(tensor.bytes for tensor in tensors))
        jobs = []
        for tensor in tensors:
            for start in range(0, tensor.elements, CHUNK):
                at = len(header) + offset + start * tensor.itemsize
                jobs.append(pool.submit(_write_chunk, file.fileno(), at, tensor, start, seed))
            offset += tensor.bytes
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:  # the file stays open until no thread writes to it
            for job in jobs:
                job.cancel()
            for job in jobs:
                if not job.cancelled():
                    job.exception()


def _header(tensors: list[Tensor]) -> bytes:
    offset = 0
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for tensor in tensors:
        end = offset + tensor.bytes
        entries[tensor.name] = {
            "dtype": tensor.kind, "shape": list(tensor.shape), "data_offsets": [offset, end]
        }  # fmt: skip
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_chunk(file: int, at: int, tensor: Tensor, start: int, seed: int) -> int:
    count = min(CHUNK, tensor.elements - start)
    data = chunk(tensor, seed, start, count).view(np.uint8).data
    size = len(data)
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    return size
