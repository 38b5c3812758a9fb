"""Weight files that are not what they should be: each one line that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.container import Container
from tests.variants import variant, write_checkpoint

INDEX = "model.safetensors.index.json"


def test_the_library_reads_the_same_bytes(tmp_path: Path) -> None:
    path = write_checkpoint(variant("gpt2"), tmp_path) / "model.safetensors"
    container = Container(path)
    with safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == sorted(container.entries)
        for name, entry in container.entries.items():
            assert np.array_equal(file.get_tensor(name), container.array(entry))


@pytest.mark.parametrize("size", [0, 7, 8, 100, 5000, -1])
def test_truncated_files_are_named(tmp_path: Path, size: int) -> None:
    path = write_checkpoint(variant("llama_narrow"), tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"model\.safetensors: truncated or corrupt"):
        Checkpoint.open(tmp_path)


def test_bytes_behind_the_last_tensor_are_refused(tmp_path: Path) -> None:
    path = write_checkpoint(variant("llama_narrow"), tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ModelError, match=r"model\.safetensors: truncated or corrupt"):
        Checkpoint.open(tmp_path)


def header(**changes: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changes}
    return json.dumps({"w": entry}).encode()


@pytest.mark.parametrize(
    "text",
    [
        header(data_offsets=[0, 17]),
        header(data_offsets=[16, 0]),
        header(data_offsets=[-16, 0]),
        header(data_offsets=[4, 20]),
        header(shape=[2, 3]),
        header(shape=[2, -2]),
        header(shape=4),
        header(shape=[2**40, 2**40]),
        header(dtype="F99"),
        header(dtype=4),
        header(shape=[2.0, 2]),
        header().replace(b'"w"', b'"w\\n"'),
        b'{"w": 3}',
        b"[]",
        b"{",
        b"\xff\xff",
        header().replace(b'"F32"', b"NaN"),
        b"[" * 50_000,
        header()[:-1] + b', "w": {"dtype": "F32", "shape": [], "data_offsets": [16, 20]}}',
        b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]},'
        b' "b": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}',
    ],
)
def test_corrupt_headers_are_one_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(ModelError, match=r"w\.safetensors: truncated or corrupt") as caught:
        Container(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 300), st.integers(0, 255))
def test_a_changed_byte_is_an_error_or_a_tensor_in_the_file(
    tmp_path: Path, place: int, value: int
) -> None:
    body = bytearray(len(header()).to_bytes(8, "little") + header() + bytes(16))
    body[place % len(body)] = value
    path = tmp_path / "w.safetensors"
    path.write_bytes(body)
    try:
        container = Container(path)
    except ModelError:
        return
    for entry in container.entries.values():
        assert entry.start > 8 and entry.start + entry.bytes == len(body)


def shards(folder: Path) -> dict[str, Any]:
    write_checkpoint(variant("opt_plain"), folder)
    index: dict[str, Any] = json.loads((folder / INDEX).read_text())
    return index


@pytest.mark.parametrize(
    "name",
    [
        "../model-00001-of-00003.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        "",
        7,
        None,
        "evil.bin",
        "x\\y.safetensors",
        "a\0.safetensors",
    ],
)
def test_an_index_may_name_only_files_of_the_folder(tmp_path: Path, name: object) -> None:
    index = shards(tmp_path)
    index["weight_map"][next(iter(index["weight_map"]))] = name
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"index\.json: names the file"):
        Checkpoint.open(tmp_path)


def test_a_shard_that_is_missing_or_wrong_is_named(tmp_path: Path) -> None:
    index = shards(tmp_path)
    second = "model-00002-of-00003.safetensors"
    data = (tmp_path / second).read_bytes()
    (tmp_path / second).unlink()
    with pytest.raises(ModelError, match=f"{second}: missing"):
        Checkpoint.open(tmp_path)
    (tmp_path / second).write_bytes(data[:-8])
    with pytest.raises(ModelError, match=f"{second}: truncated"):
        Checkpoint.open(tmp_path)
    (tmp_path / second).write_bytes((tmp_path / "model-00001-of-00003.safetensors").read_bytes())
    with pytest.raises(ModelError, match="expected once"):
        Checkpoint.open(tmp_path)
    (tmp_path / second).write_bytes(data)
    index["weight_map"]["model.decoder.no.such"] = second
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.decoder\.no\.such: missing from"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("value", ["{}", '{"weight_map": []}', '{"weight_map": {}}', "null", ""])
def test_a_malformed_index_is_one_line(tmp_path: Path, value: str) -> None:
    shards(tmp_path)
    (tmp_path / INDEX).write_text(value)
    with pytest.raises(ModelError, match=r"index\.json"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_old_weights_get_the_conversion_command(tmp_path: Path, name: str) -> None:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path / "it's here")
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(ModelError, match="save_pretrained") as caught:
        Checkpoint.open(folder)
    text = str(caught.value)
    assert name in text and "\n" not in text and "'\"'\"'" in text  # quoted for the shell


def test_no_weights_and_no_folder(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("llama_narrow"), tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no weights, expected model\.safetensors"):
        Checkpoint.open(folder)
    with pytest.raises(ModelError, match="not found"):
        Checkpoint.open(tmp_path / "nowhere")


def test_opening_reads_no_weights(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("llama"), tmp_path)
    checkpoint = Checkpoint.open(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(10_000)  # reading now would be a bus error: the map must notice before
    with pytest.raises(ModelError, match="changed its size"):
        checkpoint.vector("final_norm.gamma")
