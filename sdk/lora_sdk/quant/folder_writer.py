"""Writes a Hugging Face folder shard by shard, so that at most one shard is in memory."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_host.writing import writing
from lora_sdk.model.folder import INDEX, SINGLE
from lora_sdk.quant.tensor_file import save_tensors
from lora_sdk.text.tokenizer_files import SETTINGS, TOKENIZER, tokenizer_files

SHARD_BYTES = 1 << 30
COPIED = (
    TOKENIZER,
    SETTINGS,
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)


def check_new(folder: Path) -> None:
    """RequestError unless a folder can be made there: it exists, or its parent does not."""
    if folder.exists():
        raise RequestError(f"{folder}: exists already; name a new folder")
    if not folder.absolute().parent.is_dir():
        raise RequestError(f"{folder}: {folder.parent} is no folder; make it first")


@dataclass
class Written:
    """What a writer has been given so far: names of each shard, tensors that wait for theirs, and
    bytes of all."""

    shards: list[list[str]] = field(default_factory=list)
    held: dict[str, NDArray[Any]] = field(default_factory=dict)
    bytes: int = 0


class FolderWriter:
    """A context manager: `add` tensors, then `finish`. Without `finish` all files are removed, so
    the folder is complete or absent. With `partial` the files are written to that folder, which
    stays. RequestError as for `check_new`; OSErrors name the file that cannot be written."""

    def __init__(self, folder: Path, partial: Path | None = None) -> None:
        check_new(folder)
        self._folder = folder
        self._kept = partial is not None
        if partial is None:
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            partial.chmod(0o755)
        self._partial = partial
        self.written = Written()

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._kept:
            shutil.rmtree(self._partial, ignore_errors=True)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return self.written.bytes

    def add(self, tensors: dict[str, NDArray[Any]]) -> None:
        """Add tensors to the current shard, which is written once it is large enough."""
        for name, array in tensors.items():
            self.written.held[name] = np.ascontiguousarray(array)
            self.written.bytes += array.nbytes
        if sum(array.nbytes for array in self.written.held.values()) >= SHARD_BYTES:
            self.flush()

    def copy_from(self, source: Path) -> None:
        """Copy the files of the tokenizer and of generation, and licenses; those of a GGUF file's
        tokenizer are made."""
        if not source.is_dir():
            files = tokenizer_files(source)
            with writing(self._partial / TOKENIZER):
                (self._partial / TOKENIZER).write_bytes(files.definition())
            self._write_json(SETTINGS, files.settings())
            return
        for path in sorted(source.iterdir()):
            if path.is_file() and (path.name in COPIED or path.name.startswith("LICENSE")):
                with writing(self._partial / path.name):
                    shutil.copyfile(path, self._partial / path.name)

    def finish(self, config: dict[str, Any]) -> None:
        """Write config.json and the index, and rename the folder to its final name."""
        self.flush()
        self._write_json("config.json", config)
        shards = self.written.shards
        count = len(shards)
        weight_map = {}
        for number, names in enumerate(shards):
            final = f"model-{number + 1:05d}-of-{count:05d}.safetensors" if count > 1 else SINGLE
            (self._partial / shard_name(number)).rename(self._partial / final)
            weight_map.update(dict.fromkeys(names, final))
        if count > 1:
            index = {"metadata": {"total_size": self.bytes}, "weight_map": weight_map}
            self._write_json(INDEX, index)
        self._partial.rename(self._folder)

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        text = json.dumps(value, indent=2) + "\n"
        with writing(self._partial / name):
            (self._partial / name).write_text(text, encoding="utf-8")

    def flush(self) -> None:
        """Write the tensors that wait as a shard."""
        written = self.written
        if written.held:
            path = self._partial / shard_name(len(written.shards))
            save_tensors(written.held, path, metadata={"format": "pt"})
            written.shards.append(sorted(written.held))
            written.held = {}


def shard_name(number: int) -> str:
    """Name of a shard until their count is known."""
    return f"shard-{number}.partial"
