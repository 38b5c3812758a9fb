"""No path joins two clocks but in the cells of overlays/rtl/crossing, by the netlist of the control
among its clocks. Planted mistakes are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.rtl_rig import ROOT, mistaken

pytestmark = pytest.mark.rtl

SOURCES = ROOT / "overlays" / "rtl"


@pytest.fixture(scope="module", autouse=True)
def _tool(pytestconfig: pytest.Config) -> None:
    if find_spec("pyosys") is None:
        missing = "pyosys is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)


def judged(top: str, sources: Path = SOURCES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.rtl_crossings", top, "--json", "--sources", sources],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_the_control_crosses_clocks_in_cells_alone() -> None:
    done = judged("control_clocks")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["wrong"]
    crossings = {
        (one["cell"], one["instance"], one["source"], one["target"]): one["bits"]
        for one in found["crossings"]
    }
    # 515 bits of a line, its pointer's six, and their way back
    assert crossings["async_fifo", "memory.lines", "memory", "control"] == 515 + 6
    assert crossings["async_fifo", "memory.lines", "control", "memory"] == 6
    assert crossings["word_cross", "host.question", "host", "control"] == 44 + 1
    assert crossings["bit_sync", "interrupt_there", "control", "host"] == 1
    assert crossings["reset_sync", "memory_reset", "memory", "control"] == 2
    for link in range(2):
        place = f"links[{link}].link.epochs"
        assert crossings["word_cross", place, "control", f"link_{link}"] == 32 + 1
    domains = {one["source"] for one in found["crossings"]}
    assert domains == {"control", "host", "memory", "link_0", "link_1"}
    # only the control talks to others
    assert all("control" in (one["source"], one["target"]) for one in found["crossings"])


@pytest.mark.slow
def test_streams_of_a_link_cross_clocks_in_cells_alone() -> None:
    done = judged("link_streams")
    assert done.returncode == 0, done.stderr
    crossings = {(one["cell"], one["target"]) for one in json.loads(done.stdout)["crossings"]}
    both = {(cell, side) for cell in ("async_fifo", "reset_pair") for side in ("control", "link")}
    assert crossings == both | {("bit_sync", "control")}


# (module that is judged, file, right, wrong, what the tool says)
MISTAKES = {
    "a direct path": (
        "memory_port", "control/memory_port.sv", "assign bready = 1'b1;", "assign bready = !rst;",
        "rst (control) reaches bready, port (memory)",
    ),
    "a flop that sees another clock": (
        "link_port", "control/link_port.sv", "if (epoch_comes) link_epoch <= new_epoch;",
        "link_epoch <= last_epoch;", "last_epoch[0] (control) reaches link_epoch[0], D (link)",
    ),
    "logic before a synchronizer": (
        "link_port", "crossing/pulse_cross.sv", ".d(level)", ".d(level && !from_stop)",
        "reaches test_ends[0].back.there.first",
    ),
    "a pointer in binary": (
        "memory_port", "crossing/async_fifo.sv",
        "written_gray <= next_written ^ (next_written >> 1);",
        "written_gray <= next_written;", "written_gray cross one by one",
    ),
    "the binary pointer itself": (
        "memory_port", "crossing/async_fifo.sv", ".d(written_gray[i])", ".d(written[i])",
        "written cross one by one",
    ),
    "a reset of the other clock": (
        "host_port", "control/host_port.sv", "if (stop) step <= ASKED;",
        "if (stop || host_rst) step <= ASKED;", "host_rst (host) reaches",
    ),
    "two bits of a word by themselves": (
        "link_port", "control/link_port.sv",
        "  always_ff @(posedge link_clk) if (epoch_comes) link_epoch <= new_epoch;\n",
        """  logic [1:0] two;
  bit_sync low (
      .clk(link_clk),
      .d(last_epoch[0]),
      .q(two[0])
  );
  bit_sync high (
      .clk(link_clk),
      .d(last_epoch[1]),
      .q(two[1])
  );
  always_ff @(posedge link_clk) if (epoch_comes) link_epoch <= {new_epoch[31:2], two};
""",
        "2 bits of",
    ),
    "a word that is taken from elsewhere": (
        "host_port", "crossing/word_cross.sv", "      taken <= held;", "      taken <= in_word;",
        "expected one of the cells",
    ),
    "a first flop that is read": (
        "host_port", "crossing/bit_sync.sv", "assign q = second;", "assign q = second && first;",
        "its first flop has 2 readers",
    ),
    "a clock that is made": (
        "host_port", "crossing/bit_sync.sv", "always_ff @(posedge clk) begin",
        "always_ff @(posedge (clk & d)) begin", "expected a port that is a clock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused(name: str, tmp_path: Path) -> None:
    top, path, right, wrong, says = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    done = judged(top, sources)
    assert done.returncode == 1
    assert says in done.stderr


def test_a_port_needs_a_domain(tmp_path: Path) -> None:
    sources = shutil.copytree(SOURCES, tmp_path / "rtl")
    path = sources / "control" / "host_port.sv"
    path.write_text(path.read_text().replace("host_stop,", "host_stop,", 1).replace(
        "module host_port\n  import abi_types::*;\n(", "module host_port\n  import abi_types::*;\n("
        "\n    input  logic        extra,", 1))  # fmt: skip
    done = judged("host_port", sources)
    assert done.returncode == 1 and "port extra has no domain" in done.stderr
