"""Hostile files: each of thousands of mutations of a format is taken, or refused in one line of at
most 500 characters, in bounded time. 200 of each run always, 10,000 among the slow tests."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from lora_host import regular_file
from lora_host.errors import MAX_MESSAGE, AdapterError, LoraError, ModelError, OverlayError
from lora_host.kernel_metadata import read_kernels
from lora_host.overlay import load_overlay
from lora_host.regular_file import read_regular
from lora_host.vrtbin import read_vrtbin
from lora_lab.spec_tuning import npz_file
from lora_lab.spec_tuning.npz_file import NpzFault, read_npz
from lora_sdk.adapters.config import parse
from lora_sdk.adapters.weights import load_adapter_weights
from lora_sdk.model.config import load_config
from lora_sdk.model.folder import INDEX, find_tensors
from lora_sdk.text.panics import without_panic_reports
from lora_sdk.text.tokenizer import Tokenizer
from tests import (
    hostile_gguf,
    hostile_host,
    hostile_lists,
    hostile_models,
    hostile_quantized,
    hostile_requests,
    mutations,
)
from tests.adapter_folders import Folder, write_adapter
from tests.mutations import Subject, campaign
from tests.variant_tokenizer import make_tokenizer
from tests.variants import variant, write_checkpoint

FORMATS: dict[str, Callable[[Path], Subject]] = {
    "vrtbin": hostile_host.vrtbin,
    "xclbin": hostile_host.xclbin,
    "cluster": hostile_host.cluster,
    "manifest": hostile_host.manifest,
    "fleet": hostile_host.fleet,
    "design": hostile_host.design,
    "safetensors": hostile_models.container,
    "index": hostile_models.index,
    "gguf": hostile_gguf.mutated,
    "config": hostile_models.config,
    "generation_config": hostile_models.generation_config,
    "tokenizer": hostile_models.tokenizer,
    "quantized": hostile_quantized.quantized,
    "ranks": hostile_models.ranks,
    "adapter_config": hostile_models.adapter,
    "adapter_weights": hostile_models.adapter_weights,
    "list": hostile_lists.lists,
    "template": hostile_requests.template,
    "batch": hostile_requests.batch,
    "tables": hostile_requests.tables,
}


SLOW = 10_000
FEWER = {"fleet": 1000, "design": 1000, "generation_config": 1000}
"""Files that only lora lab model reads, and fields that other formats have too."""


def run(name: str, folder: Path, count: int) -> None:
    subject = FORMATS[name](folder)
    try:
        outcome = campaign(name, subject, count)
    finally:
        subject.close()
    assert not outcome.faults, f"{name}: {outcome}\n" + "\n".join(outcome.faults[:20])
    assert outcome.taken and outcome.refused, f"{name}: {outcome}; expected some of both"


@pytest.mark.parametrize(
    "read, kind",
    [(lambda: bytes(1 << 31), "MemoryError"), (lambda: time.sleep(9), "Late"),
     (lambda: [][1], "IndexError")],
)  # fmt: skip
def test_what_a_campaign_finds(
    read: Callable[[], object], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "MAX_SECONDS", 0.05)
    outcome = campaign("x", Subject(tmp_path / "x", lambda random: b"", read), 2)
    assert outcome.kinds == {kind: 2}


@pytest.mark.parametrize("name", FORMATS)
def test_some_mutations(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, 200)


# A minute or two each; the fuzzers reach further in these (docs/fuzzing.md).
LONG = {"xclbin", "vrtbin", "adapter_config"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n in LONG else pytest.mark.slow) for n in FORMATS],
)
def test_ten_thousand_mutations(name: str, tmp_path: Path) -> None:
    run(name, tmp_path, FEWER.get(name, SLOW))


def test_files_that_say_another_size_are_read(tmp_path: Path) -> None:
    """Those of /proc say 0; a growing one is not cut at the size that it had."""
    assert read_regular(Path("/proc/self/status"), 1 << 20).startswith(b"Name:")
    path = tmp_path / "a"
    path.write_bytes(bytes(200_000))
    assert read_regular(path, 200_000) == bytes(200_000)
    with pytest.raises(OSError, match="larger than the limit of 199999 B"):
        read_regular(path, 199_999)
    with path.open("ab") as more, pytest.MonkeyPatch.context() as patch:
        real, told = os.fstat, os.stat(path)

        def grow(descriptor: int) -> os.stat_result:
            more.write(bytes(100_000))
            more.flush()
            return told if real(descriptor).st_ino == told.st_ino else real(descriptor)

        patch.setattr(regular_file.os, "fstat", grow)
        assert len(read_regular(path, 1 << 20)) > 200_001


def test_a_message_is_one_bounded_line() -> None:
    assert str(LoraError("a: b\n  c")) == "a: b c"
    assert str(LoraError("a\x1b[31m\0 \ud800 é")) == "a\\x1b[31m\\x00 \\ud800 é"
    long = str(LoraError("head" + "x" * 70_000 + "tail"))
    assert len(long) == MAX_MESSAGE and long.startswith("headx") and long.endswith("xtail")
    assert str(LoraError("y" * MAX_MESSAGE)) == "y" * MAX_MESSAGE


def test_a_vrtbin_with_a_damaged_deflate_stream(tmp_path: Path) -> None:
    container = load_overlay("lora_f_v80").container
    assert container is not None
    data = bytearray(gzip.compress(container.read_bytes(), mtime=0))
    data[12] ^= 0xFF
    (tmp_path / "x.vrtbin").write_bytes(data)
    with pytest.raises(OverlayError, match=r"x\.vrtbin: damaged gzip: "):
        read_vrtbin(tmp_path / "x.vrtbin")


def test_an_xclbin_in_an_unknown_encoding() -> None:
    with pytest.raises(OverlayError, match="cannot be read: unknown encoding: no-such-code"):
        read_kernels(b"<?xml version='1.0' encoding='no-such-code'?><a/>", "x")


@pytest.mark.parametrize("value", [["a.safetensors"], {"a": 1}, 3, None])
def test_an_index_that_names_no_file(value: object, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": value}}))
    with pytest.raises(ModelError, match=r"names the file .*, expected one of the folder"):
        find_tensors(tmp_path)


def test_a_shard_that_is_a_directory(tmp_path: Path) -> None:
    for name in ("a.safetensors", "b" * 300 + ".safetensors"):
        (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
        (tmp_path / "a.safetensors").mkdir(exist_ok=True)
        with pytest.raises(ModelError, match=r"\.safetensors: (missing|cannot be read)"):
            find_tensors(tmp_path)


def test_a_tokenizer_that_panics(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    value = json.loads(make_tokenizer(300).to_str())
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(Exception, match="PanicException") as panic:  # else this tests nothing
        _panic(tmp_path / "tokenizer.json")
    assert "panicked" in capfd.readouterr().err, panic
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read: no entry found for key"):
        Tokenizer(tmp_path, 300)
    assert capfd.readouterr().err == ""


def _panic(path: Path) -> None:
    try:
        Backend.from_file(str(path)).encode("a")
    except BaseException as error:
        raise RuntimeError(type(error).__name__) from None


def test_what_others_write_meanwhile_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with without_panic_reports():
        os.write(2, b"a warning\n")
    with suppress(ValueError), without_panic_reports():
        os.write(2, b"another\n\nthread '<unnamed>' (9) panicked at src/lib.rs:1:2:\nno entry\n")
        raise ValueError
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "a warning\nanother\nlater\n"


@pytest.mark.parametrize("number", ["1.", "1.0", "1e0", "true"])
def test_a_manifest_whose_counts_are_no_integers(number: str, tmp_path: Path) -> None:
    text = load_overlay("lora_f_u280").path.read_text()
    path = tmp_path / "manifest.yaml"
    path.write_text(text.replace("merge: ", f"merge: {number} #"))
    wanted = r"merge: found (1\.0|True), expected type integer or string"
    with pytest.raises(OverlayError, match=wanted):
        load_overlay(path)


def test_an_adapter_whose_scale_is_beyond_fp32(tmp_path: Path) -> None:
    which = variant("llama_narrow")
    config = load_config(write_checkpoint(which, tmp_path / "model"))
    folder = write_adapter(which, Folder("plain"), tmp_path / "adapter")
    values = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**values, "lora_alpha": 1e300}))
    with pytest.raises(AdapterError, match=r"scale 1\.25e\+299, expected a number that FP32"):
        load_adapter_weights(folder, config)


def test_an_adapter_with_an_endless_number() -> None:
    with pytest.raises(AdapterError, match=r"lora_alpha is 1000.*, expected a finite number"):
        parse({"peft_type": "LORA", "r": 8, "lora_alpha": 10**400, "target_modules": ["q_proj"]})


def test_npz_files_are_never_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.arange(6, dtype=np.uint8).reshape(2, 3), b=np.array("text"))
    found = read_npz(path)
    assert found["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and str(found["b"]) == "text"
    for bad in (np.array([None]), np.zeros(3), np.zeros((2, 2), np.uint8, order="F").T[:1]):
        np.savez(path, a=bad)
        if bad.dtype == np.uint8:
            assert read_npz(path)["a"].shape == (1, 2)
            continue
        with pytest.raises(NpzFault, match=r"'a\.npy': header"):
            read_npz(path)
    np.savez_compressed(path, a=np.zeros(1 << 16, np.uint8))
    assert path.stat().st_size < 1 << 10
    monkeypatch.setattr(npz_file, "MAX_UNPACKED", 1 << 16)
    with pytest.raises(NpzFault, match="bytes unpacked"):
        read_npz(path)
