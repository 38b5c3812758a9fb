"""The whole vendor build by its Makefile, with programs in the tools' place that make a container
with a dummy bitstream: the project's own reader takes it and finds the manifest in it. And what is
refused, each in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host import axlf
from lora_host.container_check import check_container, differences
from lora_host.errors import OverlayError
from lora_host.overlay import load_overlay
from lora_host.vrtbin import check_vrtbin, read_vrtbin
from lora_host.xclbin import read_xclbin
from tests.vendor_rig import BIN, ROOT, environment, made, planned
from tools.vendor_build import aurora_flow, steps
from tools.vendor_build.__main__ import default_folder, main
from tools.vendor_build.errors import BuildError
from tools.vendor_build.files import write_files


@pytest.fixture(autouse=True)
def _programs(program: Callable[[str], str]) -> None:
    for name in ("tclsh", "make", "git"):
        program(name)


@pytest.mark.parametrize(
    ("board", "control"), [("u280", "ddr_0"), ("u55c", "hbm_31")], ids=("u280", "u55c")
)
def test_an_xclbin_with_a_dummy_bitstream_loads(board: str, control: str, tmp_path: Path) -> None:
    overlay = load_overlay(f"lora_f_{board}")
    done = made("xclbin", f"BOARD={board}", "KERNEL=control", f"BUILD={tmp_path}",
                record=tmp_path / "record")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("untried with this tool") == 2
    container = read_xclbin(tmp_path / f"{overlay.name}.xclbin")
    assert container.sections[axlf.BITSTREAM] == b"dummy bitstream"
    left = {one.what for one in differences(container, overlay)}
    expected = {f"kernel aurora_flow_{port}" for port in range(2)}
    banks = {bank.name.lower().replace("[", "_").rstrip("]") for bank in overlay.board.banks}
    expected |= {f"argument {bank} of lora_ctrl" for bank in banks - {control}}
    expected |= {f"bank of argument {bank} of lora_ctrl" for bank in banks}
    assert left == expected  # the control alone: what the manifest has and this kernel has not
    with pytest.raises(OverlayError, match="holds lora_ctrl without link"):
        check_container(container, overlay, "x.xclbin")


def test_a_shell_whose_cages_are_not_known_gets_no_links(tmp_path: Path) -> None:
    """All but the pins is made; the linker is not run for hours to find them missing."""
    plan = planned("lora_f_u55c", "card")
    config = (write_files(plan, tmp_path)[0].parent / "link.cfg").read_text()
    assert "platform=xilinx_u55c_gen3x16_xdma_3_202210_1" in config and "ddr" not in config
    assert "connect=" not in config.replace("connect= lines", "") and "not known here" in config
    assert "xcu55c-fsvh2892-2L-e" in (tmp_path / "plan.tcl").read_text()
    assert (plan.parameters["BOARD_KIND"], plan.parameters["CONTROL_PORT"]) == (0x55C, 31)
    with pytest.raises(BuildError, match=r"link cores of the u55c: .* KERNEL=control builds"):
        steps.check_possible(steps.Build(plan, tmp_path), "xclbin")
    steps.check_possible(steps.Build(planned("lora_f_u280", "card"), tmp_path), "xclbin")


def test_a_vrtbin_with_a_dummy_bitstream_loads(tmp_path: Path) -> None:
    done = made("vrtbin", "BOARD=v80", "KERNEL=control", "OVERLAY=lora_w4a8_v80",
                f"BUILD={tmp_path}",
                record=tmp_path / "record")  # fmt: skip
    assert done.returncode == 0, done.stderr
    archive = read_vrtbin(tmp_path / "lora_w4a8_v80.vrtbin")
    (kernel,) = archive.kernels
    assert (kernel.name, kernel.base) == ("lora_ctrl", load_overlay("lora_w4a8_v80").block_base[0])
    assert dict(kernel.connections) == {"m_axi_ddr0": "DDR0"} and not archive.emulation
    with pytest.raises(OverlayError, match="no model runs on it; take a build of KERNEL=card"):
        check_vrtbin(archive, load_overlay("lora_w4a8_v80"), "x.vrtbin")


@pytest.mark.parametrize(
    ("target", "old", "new", "said"),
    [
        (
            "xclbin",
            "kernel_frequency=200",
            "kernel_frequency=100",
            "data clock: 100 MHz found, 200 MHz expected",
        ),
        ("xclbin", "ddr_0:DDR[0]", "ddr_0:HBM[7]", "bank of argument ddr_0"),
        ("vrtbin", "ddr0:DDR0", "ddr0:HBM0", "bank DDR0 is not connected"),
    ],
)
def test_another_configuration_is_noticed(
    target: str, old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The linker is told something else than the manifest says."""
    plan = planned("lora_f_u280" if target == "xclbin" else "lora_f_v80")
    write_files(plan, tmp_path)
    for name, value in environment(tmp_path / "record").items():
        monkeypatch.setenv(name, value)
    build = steps.Build(plan, tmp_path)
    steps.package(build)
    config = tmp_path / "link.cfg"
    assert config.read_text().count(old) == 1
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(BuildError, match=said.replace("[", r"\[")):
        steps.link_xclbin(build) if target == "xclbin" else steps.link_vrtbin(build)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("xclbin", "BOARD=u280"), 2, "vivado, v++: not found in PATH"),
        (("xclbin", "BOARD=v80", "KERNEL=control"), 2, "make vrtbin BOARD=v80"),
        (("vrtbin", "BOARD=u280", "KERNEL=control"), 2, "make xclbin BOARD=u280"),
        (("xclbin", "KERNEL=control"), 2, "BOARD=(none): one of"),
        (("xclbin", "BOARD=u50", "KERNEL=control"), 2, "BOARD=u50: one of"),
        (("files", "BOARD=u280", "OVERLAY=lora_channels_u280"), 2, "have no channels for yet"),
        (("files", "BOARD=u280", "OVERLAY=lora_gguf_u280"), 2, "which no hardware source"),
        (
            ("files", "BOARD=u280", "KERNEL=control", "OVERLAY=lora_f_v80"),
            2,
            "board v80 found, u280 expected",
        ),
        (("files", "BOARD=u280", "KERNEL=control", "OVERLAY=lora_x"), 2, "no such overlay or file"),
        (("files", "BOARD=u280", "KERNEL=controls"), 2, "did you mean 'control'?"),
        (("files", "BOARD=u280", "KERNEL=control", "BUILD=a b"), 2, "a space found"),
        (("xclbin", "BOARD=u280", "KERNEL=control"), 2, "vivado, v++: not found in PATH"),
        (
            ("files", "BOARD=u280", "PYTHON=/bin/false"),
            2,
            "/bin/false has not what this project needs",
        ),
        (
            ("vrtbin", "BOARD=v80", "KERNEL=control"),
            2,
            "vivado, slashkit: not found in PATH; vivado: source settings64.sh of Vivado (2025.1",
        ),
        (("vrtbin", "BOARD=v80"), 2, "link cores of the V80"),
        (
            ("xclbin", "BOARD=u280", "AURORAFLOW=/no/where"),
            2,
            "; and AuroraFlow: no folder /no/where; git clone",
        ),
    ],
)
def test_a_build_is_refused(
    arguments: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    """Without the vendor's tools; what cannot work is refused before they are looked for."""
    build = [] if any("BUILD" in one for one in arguments) else [f"BUILD={tmp_path}"]
    done = made(*arguments, *build,
                record=tmp_path / "record", tools=False)  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert done.returncode == status and len(lines) == 1 and said in lines[0], done.stderr
    assert "Traceback" not in done.stderr


def test_a_bare_name_is_an_overlay_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where an older copy is installed."""
    installed = tmp_path / "overlays"
    shutil.copytree(ROOT / "overlays" / "lora_f_u280", installed / "lora_f_u280")
    shutil.copy(ROOT / "overlays" / "manifest.schema.json", installed)
    manifest = installed / "lora_f_u280" / "manifest.yaml"
    text = manifest.read_text()
    assert "clock_hz: 200000000" in text
    manifest.write_text(text.replace("clock_hz: 200000000", "clock_hz: 100000000"))
    folder = {"overlays": installed, "boards": ROOT / "boards"}
    monkeypatch.setattr("lora_host.overlay.data_folder", folder.__getitem__)
    assert load_overlay("lora_f_u280").clock_hz == 100_000_000
    wanted = ["files", "--board", "u280", "--kernel", "control", "--out", str(tmp_path / "out")]
    for named in ([], ["--overlay", "lora_f_u280"]):
        assert main([*wanted, *named]) == 0
        assert "kernel_frequency=200" in (tmp_path / "out" / "link.cfg").read_text()
        used = ROOT / "overlays" / "lora_f_u280" / "manifest.yaml"
        assert capsys.readouterr().err == f"manifest: {used}\n"


def test_each_overlay_has_a_build_folder_of_its_own() -> None:
    """The default overlay keeps the board's name."""
    folders = [
        default_folder(planned(overlay, kernel)).relative_to(ROOT)
        for overlay, kernel in (
            ("lora_f_u280", "card"), ("lora_w4a8_u280", "card"), ("lora_f_u280", "control"),
        )
    ]  # fmt: skip
    names = ["u280_card", "lora_w4a8_u280_card", "u280_control"]
    assert folders == [Path("build/vendor") / name for name in names]


def test_a_tool_that_fails_ends_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "bin"
    shutil.copytree(BIN, tools)
    (tools / "vivado").write_text("#!/bin/sh\nexit 3\n")
    for name, value in environment(tmp_path / "record").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    assert (
        main(["package", "--board", "u280", "--kernel", "control", "--out", str(tmp_path / "out")])
        == 1
    )
    assert "vivado ended with status 3" in capsys.readouterr().err
    # and one that writes nothing
    (tools / "vivado").write_text("#!/bin/sh\nexit 0\n")
    assert (
        main(["package", "--board", "u280", "--kernel", "control", "--out", str(tmp_path / "out")])
        == 1
    )
    assert "component.xml: cannot be read" in capsys.readouterr().err


# --- AuroraFlow ---

AURORA_FILES = {
    "tcl/create_aurora_ip.tcl": "set_property -dict [list CONFIG.C_LINE_RATE {25.78125} \\\n",
    "rtl/aurora_flow_io.v": "output wire[63:0]   rx_axis_tkeep,\ninput wire [63:0]   "
    "tx_axis_tkeep,\n",
    "rtl/aurora_flow.v.template.v": "output wire [63:0]   rx_axis_tkeep,\ninput wire  [63:0] "
    "  tx_axis_tkeep,\n",
    "Makefile": """\
aurora_hw:
\t@mkdir -p $(BUILD_DIR) && echo "$(PART) $(USE_FRAMING) $(FIFO_WIDTH)" > $(BUILD_DIR)/told
\t@for i in 0 1; do sed "s/@/$$i/" kernel.xml > $(BUILD_DIR)/aurora_flow_hw_$$i.xo; done
""",
    "kernel.xml": """\
<root><kernel name="aurora_flow_@" hwControlProtocol="ap_ctrl_none"><ports>
<port name="rx_axis" portType="stream"/><port name="tx_axis" portType="stream"/></ports><args>
<arg name="rx" id="0" addressQualifier="4" port="rx_axis" size="4" offset="0" type="stream"/>
<arg name="tx" id="1" addressQualifier="4" port="tx_axis" size="4" offset="0" type="stream"/>
</args></kernel></root>
""",
}


def git(folder: Path, *command: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", folder, *command],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the lines that are changed, at the commit that is expected."""
    folder = tmp_path / "Aurora Flow"
    for name, text in AURORA_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(["git", "init", "-q", folder], check=True)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    monkeypatch.setattr(aurora_flow, "COMMIT", git(folder, "rev-parse", "HEAD"))
    return folder


def test_link_cores_come_from_the_commit(checkout: Path, tmp_path: Path) -> None:
    """Whatever else the working tree holds."""
    git(checkout, "commit", "-q", "--allow-empty", "-m", "two")
    (checkout / "Makefile").write_text("nothing\n")
    aurora_flow.export(checkout, load_overlay("lora_f_u280"), tmp_path / "copy")
    copied = {name: (tmp_path / "copy" / name).read_text() for name in AURORA_FILES}
    assert (
        copied["tcl/create_aurora_ip.tcl"]
        == "set_property -dict [list CONFIG.C_LINE_RATE {12.890625} \\\n"
    )
    for file in ("rtl/aurora_flow_io.v", "rtl/aurora_flow.v.template.v"):
        assert copied[file].count("[31:0]   ") == 2 and "[63:0]" not in copied[file]
    assert copied["Makefile"] == AURORA_FILES["Makefile"]


def test_a_card_with_links_is_linked(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All banks, both streams, and the cores from the checkout."""
    plan = planned("lora_f_u280", "card")
    for name, value in environment(tmp_path / "record").items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "build"
    write_files(plan, folder)
    build = steps.Build(plan, folder, checkout)
    steps.check_tools(build, "xclbin")
    steps.package(build)
    container = read_xclbin(steps.link_xclbin(build))
    assert differences(container, load_overlay("lora_f_u280")) == []
    assert (folder / "aurora_build" / "told").read_text() == "xcu280-fsvh2892-2L-e 1 32\n"


def test_a_checkout_is_refused(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = load_overlay("lora_f_u280")
    with pytest.raises(
        BuildError, match=r"no folder .*git clone https://github.com/pc2/AuroraFlow"
    ):
        aurora_flow.check_checkout(tmp_path / "none")
    with pytest.raises(BuildError, match="is no git checkout"):
        aurora_flow.check_checkout(tmp_path)
    with pytest.raises(BuildError, match="is no git checkout"):
        aurora_flow.check_checkout(ROOT / "tools")  # a folder of another one
    right = aurora_flow.COMMIT
    monkeypatch.setattr(aurora_flow, "COMMIT", "0" * 40)
    with pytest.raises(
        BuildError, match=f"commit {right} found, {'0' * 40} expected; git -C .* fetch"
    ):
        aurora_flow.check_checkout(checkout)
    (checkout / "tcl" / "create_aurora_ip.tcl").write_text("CONFIG.C_LINE_RATE {10.3}\n")
    git(checkout, "commit", "-q", "-a", "-m", "another rate")
    monkeypatch.setattr(aurora_flow, "COMMIT", git(checkout, "rev-parse", "HEAD"))
    with pytest.raises(BuildError, match="0 times found, 1 expected: another version"):
        aurora_flow.export(checkout, overlay, tmp_path / "copy")


def test_a_checkout_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned("lora_f_u280", "card")
    for name, value in environment(tmp_path / "record").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BuildError, match=r"AuroraFlow \(Apache-2.0\): no checkout named"):
        steps.check_tools(steps.Build(plan, tmp_path), "xclbin")


def test_a_lane_rate_is_one_that_the_transceivers_make() -> None:
    overlay = load_overlay("lora_f_u280")
    rates = {
        12_800_000_000: 12_890_625_000,
        25_781_250_000: 25_781_250_000,
        25_700_000_000: 25_781_250_000,
    }
    for wanted, rate in rates.items():
        links = replace(overlay.links, lane_bits_per_second=wanted)
        assert aurora_flow.lane_rate(replace(overlay, links=links)) == rate
    links = replace(overlay.links, lane_bits_per_second=10_312_500_000)
    with pytest.raises(BuildError, match=r"10\.3125 Gb/s found, one of 25\.7812"):
        aurora_flow.lane_rate(replace(overlay, links=links))
