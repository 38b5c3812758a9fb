"""Link cores and decoupler of a V80's region: the script in tclsh, commands of the vendor's
recorded. What Vivado makes of them nobody has seen."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vendor_rig import VENDOR, calls, environment, made, planned
from tools.vendor_build.files import SCRIPTS, write_files
from tools.vendor_build.plan import Plan


@pytest.fixture(autouse=True)
def _tclsh(program: Callable[[str], str]) -> None:
    program("tclsh")


def tcl(program: str, text: str) -> str:
    done = subprocess.run(["tclsh"], input=f"{program}\n", capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, (text, done.stderr)
    return done.stdout


def pairs(text: str) -> dict[str, str]:
    """A dictionary of Tcl."""
    found = tcl(f'foreach one {{{text}}} {{ puts [string map {{"\\n" " "}} $one] }}', text)
    words = found.split("\n")[:-1]
    return dict(zip(words[::2], words[1::2], strict=True))


def told(
    plan: Plan, folder: Path, script: Path = SCRIPTS / "region_parts.tcl"
) -> dict[str, dict[str, str]]:
    """What each core is told, by its name; all of them are generated."""
    write_files(plan, folder)
    done = subprocess.run(
        ["tclsh", VENDOR / "recorder.tcl", script, folder / "plan.tcl"], cwd=folder,
        env=environment(folder / "record"), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = calls(folder)
    cores = [row[-1] for row in found if row[0] == "create_ip"]
    assert [row[-1].removeprefix("ip:") for row in found if row[0] == "generate_target"] == cores
    rows = [row for row in found if row[:2] == ["set_property", "-dict"]]
    return {row[3].removeprefix("ip:"): pairs(row[2]) for row in rows}


def test_link_cores_are_the_manifests(tmp_path: Path) -> None:
    plan = planned("lora_f_v80", "card")
    cores = told(plan, tmp_path)
    assert sorted(cores) == ["lora_aurora_0", "lora_aurora_1", "lora_decoupler"]
    links = plan.overlay.links
    for core in (cores["lora_aurora_0"], cores["lora_aurora_1"]):
        assert int(core["CONFIG.C_AURORA_LANES"]) == links.lanes
        rate = float(core["CONFIG.C_LINE_RATE"])
        assert abs(rate * 1e9 / links.lane_bits_per_second - 1) < 0.01
        # a whole number of bits a cycle of the reference, for the transceivers' PLL
        assert rate * 1000 / float(core["CONFIG.C_REFCLK_FREQUENCY"]) == 40
        assert core["CONFIG.interface_mode"] == "Framing" and links.framing
        assert core["CONFIG.flow_mode"] == "Immediate_NFC"


def test_the_decoupler_has_all_interfaces(tmp_path: Path) -> None:
    plan = planned("lora_f_v80", "card")
    facts = pairs(told(plan, tmp_path)["lora_decoupler"]["CONFIG.ALL_PARAMS"])
    assert facts["HAS_SIGNAL_CONTROL"] == "1"
    rows = {name: pairs(row) for name, row in pairs(facts["INTF"]).items()}
    buses = [one for one in plan.interfaces if one.type in ("aximm", "axis")]
    assert sorted(rows) == sorted([*(one.name for one in buses), "signals"])
    assert sorted(int(row["ID"]) for row in rows.values()) == list(range(len(rows)))
    for one in buses:
        row = rows[one.name]
        assert row["VLNV"] == f"xilinx.com:interface:{one.type}_rtl:1.0"
        assert row["MODE"] == ("master" if one.master else "slave")
        if one.type == "aximm":
            assert row["PROTOCOL"] == ("axi4" if one.bank else "axi4lite")
        signals = {name: pairs(value) for name, value in pairs(row["SIGNALS"]).items()}
        assert {name: int(value["WIDTH"]) for name, value in signals.items()} == {
            signal.logical: signal.width for signal in one.signals
        }
    interrupt = pairs(pairs(rows["signals"]["SIGNALS"])["interrupt"])
    assert interrupt == {"DIRECTION": "out", "WIDTH": "1", "DECOUPLED_VALUE": "0"}


def test_a_kernel_without_links_has_no_cores(tmp_path: Path) -> None:
    assert sorted(told(planned("lora_f_v80"), tmp_path)) == ["lora_decoupler"]


# (what is replaced in region_parts.tcl, by what, what is said)
MISTAKES = {
    "an option that the core lacks": ("CONFIG.crc_mode", "CONFIG.crc", "has no CONFIG.crc"),
    "a core that does not exist": ("dfx_decoupler", "dfx_isolator", "no core dfx_isolator"),
    "a core that was not made": ("[get_ips $name]\n}", "[get_ips aurora]\n}", "no ip aurora"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_script_is_noticed(name: str, tmp_path: Path) -> None:
    right, wrong, said = MISTAKES[name]
    text = (SCRIPTS / "region_parts.tcl").read_text()
    assert text.count(right) == 1
    script = tmp_path / "region_parts.tcl"
    script.write_text(text.replace(right, wrong))
    with pytest.raises(AssertionError, match=said.replace("$", r"\$")):
        told(planned("lora_f_v80", "card"), tmp_path / "build", script)


def test_the_makefile_runs_it(tmp_path: Path) -> None:
    done = made("region", "BOARD=v80", f"BUILD={tmp_path}", record=tmp_path / "record")
    assert done.returncode == 0 and done.stderr.count("untried with this tool") == 1, done.stderr
    assert sum(row[0] == "create_ip" for row in calls(tmp_path)) == 3
    done = made("region", "BOARD=u280", f"BUILD={tmp_path}", record=tmp_path / "record")
    assert done.returncode == 2 and "region is for v80" in done.stderr
