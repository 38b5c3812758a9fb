"""The packaging script in tclsh, commands of the vendor's recorded: sources, ports, clock,
registers and interrupt are the manifest's. What Vivado makes of them nobody has seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host import abi, alveo_container, vrtbin
from lora_host.overlay import load_overlay
from tests.vendor_rig import calls, packaged, planned
from tools.vendor_build.address_map import bank_ranges
from tools.vendor_build.component import check_component
from tools.vendor_build.files import SCRIPTS
from tools.vendor_build.firmware import crc, rom
from tools.vendor_build.kernels import RTL
from tools.vendor_build.tcl import assigned, word

OVERLAYS = ("lora_f_u280", "lora_f_u55c", "lora_q_v80")


@pytest.fixture(autouse=True)
def _tclsh(program: Callable[[str], str]) -> None:
    program("tclsh")


@pytest.mark.parametrize("kernel", ["card", "control"])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_is_packed_is_the_manifests(overlay: str, kernel: str, tmp_path: Path) -> None:
    plan = planned(overlay, kernel)
    done = packaged(plan, tmp_path)
    assert done.returncode == 0, done.stderr
    assert check_component(plan, tmp_path / "ip" / "component.xml") == []

    made = calls(tmp_path)
    facts = load_overlay(overlay)
    part = {
        "u280": "xcu280-fsvh2892-2L-e",
        "u55c": "xcu55c-fsvh2892-2L-e",
        "v80": "xcv80-lsva4737-2MHP-e-S",
    }[facts.board.name]
    assert made[0][-2:] == ["-part", part]
    added = next(row[-1] for row in made if row[0] == "add_files").split()
    made_here = {tmp_path / "lora_ctrl.sv", tmp_path / "firmware_rom.sv"}
    assert {Path(one) for one in added} == set(plan.sources) | made_here
    packages = [one for one in added if "\npackage " in "\n" + Path(one).read_text()]
    assert added[: len(packages)] == packages
    assert ["set_property", "range", str(0x10000), "block:reg0"] in made
    assert ([row[0] for row in made][-2:-1] == ["package_xo"]) == (facts.board.name != "v80")
    period = f"{1e9 / facts.clock_hz:.3f}"
    assert f"create_clock -name ap_clk -period {period} " in (tmp_path / "clock.xdc").read_text()


def test_registers_are_those_of_the_containers() -> None:
    """By the container's own description, and abi.h."""
    u280 = {one.name: one for one in planned("lora_f_u280").registers}
    for argument in alveo_container.describe(load_overlay("lora_f_u280")).kernels[0].arguments:
        if not argument.name.startswith(("hbm_", "ddr_1")):
            assert (u280[argument.name].offset, u280[argument.name].bits) == (
                argument.offset,
                8 * argument.size,
            )
    assert u280["CTRL"].offset == abi.REG_AP_CTRL and u280["IP_ISR"].offset == abi.REG_ISR
    v80 = {(one.name, one.offset) for one in planned("lora_f_v80").registers}
    assert v80 >= set(vrtbin.expected_kernels(load_overlay("lora_f_v80"))[0].registers)
    for plan in (planned("lora_f_u280"), planned("lora_f_v80")):
        assert plan.register_end == 0x1400 <= plan.register_bytes
        assert max(one.offset + one.bits // 8 for one in plan.registers) <= abi.REG_ARENAS


# (what is replaced in package.tcl, by what, what is said)
MISTAKES = {
    "a source is left out": (
        "[dict get $plan sources]\n", "[lrange [dict get $plan sources] 1 end]\n", "not packed"),
    "another top": (
        "top [dict get $plan name]", "top control_kernel", "no source has the top"),
    "no reset": ("-reset [dict get $plan reset] $core", "$core", "reset of ap_clk"),
    "a port without a clock": (
        "$one type] in {aximm axis}", "$one type] in {axis}", "interfaces in the clock"),
    "an interrupt that falls": ("value LEVEL_HIGH", "value LEVEL_LOW", "sensitivity"),
    "no interrupt": (
        '[dict get $plan interrupt] interrupt]',
        '[dict get $plan reset] reset]', "no bus interface interrupt",
    ),
    "registers end early": (
        "range [dict get $plan register_bytes]", "range 4096", "bytes of the registers"),
    "a register elsewhere": (
        "address_offset [dict get $one offset]", "address_offset 0x10", "register CTRL"),
    "a pointer to nowhere": ('[dict get $one port] ne ""', "0", "register ddr_0"),
    "a register of 16 bits": ("size [dict get $one bits]", "size 16", "register list_id"),
    "an option that does not exist": (
        "package_xo -force", "package_xo -overwrite", "unknown option"),
    "a command that does not exist": (
        "ipx::save_core $core", "ipx::store_core $core", "invalid command"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_script_is_noticed(name: str, tmp_path: Path) -> None:
    right, wrong, said = MISTAKES[name]
    text = (SCRIPTS / "package.tcl").read_text()
    assert text.count(right) == 1
    script = tmp_path / "package.tcl"
    script.write_text(text.replace(right, wrong))
    plan = planned("lora_f_u280")
    done = packaged(plan, tmp_path / "build", script)
    if done.returncode == 0:
        found = check_component(plan, tmp_path / "build" / "ip" / "component.xml")
        assert any(said in line for line in found), found
    else:
        assert said in done.stderr


def test_a_port_that_the_top_lacks_is_noticed(tmp_path: Path) -> None:
    plan = planned("lora_f_u280")
    assert packaged(plan, tmp_path).returncode == 0
    component = tmp_path / "ip" / "component.xml"
    component.write_text(component.read_text().replace("m_axi_ddr_0_wstrb", "m_axi_ddr_0_strobe"))
    assert any("ports of m_axi_ddr_0" in line for line in check_component(plan, component))


def test_sources_are_what_the_top_needs() -> None:
    card = {path.stem for path in planned("lora_f_u280", "card").sources}
    control = {path.stem for path in planned("lora_f_u280").sources}
    assert card >= {"card", "dma", "vfu_program", "line_ports", "link_streams", "abi_types"}
    assert not card & {"control_kernel", "absent_units", "line_rotate", "control_clocks"}
    assert control >= {"control_clocks", "absent_units", "pulse_cross"}
    assert not control & {"card_kernel", "card", "mpu_unit"}


def test_ports_lead_to_the_banks_of_the_shell() -> None:
    """As the container has them for the U280, and the V80's driver."""
    facts = planned("lora_f_u280", "card").parameters
    memories = alveo_container.describe(load_overlay("lora_f_u280")).memories
    first, spans = (
        int(str(facts[name]).split("'h")[1], 16) for name in ("FIRST_LINES", "SPAN_BITS")
    )
    assert (facts["PORTS"], facts["CONTROL_PORT"]) == (34, 32)
    for place, memory in enumerate(memories):
        assert (first >> 42 * place & (1 << 42) - 1) * abi.LINE_BYTES == memory.base
        assert abi.LINE_BYTES << (spans >> 6 * place & 63) == memory.bytes
    driver = (RTL.parents[1] / "csrc" / "transports" / "slash" / "transport_slash.h").read_text()

    def defined(name: str) -> int:
        found = re.search(rf"#define SLASH_{name} \(?(\w+?)ull(?: << (\d+))?\)?\s", driver)
        assert found is not None
        return int(found[1], 0) << int(found[2] or 0)

    step = defined("HBM_BYTES")
    hbm = [(defined("HBM_BASE") + bank * step, step) for bank in range(32)]
    ddr = (defined("DDR_BASE"), defined("DDR_BYTES"))
    assert bank_ranges(load_overlay("lora_f_v80")) == [*hbm, ddr]


def test_a_card_has_ports_to_all_banks_and_links(tmp_path: Path) -> None:
    for overlay, memories in (("lora_f_u280", 34), ("lora_f_v80", 33)):
        plan = planned(overlay, "card")
        folder = tmp_path / overlay / "build"
        done = packaged(plan, folder)
        assert done.returncode == 0, done.stderr
        assert check_component(plan, folder / "ip" / "component.xml") == []
        top = (folder / "lora_ctrl.sv").read_text()
        assert len(plan.memories) == memories
        named = re.search(r"\.m_axi_araddr\(\{(.*?)\}\)", top)
        assert named is not None
        ports = [one.ports["ARADDR"] for one in plan.memories]
        assert (
            named.group(1).split(", ") == ports[::-1] and "hbm" in ports[0] and "ddr" in ports[-1]
        )
        assert ".tx_tdata({tx1_tdata, tx0_tdata})" in top
        assert "logic [255:0]  tx0_tdata" in top and "logic [31:0]   rx1_tkeep" in top


def test_the_control_program_is_in_the_rom() -> None:
    for overlay in OVERLAYS:
        plan = planned(overlay)
        written = re.findall(r"words\[(\d+)\] = 32'h([0-9a-f]{8});", rom(plan.firmware))
        code = b"".join(int(value, 16).to_bytes(4, "little") for _, value in written)
        assert [int(place) for place, _ in written] == list(range(len(written)))
        assert code == load_overlay(overlay).image[32:]
        assert crc(plan.firmware) == load_overlay(overlay).image_crc
        assert plan.parameters["FIRMWARE_WORDS"] == len(written)
        assert plan.parameters["BOARD_KIND"] == load_overlay(overlay).board.kind


def test_words_survive_tcl(tmp_path: Path, program: Callable[[str], str]) -> None:
    hostile = ["a b", "", "{", "}{", "$x [exit 3]", 'q"u', "back\\", "a;b", "#", "x\ny", "ünï"]
    text = assigned("plan", {f"k{i}": one for i, one in enumerate(hostile)})
    script = tmp_path / "t.tcl"
    script.write_text(
        text
        + 'fconfigure stdout -encoding utf-8\nputs -nonewline [join [dict values $plan] "\\0"]\n',
        "utf-8",
    )
    done = subprocess.run([program("tclsh"), "-encoding", "utf-8", script], capture_output=True)
    assert done.stdout.decode().split("\0") == hostile, done.stderr
    assert word("a/b.sv") == "a/b.sv"
