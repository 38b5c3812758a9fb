"""A manifest or firmware image that does not belong is refused: expected against found."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from pathlib import Path

import pytest
import yaml

from lora_host import abi
from lora_host.errors import OverlayError
from lora_host.overlay import load_overlay, overlay_names
from lora_sdk.cli.overlay import artefacts

NAME = "lora_f_u280"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the overlay to damage."""
    copy = tmp_path / NAME
    shutil.copytree(load_overlay(NAME).path.parent, copy)
    return copy


def change(folder: Path, **changes: object) -> Path:
    """Sets fields of the manifest; a dot is written as two underscores."""
    path = folder / "manifest.yaml"
    facts = yaml.safe_load(path.read_text())
    for name, value in changes.items():
        *parents, last = name.split("__")
        place = facts
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    path.write_text(yaml.safe_dump(facts))
    return path


def test_the_shipped_overlay_is_the_papers_lora_f() -> None:
    overlay = load_overlay(NAME)
    assert NAME in overlay_names()
    assert (overlay.board.name, overlay.precision, overlay.clock_hz) == ("u280", "fp16", 200e6)
    assert (overlay.tiling.array_rows, overlay.tiling.array_columns) == (32, 32)
    assert overlay.control_bank == 32 and overlay.weight_banks == range(32)
    assert overlay.link_configuration == 0x3 | 32 << 2
    assert overlay.link_configuration_mask == 0x2 | 0x1FF << 2
    assert zlib.crc32(overlay.image[32:]) == overlay.image_crc


def test_lora_q_is_the_papers_and_takes_what_the_precision_says() -> None:
    """Table IV: 250 MHz, 64 x 64; SoftMax and LayerNorm in FP16, so FP16 is among the formats."""
    overlay = load_overlay("lora_q_u280")
    assert (overlay.precision, overlay.clock_hz) == ("w8a8", 250e6)
    assert (overlay.tiling.array_rows, overlay.tiling.array_columns) == (64, 64)
    assert overlay.weights == ("int8", "fp16") and overlay.kv[0] == "int8"
    assert load_overlay(NAME).weights == ("fp16", "w4a16")
    assert set(load_overlay("lora_w4a8_v80").weights) == {"w4a8", "w4a16", "int8", "fp16"}


@pytest.mark.parametrize("name", overlay_names())
def test_every_overlay_has_its_image_and_current_containers(name: str) -> None:
    overlay = load_overlay(name)
    lora_f = load_overlay(f"lora_f_{overlay.board.name}")
    assert overlay.image == lora_f.image and overlay.container is not None
    for path, content in artefacts(overlay, overlay.path.parent):
        assert path.read_bytes() == content, f"{path}: run 'lora overlay build'"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"weights": ["fp16", "int4"]}, r"weights\.1: found int4"),
        ({"kv": []}, r"kv: found \[\]"),
        ({"weights": None}, "weights"),
    ],
)
def test_unknown_formats_are_refused(folder: Path, changes: dict, message: str) -> None:
    with pytest.raises(OverlayError, match=message):
        load_overlay(change(folder, **changes))


def test_a_folder_and_a_file_are_taken_as_well(folder: Path) -> None:
    assert load_overlay(folder) == load_overlay(folder / "manifest.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clok_hz": 1}, r"unknown field 'clok_hz', did you mean 'clock_hz'\?"),
        ({"clock_hz": None}, r"field 'clock_hz' is missing"),
        ({"clock_hz": "fast"}, r"clock_hz: found fast, expected type integer"),
        ({"clock_hz": 900_000_000}, r"clock_hz: 900000000 found, at most 300000000 expected"),
        ({"board": "u250"}, r"board 'u250' is not known; did you mean 'u280'\?"),
        ({"abi": 99}, rf"ABI 99 found, {abi.ABI_NUMBER} expected"),
        ({"limits__max_step_rows": 65}, r"limits.max_step_rows: found 65, expected maximum 64"),
        ({"banks__control": 34}, r"banks.control: bank 34 found, 0..33 expected \(u280\)"),
        ({"banks__spill__count": 3}, r"banks.spill: bank 34 found"),
        ({"links__framing": False}, r"links.framing: found False, expected const True"),
        ({"merge": 3}, r"merge: found 3, expected enum"),
    ],
)
def test_a_wrong_manifest_is_named(folder: Path, changes: dict[str, object], message: str) -> None:
    path = change(folder, **changes)
    with pytest.raises(OverlayError, match=message) as caught:
        load_overlay(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_manifest_and_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match=r"did you mean 'lora_f_u280'"):
        load_overlay("lora_f_u20")
    (tmp_path / "manifest.yaml").write_text("a: [1\nb: {")
    with pytest.raises(OverlayError, match="not YAML"):
        load_overlay(tmp_path)


def header(code: bytes, **changes: int) -> bytes:
    fields = {
        "magic": 0x57464C41,
        "size": 32,
        "abi": abi.ABI_NUMBER,
        "board": 0x280,
        "code_bytes": len(code),
        "code_crc": zlib.crc32(code),
        "entry": 0,
        "reserved": 0,
    }
    fields.update(changes)
    return struct.pack("<8I", *fields.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": 1}, "magic 0x00000001 found, 0x57464c41 expected"),
        ({"abi": 7}, f"ABI 7 found, {abi.ABI_NUMBER} expected"),
        ({"board": 0x80}, r"board kind 0x80 found, 0x280 \(u280\) expected"),
        ({"code_bytes": 9}, r"size 40 B found, 32\+9 B expected"),
        ({"entry": 8}, "size 40 B found"),
        ({"code_crc": 5}, r"CRC of the code 0x\w+ found, 0x00000005 \(its header\) expected"),
        ({}, r"CRC of the code 0x\w+ found, 0x\w+ \(manifest\) expected"),
    ],
)
def test_a_wrong_image_is_named(folder: Path, changes: dict[str, int], message: str) -> None:
    code = bytes(range(8))
    (folder / "firmware.bin").write_bytes(header(code, **changes) + code)
    with pytest.raises(OverlayError, match=message) as caught:
        _ = load_overlay(folder).image
    assert "firmware.bin" in str(caught.value)


def test_a_damaged_truncated_or_missing_image_is_named(folder: Path) -> None:
    path = folder / "firmware.bin"
    image = bytearray(path.read_bytes())
    image[1000] ^= 1
    path.write_bytes(image)
    with pytest.raises(OverlayError, match="CRC of the code"):
        _ = load_overlay(folder).image
    path.write_bytes(image[:-1])
    with pytest.raises(OverlayError, match="size"):
        _ = load_overlay(folder).image
    path.write_bytes(b"")
    with pytest.raises(OverlayError, match="0 B found, at least 32 B expected"):
        _ = load_overlay(folder).image
    path.unlink()
    with pytest.raises(OverlayError, match=re.escape(str(path))):
        _ = load_overlay(folder).image
