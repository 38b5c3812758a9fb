"""What `lora quantize --resume` keeps of a run, so that one that was killed goes on where it was.

The folder `.NAME.resume` beside OUT holds the shards that are written, a file of tensors for each
layer behind them, the outputs of the last layer, and a record that is replaced last: what it names
was on the disk before. A run of other inputs is refused."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from lora_host.errors import RequestError
from lora_host.writing import writing
from lora_sdk.model.model_files import model_files
from lora_sdk.quant.folder_writer import Written, shard_name
from lora_sdk.quant.layer import F32
from lora_sdk.quant.modules import Tensors
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.tensor_file import save_tensors

_RECORD, _VERSION = "resume.json", 1
_MAX_RECORD = 64 << 20


@dataclass
class Record:
    """`layers` are done. `files`: size and digest of each file that a resumed run reads, digest
    empty for shards. `shards`: names of their tensors."""

    inputs: str
    layers: int = 0
    bytes: int = 0
    shards: list[list[str]] = field(default_factory=list)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    strengths: list[dict[str, float | None]] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)


class KeptWork:
    """The kept folder of one run, locked while it is open. RequestError: it holds another run's
    work or is damaged, another process uses it, or it cannot be made."""

    def __init__(self, out: Path, inputs: str) -> None:
        self.folder = out.parent / f".{out.name}.resume"
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise RequestError(f"{self.folder}: cannot be made: {error.strerror}") from None
        try:
            self._take()
            self.record = self._read(inputs)
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> KeptWork:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    def restore(self) -> tuple[Written, list[F32]]:
        """What the writer had, and the outputs of the last layer done. RequestError if a file is
        not what the record says."""
        for name in self.record.files:
            self._check(name)
        written = Written([list(names) for names in self.record.shards], {}, self.record.bytes)
        try:
            for name in self._layer_files():
                written.held |= load_file(self.folder / name)
            with np.load(self.folder / _streams(self.record.layers), allow_pickle=False) as found:
                streams = [found[f"w{i}"] for i in range(len(found.files))]
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise self._damaged(str(error)) from None
        return written, streams

    def save(self, tensors: Tensors, streams: Sequence[F32], written: Written) -> None:
        """A layer is done: its `tensors`, its outputs, and what the writer has now. The caller has
        added the layer to `record.strengths` and `record.errors`."""
        record = self.record
        layer = record.layers
        flushed = len(written.shards) > len(record.shards)
        files = {} if flushed else {name: record.files[name] for name in self._layer_files()}
        if not flushed:
            self._write(_layer(layer), lambda path: save_tensors(tensors, path))
            files[_layer(layer)] = self._seal(_layer(layer))
        self._write(_streams(layer + 1), lambda path: _save_streams(path, streams))
        files[_streams(layer + 1)] = self._seal(_streams(layer + 1))
        for number in range(len(written.shards)):
            self._sync(shard_name(number))
            files[shard_name(number)] = ((self.folder / shard_name(number)).stat().st_size, "")
        record.layers, record.bytes = layer + 1, written.bytes
        record.shards, record.files = [list(names) for names in written.shards], files
        text = json.dumps({"version": _VERSION, **asdict(record)})
        self._write(_RECORD, lambda path: path.write_text(text, encoding="utf-8"))
        self._drop_others({*files, _RECORD})

    def clear(self) -> None:
        """Remove what only a resumed run needs; the writer's files stay."""
        (self.folder / _RECORD).unlink(missing_ok=True)  # first: it names the others
        self._drop_others(set())

    def empty(self) -> None:
        """Remove what a run left that was killed before its first record, or after its last."""
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                raise self._damaged(f"{path.name} is a folder, files of a killed run expected")
            path.unlink()

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequestError(
                f"{self.folder}: another process is using it; wait for its end, or name another OUT"
            ) from None

    def _read(self, inputs: str) -> Record:
        path = self.folder / _RECORD
        if not path.exists():
            return Record(inputs)
        try:
            if path.stat().st_size > _MAX_RECORD:
                raise ValueError(f"more than {_MAX_RECORD} bytes")
            record = _checked(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise self._damaged(f"{_RECORD}: {error}") from None
        if record.inputs != inputs:
            raise RequestError(
                f"{self.folder}: holds the work of a run with another model, text or options; "
                "delete it, or give the same ones"
            )
        return record

    def _layer_files(self) -> list[str]:
        return sorted(name for name in self.record.files if name.startswith("layer-"))

    def _check(self, name: str) -> None:
        size, digest = self.record.files[name]
        path = self.folder / name
        if not path.is_file() or path.is_symlink() or path.stat().st_size != size:
            raise self._damaged(f"{name} is missing or has another size than {size} bytes")
        if digest and _digest(path) != digest:
            raise self._damaged(f"{name} has changed")

    def _damaged(self, what: str) -> RequestError:
        return RequestError(f"{self.folder}: {what}; delete the folder and begin again")

    def _seal(self, name: str) -> tuple[int, str]:
        path = self.folder / name
        return path.stat().st_size, _digest(path)

    def _write(self, name: str, write: Any) -> None:
        """The whole file or none, on the disk."""
        new = self.folder / f"{name}.new"
        with writing(new):
            write(new)
        self._sync(new.name)
        os.replace(new, self.folder / name)
        os.fsync(self._lock)

    def _sync(self, name: str) -> None:
        file = os.open(self.folder / name, os.O_RDONLY)
        try:
            with writing(self.folder / name):
                os.fsync(file)
        finally:
            os.close(file)

    def _drop_others(self, kept: set[str]) -> None:
        for path in self.folder.iterdir():
            old = path.name.startswith(("layer-", "streams-"))
            if path.name not in kept and (old or path.name.endswith(".new")):
                path.unlink()


def digest_of_inputs(
    model: Path, recipe: Recipe, windows: Sequence[Sequence[int]], version: str
) -> str:
    """Of all that a run's result depends on: the model's files by name, size and time, the options,
    the calibration tokens, and the versions of this package and NumPy."""
    files = sorted(path for path in (model.iterdir() if model.is_dir() else [model]))
    seen = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    facts = [seen, asdict(recipe), [list(window) for window in windows], version, np.__version__,
             model_files(model).config_values()]  # fmt: skip
    return blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _layer(layer: int) -> str:
    return f"layer-{layer:05d}.safetensors"


def _streams(layers: int) -> str:
    return f"streams-{layers:05d}.npz"


def _save_streams(path: Path, streams: Sequence[F32]) -> None:
    with path.open("wb") as file:  # given a path, savez would add a suffix
        np.savez(file, **{f"w{i}": stream for i, stream in enumerate(streams)})  # type: ignore[arg-type]


def _digest(path: Path) -> str:
    found = blake2b(digest_size=16)
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def _checked(values: Any) -> Record:
    """A record as `save` writes it. ValueError names the field that is not."""
    if not isinstance(values, dict) or values.pop("version", None) != _VERSION:
        raise ValueError(f"expected an object of version {_VERSION}")
    if set(values) != set(Record.__dataclass_fields__):
        raise ValueError(f"expected the fields {', '.join(Record.__dataclass_fields__)}")
    for name, kind in (("inputs", str), ("layers", int), ("bytes", int), ("shards", list),
                       ("files", dict), ("strengths", list), ("errors", dict)):  # fmt: skip
        if not isinstance(values[name], kind) or isinstance(values[name], bool):
            raise ValueError(f"{name}: expected {kind.__name__}")
    files = {}
    for name, seal in values["files"].items():
        if "/" in name or name.startswith(".") or not _is_seal(seal):
            raise ValueError(f"files.{name}: expected a plain name with a size and a digest")
        files[name] = (seal[0], seal[1])
    record = Record(**{**values, "files": files})
    _check_results(record)
    return record


def _check_results(record: Record) -> None:
    """ValueError if the fields of a record do not belong together."""
    shards = record.shards
    if not all(isinstance(names, list) and all(isinstance(n, str) for n in names)
               for names in shards):  # fmt: skip
        raise ValueError("shards: expected lists of names")
    strengths = (value for one in record.strengths if isinstance(one, dict)
                 for value in one.values() if value is not None)  # fmt: skip
    if not all(isinstance(value, float) for value in (*strengths, *record.errors.values())):
        raise ValueError("strengths, errors: expected numbers by name")
    wanted = {shard_name(number) for number in range(len(shards))}
    if record.layers:
        wanted.add(_streams(record.layers))
    if len(record.strengths) != record.layers or not wanted <= set(record.files):
        raise ValueError(f"expected the results and files of {record.layers} layers")


def _is_seal(seal: Any) -> bool:
    return (
        isinstance(seal, list) and len(seal) == 2
        and type(seal[0]) is int and isinstance(seal[1], str)
    )  # fmt: skip
