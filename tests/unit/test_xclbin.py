"""The container that we write: read back, compared with its manifest, damaged in every way."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import abi, axlf
from lora_host.alveo_container import describe, emulation_container
from lora_host.container_check import check_container, differences, is_emulation
from lora_host.errors import OverlayError, RequestError
from lora_host.kernel_metadata import read_kernels
from lora_host.linker_config import linker_config
from lora_host.overlay import load_overlay
from lora_host.xclbin import (
    Memory,
    Xclbin,
    capacity,
    pack_connections,
    pack_memories,
    parse_xclbin,
    write_xclbin,
)
from lora_sdk.cli.inspect import inspect
from lora_sdk.cli.overlay import build

OVERLAY = load_overlay("lora_f_u280")
CONTENT = emulation_container(OVERLAY)
CONTAINER = parse_xclbin(CONTENT)


def rewritten(**changes: object) -> Xclbin:
    return dataclasses.replace(CONTAINER, **changes)  # type: ignore[arg-type]


def test_structures_have_the_sizes_of_the_vendor_header() -> None:
    assert axlf.TOP.size + axlf.HEADER.size == 496 - axlf.SECTION.size
    sizes = [s.size for s in (axlf.HEADER, axlf.SECTION, axlf.MEMORY, axlf.IP, axlf.CONNECTION)]
    assert sizes == [152, 40, 40, 80, 12]
    assert axlf.COUNT_8.size + axlf.MEMORY.size == 48 and axlf.COUNT_8.size + axlf.IP.size == 88
    assert axlf.COUNT_2.size + axlf.CLOCK.size == 138


def test_what_is_written_is_read() -> None:
    wanted = describe(OVERLAY)
    assert CONTAINER.memories == wanted.memories and len(CONTAINER.memories) == 34
    assert CONTAINER.ips == wanted.ips
    assert CONTAINER.connections == wanted.connections
    assert CONTAINER.clocks == wanted.clocks
    assert CONTAINER.kernels == wanted.kernels
    assert is_emulation(CONTAINER) and CONTAINER.mode == axlf.MODE_SW_EMU
    assert differences(CONTAINER, OVERLAY) == []
    check_container(CONTAINER, OVERLAY, "ours")


def test_the_committed_files_are_those_of_the_manifest() -> None:
    result = CliRunner().invoke(build, ["lora_f_u280", "--check"])
    assert result.exit_code == 0, result.output


def test_a_stale_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "lora_f_u280.xclbin").write_bytes(CONTENT[:-1])
    result = CliRunner().invoke(build, ["lora_f_u280", "--check", "--out", str(tmp_path)])
    assert result.exit_code == 1 and "not current" in result.output
    assert f"manifest: {OVERLAY.path}" in result.output


def test_a_comparison_says_its_manifest(tmp_path: Path) -> None:
    path = tmp_path / "a.xclbin"
    path.write_bytes(CONTENT)
    shown = CliRunner().invoke(inspect, [str(path), "--overlay", "lora_f_u280"])
    assert f"manifest: {OVERLAY.path}\n" in shown.output and shown.exit_code == 0
    told = CliRunner().invoke(inspect, [str(path), "--overlay", "lora_q_u280", "--json"])
    assert json.loads(told.output)["manifest"].endswith("lora_q_u280/manifest.yaml")


def test_a_container_with_a_bitstream_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "lora_f_u280.xclbin"
    arguments = ["lora_f_u280", "--out", str(tmp_path)]
    for content in (bytes(1000), bytes(2 << 20)):
        path.write_bytes(content)
        result = CliRunner().invoke(build, arguments)
        assert isinstance(result.exception, RequestError) and "bitstream" in str(result.exception)
        assert path.read_bytes() == content
    path.write_bytes(CONTENT + b"old")
    assert CliRunner().invoke(build, arguments).exit_code == 0


def test_groups_are_preferred_where_there_are_any() -> None:
    group = Memory(axlf.MEM_HBM, True, 1 << 28, 0, "HBM[0]")
    sections = [*CONTAINER.sections.items(), (axlf.GROUP_TOPOLOGY, pack_memories([group]))]
    sections.append((axlf.GROUP_CONNECTIVITY, pack_connections([])))
    data = write_xclbin(CONTAINER.uuid, axlf.MODE_FLAT, "p", sections)
    assert parse_xclbin(data).memories == (group,) and parse_xclbin(data).connections == ()


def test_a_group_of_banks_is_counted_once() -> None:
    banks = CONTAINER.memories
    group = Memory(axlf.MEM_HBM, True, 32 * (256 << 20), 0, "MBG[0:31]")
    assert sum(memory.bytes for memory in (*banks, group)) == 48 << 30
    assert capacity(banks) == capacity((*banks, group)) == 40 << 30
    assert capacity([dataclasses.replace(bank, used=False) for bank in banks]) == 0


def test_the_vendors_tool_finds_kernels_shell_and_a_place_for_its_mark() -> None:
    """xclbinutil --info reads these fields, all of kernels' without a default. It writes below
    `packaged_by` when it packs the section again, which a value there would not let it."""
    metadata = json.loads(CONTAINER.sections[axlf.BUILD_METADATA])["build_metadata"]
    shell, made = metadata["dsa"], metadata["xclbin"]
    assert (shell["vendor"], shell["board_id"], shell["name"]) == (
        "xilinx", "u280", "gen3x16_xdma_base",
    )  # fmt: skip
    assert isinstance(made["packaged_by"], dict) and made["generated_by"]["name"]
    kernels = [kernel for region in made["user_regions"] for kernel in region["kernels"]]
    assert [kernel["name"] for kernel in kernels] == ["lora_ctrl", "aurora_flow_0", "aurora_flow_1"]
    units = {f"{kernel['name']}:{i['name']}" for kernel in kernels for i in kernel["instances"]}
    assert units == {ip.name for ip in CONTAINER.ips}
    for kernel in kernels:
        for port in kernel["ports"]:
            assert set(port) == {"name", "mode", "range", "data_width", "port_type"}
        for argument in kernel["arguments"]:
            assert set(argument) == {"name", "type", "port", "offset"}
    described = read_kernels(CONTAINER.sections[axlf.EMBEDDED_METADATA], "x")[0]
    assert [a.id for a in described.arguments] == list(range(len(kernels[0]["arguments"])))


@pytest.mark.parametrize(
    ("mode", "target"), [(0, "hw"), (4, "hw_emu"), (5, "sw_emu"), (9, "unknown mode 9")]
)
def test_inspect_names_the_target(mode: int, target: str, tmp_path: Path) -> None:
    path = tmp_path / "x.xclbin"
    path.write_bytes(
        write_xclbin(CONTAINER.uuid, mode, CONTAINER.platform, list(CONTAINER.sections.items()))
    )
    found = CliRunner().invoke(inspect, [str(path)])
    assert found.output.splitlines()[0].endswith(f", {target}")


def test_each_difference_is_named() -> None:
    ips = tuple(
        dataclasses.replace(ip, base=0x1000, control=axlf.AP_CTRL_HS)
        if ip.kernel == "aurora_flow_0"
        else ip
        for ip in CONTAINER.ips
        if ip.kernel != "aurora_flow_1"
    )
    memories = (dataclasses.replace(CONTAINER.memories[0], bytes=1 << 20), *CONTAINER.memories[1:])
    kernel = CONTAINER.kernels[0]
    kernels = (dataclasses.replace(kernel, arguments=kernel.arguments[1:]),)
    clocks = (dataclasses.replace(CONTAINER.clocks[0], mhz=300),)
    notes = json.dumps({"lora": {"abi": 99}}).encode()
    spoilt = rewritten(
        ips=ips,
        memories=memories,
        kernels=kernels,
        clocks=clocks,
        connections=CONTAINER.connections[:-1],
        sections={**CONTAINER.sections, axlf.USER_METADATA: notes},
    )
    assert [str(d) for d in differences(spoilt, OVERLAY)] == [
        "bank HBM[0]: hbm 1 MiB found, hbm 256 MiB expected",
        "kernel aurora_flow_0's base: 0x1000 found, 0x810000 expected",
        "kernel aurora_flow_0's control: ap_ctrl_hs found, ap_ctrl_none expected",
        "kernel aurora_flow_1: none found, one at 0x820000 expected",
        "argument operation of lora_ctrl: none found, one at 0x10 expected",
        "bank of argument ddr_1 of lora_ctrl: none found, DDR[1] expected",
        "data clock: 300 MHz found, 200 MHz expected",
        f"ABI: 99 found, {abi.ABI_NUMBER} expected",
    ]
    with pytest.raises(OverlayError, match=r"bank HBM.*\(and 7 more"):
        check_container(spoilt, OVERLAY, "x")


def test_every_cut_is_refused() -> None:
    for cut in range(0, len(CONTENT), 61):
        with pytest.raises(OverlayError):
            parse_xclbin(CONTENT[:cut])


@settings(max_examples=300, deadline=None)
@given(st.integers(304, 4000), st.binary(min_size=1, max_size=8))
def test_damage_is_an_error_or_harmless(at: int, damage: bytes) -> None:
    data = bytearray(CONTENT)
    data[at : at + len(damage)] = damage
    with contextlib.suppress(OverlayError):
        differences(parse_xclbin(bytes(data)), OVERLAY)


def test_entities_are_not_expanded() -> None:
    with pytest.raises(OverlayError, match="a document type is declared"):
        read_kernels(b'<!DOCTYPE a [<!ENTITY b "c">]><project>&b;</project>', "x")


def test_the_linker_is_told_kernels_banks_and_streams() -> None:
    lines = linker_config(OVERLAY).splitlines()
    assert "nk=lora_ctrl:1:lora_ctrl_1" in lines and "nk=aurora_flow_1:1:aurora_flow_1" in lines
    assert "sp=lora_ctrl_1.hbm_17:HBM[17]" in lines and "sp=lora_ctrl_1.ddr_1:DDR[1]" in lines
    assert sum(line.startswith("sp=") for line in lines) == 34
    assert "sc=lora_ctrl_1.tx0:aurora_flow_0.tx_axis" in lines
    assert "sc=aurora_flow_1.rx_axis:lora_ctrl_1.rx1" in lines


def test_inspect_shows_and_compares(tmp_path: Path) -> None:
    path = tmp_path / "a.xclbin"
    path.write_bytes(CONTENT)
    shown = CliRunner().invoke(inspect, [str(path), "--overlay", "lora_f_u280"])
    assert shown.exit_code == 0 and "fits" in shown.output and "holds no bitstream" in shown.output
    bare = write_xclbin(
        CONTAINER.uuid,
        axlf.MODE_FLAT,
        "p",
        [(k, v) for k, v in CONTAINER.sections.items() if k != axlf.IP_LAYOUT and k != 7],
    )
    path.write_bytes(bare)
    shown = CliRunner().invoke(inspect, [str(path), "--overlay", "lora_f_u280", "--json"])
    assert shown.exit_code == 1
    assert {"what": "kernel lora_ctrl", "found": "none", "expected": "one at 0x800000"} in (
        json.loads(shown.output)["differences"]
    )


def test_inspect_names_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x7fELF")
    result = CliRunner().invoke(inspect, [str(path)])
    assert isinstance(result.exception, OverlayError) and "ELF" in str(result.exception)
