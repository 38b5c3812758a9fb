"""What a row of the tables says, and the files that it is about."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lora_host.overlay import load_overlay
from lora_lab.synth.folder import synthesize
from tests.adapter_folders import Folder, write_adapter
from tests.variants import Variant, variant, write_checkpoint, write_container

FIFO, ZERO, FOLDER, SOCKET, NOWHERE = "fifo", "zero", "folder", "socket", "nowhere"
"""What a file may be instead of a file; the last is a link to nothing."""

Words = tuple[object, ...]
Make = Callable[["Place"], Words]


@dataclass(frozen=True)
class Case:
    """`make` writes the files and gives the command: "lora-run" or lora's, then its arguments. The
    exit code is `code`; `says` is a part of the line on stderr. `stdin`: bytes there."""

    name: str
    make: Make
    says: str
    code: int = 1
    stdin: bytes = b""


class Stock:
    """Valid folders, written once. They are not changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.which = variant("llama_narrow")

    def model(self) -> Path:
        """A small model in one file."""
        return self._once("model", lambda path: write_checkpoint(self.which, path))

    def sharded(self) -> Path:
        """The same in three files and an index."""
        which = Variant("llama", self.which.config, shards=3)
        return self._once("sharded", lambda path: write_checkpoint(which, path))

    def quantized(self) -> Path:
        """A W8A8 folder."""

        def write(path: Path) -> object:
            from lora_sdk.quant.recipe import Recipe
            from tests.unit.test_synth import TINY

            config = self.root / "tiny" / "config.json"
            config.parent.mkdir()
            config.write_text(json.dumps({"model_type": "llama", **TINY["llama"]}))
            return synthesize(config, path, recipe=Recipe("w8a8", kv="int8"))

        return self._once("quantized", write)

    def adapter(self) -> Path:
        """A PEFT folder for `model`."""
        return self._once("adapter", lambda path: write_adapter(self.which, Folder("plain"), path))

    def _once(self, name: str, write: Callable[[Path], object]) -> Path:
        path = self.root / name
        if not path.exists():
            write(path)
        return path


class Place:
    """An empty folder `path` for the files of one case, and the stock."""

    def __init__(self, path: Path, stock: Stock) -> None:
        self.path, self.stock = path, stock

    def copy(self, source: Path, changed: Mapping[str, object], name: str = "") -> Path:
        """A folder with the files of `source`, except those that are `put` changed."""
        target = self.path / (name or source.name)
        target.mkdir()
        for file in source.iterdir():
            if file.name not in changed:
                (target / file.name).symlink_to(file)
        for file_name, content in changed.items():
            put(target / file_name, content)
        return target

    def overlay(self, changes: Mapping[str, str], name: str = "lora_f_u280") -> Path:
        """A copy of a shipped overlay with texts of its manifest replaced."""
        folder = load_overlay(name).path.parent
        target = self.path / name
        shutil.copytree(folder, target)
        manifest = target / "manifest.yaml"
        text = manifest.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new, 1)
        manifest.write_text(text)
        return target


def put(path: Path, content: object) -> Path:
    """Writes bytes, text, JSON, or one of the kinds above; None: no file."""
    if content is None:
        return path
    if content == FIFO:
        os.mkfifo(path)
    elif content == ZERO:
        path.symlink_to("/dev/zero")
    elif content == FOLDER:
        path.mkdir()
    elif content == NOWHERE:
        path.symlink_to(path.parent / "no-such-file")
    elif content == SOCKET:
        _socket(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content)
    else:
        path.write_text(json.dumps(content))
    return path


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # paths of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def values(path: Path) -> dict[str, Any]:
    """A JSON file's object."""
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def changed(found: Mapping[str, Any], **fields: object) -> dict[str, Any]:
    """A copy with other fields; ... removes one."""
    merged = {**found, **fields}
    return {name: value for name, value in merged.items() if value is not ...}


def tensors(**shapes: tuple[int, ...]) -> bytes:
    """A safetensors file of ones."""
    return write_container({k: np.ones(v, np.float32) for k, v in shapes.items()}, "F32")


def header(described: object, data: bytes = b"", size: int | None = None) -> bytes:
    """A safetensors file with this header, which is JSON unless it is bytes."""
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    return (len(text) if size is None else size).to_bytes(8, "little") + text + data
