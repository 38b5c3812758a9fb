"""Locks, the PCI bus and the doctor, on trees of the tests' own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lora_host import axlf, rtl, sim
from lora_host.boards import load_board
from lora_host.device_uri import canonical
from lora_host.errors import TransportError
from lora_host.lab.doctor import MISSING, NOTE, OK, Finding, Machine, examine
from lora_host.lab.inventory import inventory, pci_boards
from lora_host.lab.source_tree import made_in_tree, source_tree
from lora_host.lock import BoardLock, holder, lock_path
from lora_host.overlay import load_overlay
from lora_host.xclbin import Xclbin, read_xclbin
from lora_host.xrt_environment import emulation_config
from lora_sdk.cli.list_view import table
from tests.foreign import foreign_xclbin
from tests.processes import ROOT, environment

URI = "slash:0000:21:00.0"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path / "locks"))
    monkeypatch.setenv("LORA_VRTD_SOCKET", str(tmp_path / "none.sock"))
    return tmp_path


def test_all_spellings_of_a_board_are_one() -> None:
    spellings = ("slash:21:00.0", "slash:0000:21:00.2", "SLASH:0000:21:00", URI)
    assert len({canonical(uri) for uri in spellings}) == 1
    assert canonical("xrt:0") == "xrt:0"


def test_a_lock_is_all_or_none_and_names_its_holder() -> None:
    other = "slash:0000:22:00.0"
    held = BoardLock([URI])
    assert holder(URI) == os.getpid() and holder(other) is None
    with pytest.raises(TransportError, match=rf"this process \({os.getpid()}\) holds it"):
        BoardLock([other, URI])
    assert holder(other) is None  # given back
    held.close()
    assert holder(URI) is None
    BoardLock([URI]).close()


def test_a_killed_holder_leaves_a_lock_that_heals() -> None:
    code = f"""
import time
from lora_host.lock import BoardLock
lock = BoardLock([{URI!r}])
print('held', flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert holder(URI) == process.pid
    with pytest.raises(TransportError, match=rf"held by process {process.pid} \(python"):
        BoardLock([URI])
    process.kill()
    process.wait()
    process.stdout.close()
    assert lock_path(URI).read_text().strip() == str(process.pid)  # stale text, no lock
    BoardLock([URI]).close()


def test_a_full_disk_leaves_a_lock_without_its_holder() -> None:
    """No file grows: the board is held and given back all the same."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        held = BoardLock([URI])
        assert holder(URI) == 0
        held.close()
        assert holder(URI) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_lock_file_that_is_a_link_is_refused(folder: Path) -> None:
    lock_path(URI).parent.mkdir()
    lock_path(URI).symlink_to(folder / "victim")
    with pytest.raises(TransportError, match="cannot be opened"):
        BoardLock([URI])
    assert not (folder / "victim").exists()


def platform(name: str) -> str:
    """What cards call the shell of this board."""
    shell = load_board(name).shell
    assert shell is not None
    return shell.card


def board(root: Path, bdf: str, device: str, shell: str = "", driver: str = "") -> None:
    place = root / "sys/bus/pci/devices" / bdf
    place.mkdir(parents=True)
    (place / "vendor").write_text("0x10ee\n")
    (place / "device").write_text(device + "\n")
    if shell:
        (place / "rom.u.1").mkdir()
        (place / "rom.u.1" / "VBNV").write_text(shell + "\n")
    if driver:
        (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to(root / "drivers" / driver)


def test_boards_of_the_bus(folder: Path) -> None:
    board(folder, "0000:21:00.2", "0x50b6", driver="slash")
    board(folder, "0000:3b:00.1", "0x500d")
    board(folder, "0000:5e:00.1", "0x505d")
    board(folder, "0000:5e:00.0", "0x505c")
    board(folder, "0000:3b:00.0", "0x500c")  # the management function is no board
    found = pci_boards(folder / "sys/bus/pci/devices")
    assert [(b.uri, b.board, b.driver) for b in found] == [
        ("slash:0000:21:00.2", "v80", "slash"),
        ("xrt:0000:3b:00.1", "u280", ""),
        ("xrt:0000:5e:00.1", "u55c", ""),
    ]


@pytest.mark.parametrize("name", ["u280", "u55c"])
def test_boards_in_software_emulation_are_listed(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = emulation_config(2, ["256M"] * 32, platform(name))
    (folder / "emconfig.json").write_text(json.dumps(config))
    monkeypatch.setenv("EMCONFIG_PATH", str(folder))
    assert inventory(folder / "none") == []
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    found = inventory(folder / "none")
    assert [(b.uri, b.board, b.driver) for b in found] == [
        ("xrt:0", name, "software emulation"),
        ("xrt:1", name, "software emulation"),
    ]
    (folder / "emconfig.json").write_text('{"Platform": {"Boards": [1]}}')
    assert inventory(folder / "none") == []


def look(root: Path, **variables: str) -> dict[str, Finding]:
    machine = Machine(root, variables, loads=lambda _: False)
    return {finding.thing: finding for finding in examine(machine)}


def test_a_computer_without_boards_lacks_nothing(folder: Path) -> None:
    (folder / "locks").mkdir()
    assert not [f for f in look(folder).values() if f.state == MISSING]


def test_the_doctor_names_what_each_board_lacks_and_the_cure(folder: Path) -> None:
    board(folder, "0000:21:00.2", "0x50b6")
    board(folder, "0000:3b:00.1", "0x500d", shell="shell_a")
    board(folder, "0000:5e:00.1", "0x500d", shell="shell_b")
    found = look(folder)
    cures = {thing: f.cure for thing, f in found.items() if f.state == MISSING}
    assert cures["slash:0000:21:00.2: driver"] == "sudo modprobe slash"
    assert cures["vrtd"] == "sudo systemctl enable --now vrtd"
    assert cures["driver xocl"] == "sudo modprobe xocl"
    assert "libxrt1" in cures["XRT"] and "libxrt1" in cures["runtime library"]
    assert cures["device nodes"] == "sudo modprobe xocl"
    assert (
        "shell_a" in found["same shell on every u280"].found and cures["same shell on every u280"]
    )
    assert cures["locks"].startswith("mkdir -p")
    (folder / ".dockerenv").touch()
    assert "--device /dev/dri" in look(folder)["device nodes"].cure


def test_each_kind_of_board_has_a_shell_of_its_own(folder: Path) -> None:
    board(folder, "0000:3b:00.1", "0x500d", shell=platform("u280"))
    board(folder, "0000:5e:00.1", "0x505d", shell=platform("u55c"))
    found = look(folder)
    for name in ("u280", "u55c"):
        assert found[f"same shell on every {name}"].state == OK
        assert found[f"shell of the {name} overlays"].state == OK
    board(folder, "0000:5f:00.1", "0x505d", shell=platform("u280"))
    assert look(folder)["same shell on every u55c"].state == MISSING


def test_what_is_there_is_not_missed(folder: Path) -> None:
    board(folder, "0000:3b:00.1", "0x500d", shell=platform("u280"))
    (folder / "proc").mkdir()
    (folder / "proc/modules").write_text("xocl 1 0 - Live 0x0\n")
    (folder / "dev/dri").mkdir(parents=True)
    (folder / "dev/dri/renderD128").touch()
    (folder / "locks").mkdir()
    (folder / "lib").mkdir()
    (folder / "lib/libxrt_core.so.2").touch()
    machine = Machine(folder, {"XILINX_XRT": str(folder)}, loads=lambda _: True)
    optional = {"pinned memory", "simulated units", "simulated cards"}
    assert {f.state for f in examine(machine) if f.thing not in optional} == {OK}


def test_the_doctor_looks_for_the_library_that_the_runtime_loads(folder: Path) -> None:
    """XRT ends its process where $XILINX_XRT/lib has not got it."""
    debian = folder / "usr/lib/x86_64-linux-gnu"
    unset = look(folder)["XRT"]
    assert unset.state == NOTE and "apt install libxrt1" in unset.cure
    debian.mkdir(parents=True)
    (debian / "libxrt_core.so.2").touch()
    place = "/usr/lib/x86_64-linux-gnu"
    cure = f"mkdir -p ~/xrt && ln -sfn {place} ~/xrt/lib && export XILINX_XRT=~/xrt"
    assert look(folder)["XRT"].cure == cure
    usr = str(folder / "usr")
    found = look(folder, XILINX_XRT=usr)["XRT"]
    assert (found.state, found.cure) == (MISSING, cure)
    assert found.found == f"XILINX_XRT={usr}, which has no lib/libxrt_core.so.2"
    linked = folder / "xrt"
    linked.mkdir()
    (linked / "lib").symlink_to(debian)
    found = look(folder, XILINX_XRT=str(linked))["XRT"]
    assert found.state == OK and "for emulation alone: no driver is loaded" in found.found
    emulated = look(folder, XILINX_XRT=str(linked), XCL_EMULATION_MODE="sw_emu")["XRT"]
    assert emulated.state == MISSING and "libxrt_swemu.so.2" in emulated.found
    (folder / "opt/xilinx/xrt").mkdir(parents=True)
    (folder / "opt/xilinx/xrt/setup.sh").touch()
    assert look(folder)["XRT"].cure == "source /opt/xilinx/xrt/setup.sh"


def test_libraries_of_simulated_hardware_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to have them."""
    monkeypatch.setattr(rtl, "library", lambda: None)
    monkeypatch.setattr(sim, "library", lambda: sim.load(folder / sim.LIBRARY))
    found = look(folder)
    assert found["simulated units"].state == OK and rtl.LIBRARY in found["simulated units"].found
    cards = found["simulated cards"]
    assert cards.state == NOTE
    assert cards.cure == f"cd {ROOT} && make sim-build, with Verilator 5.006"
    assert cards.found.startswith(f"{folder / sim.LIBRARY} is missing or not a plain file")


def test_what_is_made_in_a_source_tree_says_where_that_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkout, what pip was given, or in words; never a bare make."""
    package = folder / "site" / "lora_host"
    assert source_tree() == ROOT
    info = folder / "site" / "lora_fpga-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lora-fpga\nVersion: 0.1.0\n")
    monkeypatch.syspath_prepend(str(folder / "site"))
    words = "in the source tree that this lora-fpga was built from: make sim-build"
    assert made_in_tree("make sim-build", package) == words
    tree = folder / "a tree"
    (info / "direct_url.json").write_text(json.dumps({"url": tree.as_uri(), "dir_info": {}}))
    assert made_in_tree("make sim-build", package) == words  # it is gone
    (tree / "csrc" / "include").mkdir(parents=True)
    (tree / "Makefile").touch()
    assert made_in_tree("make sim-build", package) == f"cd {tree} && make sim-build"
    for broken in ("{", "[]", '{"url": 3}', '{"url": "https://a/b"}'):
        (info / "direct_url.json").write_text(broken)
        assert source_tree(package) is None


def test_one_shell_that_is_not_the_overlays_is_told(folder: Path) -> None:
    board(folder, "0000:3b:00.1", "0x500d", shell="xilinx_u280_xdma_201920_3")
    found = look(folder)["shell of the u280 overlays"]
    assert found.state == MISSING and "xilinx_u280_xdma_201920_3 found" in found.found


def loaded(root: Path, bdf: str, container: Xclbin) -> None:
    """What the driver xocl shows of a board that holds this container."""
    place = root / "sys/bus/pci/devices" / bdf
    (place / "xclbinuuid").write_text(f"{container.uuid}\n")
    (place / "icap.u.7").mkdir()
    for kind, node in ((axlf.MEM_TOPOLOGY, "mem_topology"), (axlf.IP_LAYOUT, "ip_layout")):
        (place / "icap.u.7" / node).write_bytes(container.sections[kind])
    (place / "xmc.u.7").mkdir()
    (place / "xmc.u.7" / "xmc_fpga_temp").write_text("47\n")
    (place / "xmc.u.7" / "xmc_vccint_vol").write_text("850\n")
    (place / "xmc.u.7" / "xmc_dimm_temp0").write_text("0\n")
    for rail, (volts, amperes) in {"pex": (12100, 2000), "aux": (0, 300)}.items():
        (place / "xmc.u.7" / f"xmc_12v_{rail}_vol").write_text(f"{volts}\n")
        (place / "xmc.u.7" / f"xmc_12v_{rail}_curr").write_text(f"{amperes}\n")


def test_list_shows_any_container_as_the_driver_does(folder: Path) -> None:
    foreign = read_xclbin(foreign_xclbin(folder / "a.xclbin", banks=(0, 33), ports=(0, 1)))
    ours = load_overlay("lora_f_u280")
    assert ours.container is not None
    for bdf in ("0000:3b:00.1", "0000:5e:00.1", "0000:86:00.1", "0000:af:00.1"):
        board(folder, bdf, "0x500d", driver="xocl")
    loaded(folder, "0000:3b:00.1", foreign)
    loaded(folder, "0000:5e:00.1", read_xclbin(ours.container))
    loaded(folder, "0000:af:00.1", foreign)
    cut = folder / "sys/bus/pci/devices/0000:af:00.1/icap.u.7/mem_topology"
    cut.write_bytes(cut.read_bytes()[:300])
    other, own, empty, broken = pci_boards(folder / "sys/bus/pci/devices")
    assert other.overlay == f"another (uuid {foreign.uuid})" and other.abi is None
    assert other.banks == ["HBM[0]", "DDR[1]"]
    assert other.cores == ["aurora_flow_0:aurora_0", "aurora_flow_1:aurora_1"]
    assert other.sensors == {
        "fpga_temp": "47 C", "vccint": "0.85 V", "12v_pex": "12.1 V", "12v_pex_current": "2 A",
        "12v_aux_current": "0.3 A", "power": "24.2 W",
    }  # fmt: skip
    head, row, *_more = table([other])
    assert head.split()[2:4] == ["temperature", "power"]
    assert row.split() == ["xrt:0000:3b:00.1", "u280", "47", "C", "24.2", "W", "-", "-", "nobody"]
    assert (own.overlay, own.abi, len(own.banks)) == (ours.name, ours.abi, 34)
    assert empty.overlay == "" and empty.problem == "" and empty.banks == []
    assert "0000:af:00.1: section MEM_TOPOLOGY: 34 entries" in broken.problem
