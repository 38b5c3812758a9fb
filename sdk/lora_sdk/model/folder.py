"""The weight files of a model folder: single or sharded, and nothing outside the folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from lora_host.errors import ModelError
from lora_sdk.model.container import Container, Entry, TensorFile
from lora_sdk.model.json_file import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

Tensors = dict[str, tuple[Container, Entry]]
AnyTensors = Mapping[str, tuple[TensorFile, Entry]]


def find_tensors(folder: Path) -> Tensors:
    """File's tensor name -> (file, entry), from headers only.

    Raises ModelError: no weights, only .bin/.pt/.pth (with the command that converts them), a
    shard missing, corrupt or outside the folder, a tensor twice or missing from its shard.
    """
    if (folder / SINGLE).exists():
        container = Container(folder / SINGLE)
        return {name: (container, entry) for name, entry in container.entries.items()}
    if (folder / INDEX).exists():
        return _sharded(folder)
    raise _none(folder)


def has_weights(folder: Path) -> bool:
    """Whether a model folder has weight files that `find_tensors` reads."""
    return (folder / SINGLE).exists() or (folder / INDEX).exists()


def _sharded(folder: Path) -> Tensors:
    path = folder / INDEX
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise ModelError(f"{path}: weight_map is missing or empty, expected tensor -> file")
    names = [_shard_name(folder, name) for name in files.values()]
    containers = {name: _shard(folder, name) for name in dict.fromkeys(names)}
    found: Tensors = {}
    for container in containers.values():
        for name, entry in container.entries.items():
            if name in found:
                raise ModelError(
                    f"{name}: is in {found[name][0].path.name} and in"
                    f" {container.path.name}, expected once"
                )
            found[name] = (container, entry)
    for name, file in files.items():
        if name not in containers[file].entries:
            raise ModelError(f"{name}: missing from {folder / file}, where {INDEX} says it is")
    return found


def _shard_name(folder: Path, name: object) -> str:
    # Links inside the folder are how hub caches store files; a name with a path is not trusted.
    if not isinstance(name, str) or Path(name).name != name or "\\" in name or "\0" in name:
        raise ModelError(f"{folder / INDEX}: names the file {name!r}, expected one of the folder")
    if not name.endswith(".safetensors"):
        raise ModelError(f"{folder / INDEX}: names the file {name!r}, expected *.safetensors")
    return name


def _shard(folder: Path, name: str) -> Container:
    try:
        found = (folder / name).exists()
    except OSError as error:  # such as an invalid file name
        raise ModelError(f"{folder / name}: cannot be read: {error.strerror}") from None
    if not found:
        raise ModelError(f"{folder / name}: missing, {INDEX} names it; fetch it again")
    return Container(folder / name)


def _none(folder: Path) -> ModelError:
    if not folder.is_dir():
        return ModelError(
            f"{folder}: no such folder, expected a Hugging Face model folder", usage=True
        )
    old = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth"))
    if not old:
        return ModelError(f"{folder}: no weights, expected {SINGLE} or {INDEX}")
    code = (
        "from transformers import AutoModelForCausalLM as M, AutoTokenizer as T;"
        " import sys; a, b = sys.argv[1:]; M.from_pretrained(a).save_pretrained(b);"
        " T.from_pretrained(a).save_pretrained(b)"
    )
    source, target = shlex.quote(str(folder)), shlex.quote(f"{folder.resolve()}-safetensors")
    return ModelError(
        f"{folder}: found only {old[0]}, expected {SINGLE}; convert with:"
        f" python -c {shlex.quote(code)} {source} {target}"
    )
