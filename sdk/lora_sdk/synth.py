"""Checkpoints of a published shape with random weights: what speed needs of a model, without a
download. The folder is a Hugging Face model folder in every respect but sense."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.model.config import architecture_module, load_config, read_json
from lora_sdk.model.container import RAW_TYPES
from lora_sdk.model.folder import INDEX, SINGLE
from lora_sdk.model.shapes import SHAPES, find_config, shape_json
from lora_sdk.model.spec import ModelConfig
from lora_sdk.synth_tokenizer import write_tokenizer

CHUNK = 1 << 20  # elements that a thread makes and writes at once
DEVIATION = 0.02  # as these models are initialised
MAX_SHARDS = 999
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
"""Types that weights can be written in, and their names in config.json."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the checkpoint; `constant` is its value where it is not random. `index` counts
    over the model, so that no number of shards changes a value."""

    name: str
    shape: tuple[int, ...]
    constant: float | None
    index: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


def synthesise(
    config: str | Path,
    folder: str | Path,
    *,
    seed: int = 0,
    dtype: str = "F16",
    shards: int = 1,
    progress: Progress | None = None,
) -> int:
    """Write a checkpoint of shape `config`, a known name or a config.json, into the new `folder`.

    Weights are uniform with a standard deviation of 0.02, norms one; equal arguments give equal
    files. `progress(done, total)` hears bytes. Returns the bytes of the weight files. RequestError:
    the folder is there, no room for it, an argument out of range; ModelError: no such shape.
    """
    folder = Path(folder)
    _check_arguments(seed, dtype, shards)
    _check_new(folder)
    values = _config_json(config) | {"torch_dtype": DTYPES[dtype]}
    tensors = list_tensors(find_config(config))
    total = sum(tensor.elements for tensor in tensors) * RAW_TYPES[dtype].itemsize
    folder.parent.mkdir(parents=True, exist_ok=True)
    _check_room(folder.parent, total)
    # A name that nobody takes for a finished model; it goes when anything fails.
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        partial.chmod(0o755)
        (partial / "config.json").write_text(json.dumps(values, indent=2) + "\n")
        write_tokenizer(partial, load_config(partial))
        _write_weights(partial, tensors, dtype, shards, seed, total, progress)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return total


def list_tensors(config: ModelConfig) -> list[Tensor]:
    """All tensors of a model's files under the names that its own library gives them."""
    module = architecture_module(config)
    found: dict[str, Tensor] = {}
    for name, source in module.sources(config).items():
        if source.tensor not in found:
            full = source.tensor if name == "lm_head" else module.PREFIXES[0] + source.tensor
            constant = 1.0 if name.endswith(".gamma") else None
            found[source.tensor] = Tensor(full, source.file_shape, constant, len(found))
    return list(found.values())


def _check_arguments(seed: int, dtype: str, shards: int) -> None:
    if dtype not in DTYPES:
        raise RequestError(f"dtype {dtype!r}; expected {', '.join(DTYPES)}")
    if not 0 <= seed < 1 << 64:
        raise RequestError(f"seed {seed}; expected 0..2^64-1")
    if not 1 <= shards <= MAX_SHARDS:
        raise RequestError(f"{shards} shards; expected 1..{MAX_SHARDS}")


def _check_new(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise RequestError(f"{folder} is there already; name a new folder, nothing is overwritten")


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
    dtype: str,
    shards: int,
    seed: int,
    total: int,
    progress: Progress | None,
) -> None:
    size = RAW_TYPES[dtype].itemsize
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
            for written in _write_file(pool, folder / name, part, dtype, seed):
                done += written * size
                if progress is not None:
                    progress(done, total)


def _split(tensors: list[Tensor], shards: int) -> list[list[Tensor]]:
    """Runs of tensors, about equally large; each has one at least."""
    total = sum(tensor.elements for tensor in tensors)
    parts: list[list[Tensor]] = [[]]
    done = 0
    for place, tensor in enumerate(tensors):
        left, wanted = len(tensors) - place, shards - len(parts)
        if parts[-1] and wanted and (left == wanted or done * shards >= total * len(parts)):
            parts.append([])
        parts[-1].append(tensor)
        done += tensor.elements
    return parts


def _write_file(
    pool: ThreadPoolExecutor, path: Path, tensors: list[Tensor], dtype: str, seed: int
) -> Iterator[int]:
    """One safetensors file, chunks in any order; yields the elements of each. The library's own
    writer wants all tensors in memory."""
    size = RAW_TYPES[dtype].itemsize
    header, offset = _header(tensors, dtype), 0
    with path.open("xb") as file:
        file.write(header)
        file.flush()
        file.truncate(len(header) + size * sum(tensor.elements for tensor in tensors))
        jobs = []
        for tensor in tensors:
            for start in range(0, tensor.elements, CHUNK):
                at = len(header) + (offset + start) * size
                jobs.append(
                    pool.submit(_write_chunk, file.fileno(), at, tensor, start, dtype, seed)
                )
            offset += tensor.elements
        try:
            for job in as_completed(jobs):
                yield job.result()
        finally:  # the file stays open until no thread writes to it
            for job in jobs:
                job.cancel()
            for job in jobs:
                if not job.cancelled():
                    job.exception()


def _header(tensors: list[Tensor], dtype: str) -> bytes:
    size, offset = RAW_TYPES[dtype].itemsize, 0
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    for tensor in tensors:
        end = offset + tensor.elements * size
        entries[tensor.name] = {
            "dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, end]
        }  # fmt: skip
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_chunk(file: int, at: int, tensor: Tensor, start: int, dtype: str, seed: int) -> int:
    count = min(CHUNK, tensor.elements - start)
    if tensor.constant is None:
        chunk = _random(np.random.SeedSequence([seed, tensor.index, start]), count)
    else:
        chunk = np.full(count, tensor.constant, np.float32)
    data = _converted(chunk, dtype).view(np.uint8).data
    while data:
        written = os.pwrite(file, data, at)
        data, at = data[written:], at + written
    return count


def _random(seed: np.random.SeedSequence, count: int) -> NDArray[np.float32]:
    """Uniform over 65536 levels: ten times as fast as normal ones, and no test of speed knows."""
    levels = np.random.Generator(np.random.SFC64(seed)).integers(-32768, 32768, count, np.int16)
    scale = np.float32(DEVIATION * 3**0.5 / 32768)
    values: NDArray[np.float32] = np.multiply(levels, scale, dtype=np.float32)
    return values


def _converted(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    if dtype == "F16":
        return values.astype(np.float16)
    if dtype == "BF16":  # nearest, ties away from zero: what is random needs no better
        bits = values.view(np.uint32)
        upper: NDArray[np.uint16] = ((bits + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16)
        return upper
    return values
