"""vrtbin archives: what is written is read back; hostile ones are refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_host.errors import OverlayError
from lora_host.overlay import Overlay, load_overlay
from lora_host.vrtbin import (
    MARK,
    check_vrtbin,
    differences,
    emulation_design,
    read_vrtbin,
    write_vrtbin,
)
from lora_sdk.cli.inspect import inspect

MAP = b"<S><Platform>Hardware</Platform><ClockFrequency>200000000</ClockFrequency></S>"
Member = tuple[str, bytes]


@pytest.fixture(scope="module")
def overlay() -> Overlay:
    return load_overlay("lora_f_v80")


def archive(*members: Member, kind: bytes = tarfile.REGTYPE) -> bytes:
    place = io.BytesIO()
    with tarfile.open(fileobj=place, mode="w") as tar:
        for name, text in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(text) if kind == tarfile.REGTYPE else 0
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry, io.BytesIO(text))
    return place.getvalue()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "some.vrtbin"
    path.write_bytes(data)
    return path


def design_of(overlay: Overlay) -> bytes:
    assert overlay.container is not None
    return read_vrtbin(overlay.container).designs["design.pdi"]


def test_the_committed_archive_is_what_the_manifest_says(overlay: Overlay) -> None:
    assert overlay.container is not None
    assert overlay.container.read_bytes() == write_vrtbin(overlay)


def test_what_is_written_is_read_back(overlay: Overlay, tmp_path: Path) -> None:
    data = write_vrtbin(overlay)
    for packed in (data, gzip.compress(data)):
        found = read_vrtbin(written(tmp_path, packed))
        assert found.emulation and found.platform == "Emulation"
        assert differences(found, overlay) == []
        design = emulation_design(found.designs["design.pdi"])
        assert design.image == overlay.image and design.block_base == overlay.block_base
    assert MARK in data


def test_differences_from_a_manifest_are_named(overlay: Overlay, tmp_path: Path) -> None:
    found = read_vrtbin(written(tmp_path, write_vrtbin(overlay)))
    other = replace(overlay, clock_hz=150_000_000, block_base=(0, *overlay.block_base[1:]))
    assert differences(found, other)[0] == "clock 200000000 Hz found, 150000000 Hz expected"
    with pytest.raises(OverlayError, match=r"clock 200000000 Hz found.*\(and \d+ more\).*lora_f"):
        check_vrtbin(found, other, "x.vrtbin")
    bare = replace(found, kernels=found.kernels[1:])
    assert differences(bare, overlay)[0].startswith("kernel lora_ctrl is missing among")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a tar archive"),
        (b"\x1f\x8b rubbish", "damaged gzip"),
        (archive(("design.pdi", b"x")), "no system_map.xml"),
        (archive(("system_map.xml", MAP)), r"no design \(\*\.pdi\)"),
        (archive(("../design.pdi", b"x")), "a path that leaves the archive"),
        (archive(("/etc/design.pdi", b"x")), "a path that leaves the archive"),
        (archive(("images/../../design.pdi", b"x")), "a path that leaves the archive"),
        (archive(("design.pdi", b""), kind=tarfile.SYMTYPE), "not a plain file"),
        (archive(("note.txt", b"x")), r"system_map\.xml, \*\.pdi and reports"),
        (archive(("design.pdi", b"x"), ("design.pdi", b"y")), "found twice"),
        (archive(("system_map.xml", b"<S>"), ("design.pdi", b"x")), "not XML"),
        (
            archive(("system_map.xml", b"<!DOCTYPE a []>" + MAP), ("design.pdi", b"")),
            "a document type is declared",
        ),
        (
            archive(("system_map.xml", MAP.replace(b"Hardware", b"Toy")), ("design.pdi", b"")),
            "Platform 'Toy' found, Hardware",
        ),
        (
            archive(("system_map.xml", MAP.replace(b"200000000", b"fast")), ("design.pdi", b"")),
            "'fast' found, a number expected",
        ),
    ],
)  # fmt: skip
def test_hostile_archives(data: bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match=says):
        read_vrtbin(written(tmp_path, data))


def test_a_truncated_archive(overlay: Overlay, tmp_path: Path) -> None:
    data = write_vrtbin(overlay)
    with pytest.raises(OverlayError):
        read_vrtbin(written(tmp_path, data[: len(data) // 3]))


@pytest.mark.parametrize("pdi", [b"", MARK, MARK + b"{}\n", MARK + b"[1]\nx", b"\x01real PDI"])
def test_a_design_that_is_not_ours(pdi: bytes) -> None:
    with pytest.raises(OverlayError, match=r"design\.pdi"):
        emulation_design(pdi)


@pytest.mark.parametrize("value", [10**20, 2**32, -1, 10**400, 1e300, "1", True, None])
@pytest.mark.parametrize("key", ["board", "abi", "onchip_bytes", "block_base"])
def test_a_designs_numbers(overlay: Overlay, key: str, value: object) -> None:
    line, _, image = design_of(overlay).removeprefix(MARK).partition(b"\n")
    facts = json.loads(line)
    facts[key] = [facts[key][0], value * 2**32 if type(value) is int else value, 0] if (
        key == "block_base"
    ) else value  # fmt: skip
    with pytest.raises(OverlayError, match="bits expected"):
        emulation_design(MARK + json.dumps(facts).encode() + b"\n" + image)


def test_inspect_shows_an_archive_and_what_differs(overlay: Overlay, tmp_path: Path) -> None:
    path = str(written(tmp_path, gzip.compress(write_vrtbin(overlay))))
    runner = CliRunner()
    fits = runner.invoke(inspect, [path, "--overlay", "lora_f_v80"])
    assert fits.exit_code == 0 and "holds no bitstream" in fits.output
    assert fits.output.rstrip().endswith("overlay lora_f_v80: fits")  # as of an xclbin
    assert "32 hbm of 1024 MiB, 1 ddr of 32768 MiB" in fits.output
    assert "kernel lora_ctrl at 0x20200000000" in fits.output and "DDR0" in fits.output
    other = runner.invoke(inspect, [path, "--overlay", "lora_f_u280"])
    assert other.exit_code == 1 and "base 0x20200000000 found, 0x800000 expected" in other.output
