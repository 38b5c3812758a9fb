"""The runtime itself: absent, too old, not set up; containers that are not the manifest's. noop
mode or no device at all."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_host.overlay import load_overlay
from lora_host.xrt_environment import XrtEnvironment
from tests.xrt_rig import said

pytestmark = pytest.mark.xrt

OPEN = """
try:
    opened(*sys.argv[1:])
except LoraError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def noop() -> Iterator[XrtEnvironment]:
    with XrtEnvironment(1, mode="noop") as place:
        yield place


def test_without_the_environment_variable_nothing_is_opened(noop: XrtEnvironment) -> None:
    variables = {k: v for k, v in noop.variables.items() if k != "XILINX_XRT"}
    out = said(variables, OPEN, "xrt:0")
    assert out.startswith("TransportError") and "XILINX_XRT is not set" in out and "source" in out


def test_a_folder_that_is_not_there(noop: XrtEnvironment) -> None:
    out = said({**noop.variables, "XILINX_XRT": "/nowhere"}, OPEN, "xrt:0")
    assert "XILINX_XRT names '/nowhere'" in out


def test_a_folder_without_the_drivers_library(noop: XrtEnvironment, tmp_path: Path) -> None:
    """XRT would end the process: of Debian's packages /usr/lib has none."""
    (tmp_path / "lib").mkdir()
    there = {**noop.variables, "XILINX_XRT": str(tmp_path)}
    assert f"XILINX_XRT names '{tmp_path}', which has no lib/libxrt_noop.so.2" in said(
        there, OPEN, "xrt:0"
    )
    (tmp_path / "lib" / "libxrt_noop.so.2").touch()
    card = {**there, "XCL_EMULATION_MODE": ""}
    assert "which has no lib/libxrt_core.so.2" in said(card, OPEN, "xrt:0")


def test_a_library_that_cannot_be_loaded(noop: XrtEnvironment, tmp_path: Path) -> None:
    (tmp_path / "libxrt_coreutil.so.2").write_text("no library")
    out = said({**noop.variables, "LD_LIBRARY_PATH": str(tmp_path)}, OPEN, "xrt:0")
    assert out.startswith("TransportError") and "install XRT 2.13 or newer" in out


def test_a_library_that_is_too_old(noop: XrtEnvironment, tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("void *xrtDeviceOpen(unsigned i) { (void)i; return 0; }\n")
    library = tmp_path / "libxrt_coreutil.so.2"
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    out = said({**noop.variables, "LD_LIBRARY_PATH": str(tmp_path)}, OPEN, "xrt:0")
    assert "has no xrtDeviceOpenByBDF; XRT 2.13 or newer expected" in out


@pytest.mark.parametrize(
    ("uri", "message"),
    [("xrt:5", "boards found: 1"), ("xrt:0000:3b:00.1", "the runtime finds no such board")],
)
def test_a_board_that_is_not_there(noop: XrtEnvironment, uri: str, message: str) -> None:
    assert message in said(noop, OPEN, uri)


def test_one_board_twice(noop: XrtEnvironment) -> None:
    assert "xrt:0: this process (" in said(noop, OPEN, "xrt:0", "xrt:0")


DAMAGED = """
import shutil, tempfile, pathlib
source = load_overlay("lora_f_u280")
content = source.container.read_bytes()
folder = pathlib.Path(tempfile.mkdtemp())
import dataclasses
from lora_host.cluster import Cluster
def attempt(data):
    path = folder / "a.xclbin"
    path.write_bytes(data)
    try:
        Cluster.open(devices=["xrt:0"], overlay=dataclasses.replace(source, container=path))
    except LoraError as error:
        return f"{type(error).__name__}: {error}"
"""


def test_damaged_containers_are_refused_by_our_own_reader(noop: XrtEnvironment) -> None:
    code = (
        DAMAGED
        + """
for cut in range(0, len(content), 997):
    text = attempt(content[:cut])
    assert text.startswith("OverlayError"), text
for at in list(range(304, 900, 3)):
    for value in (0xff, 0x7f):
        damaged = bytearray(content)
        damaged[at:at + 3] = bytes([value]) * 3
        text = attempt(bytes(damaged))
        assert text.split(":")[0] in ("OverlayError", "TransportError"), text
print("all refused")
shutil.rmtree(folder)
"""
    )
    assert "all refused" in said(noop, code)


def test_a_container_of_another_overlay(noop: XrtEnvironment, tmp_path: Path) -> None:
    code = """
import dataclasses
source = load_overlay("lora_f_u280")
other = dataclasses.replace(source, block_base=(0x900000, 0x910000, 0x920000))
try:
    Cluster.open(devices=["xrt:0"], overlay=other)
except OverlayError as error:
    print(error)
bare = dataclasses.replace(source, container=None)
try:
    Cluster.open(devices=["xrt:0"], overlay=bare)
except OverlayError as error:
    print(error)
"""
    out = said(noop, code)
    assert "kernel lora_ctrl at 0x800000 found, 0x900000 expected" in out
    assert "names no container" in out
    assert load_overlay("lora_f_u280").container is not None
