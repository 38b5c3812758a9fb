"""Bounds on paths between clocks, in tclsh: each crossing cell of the source has its rows, and
registers of the names that the rows give. A cell that a design lacks, or half of a path, is an
error."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.vendor_rig import VENDOR, planned
from tools.rtl_crossings import WORDS
from tools.vendor_build.errors import BuildError
from tools.vendor_build.files import hook, write_files
from tools.vendor_build.kernels import RTL
from tools.vendor_build.tcl_plan import crossing_rows

DECLARED = yaml.safe_load((RTL / "crossings.yaml").read_text())
TOP = "level0_i/ulp/lora_ctrl_1/inst/kernel"
BITS = """\
cell {at}/{name} bit_sync
flop {at}/{name}/first_reg {clock} {driver}
"""
DESIGN = f"""\
cell level0_i/other/sync bit_sync
flop level0_i/other/sync/first_reg clk
cell {TOP}/its_control control_clocks
cell {TOP}/its_control/lines async_fifo__parameterized1
flop {TOP}/its_control/lines/words_reg_0_31_0_13 from_clk
flop {TOP}/its_control/lines/out_word_reg[3] to_clk
flop {TOP}/its_control/lines/written_gray_reg[0] from_clk
flop {TOP}/its_control/lines/read_gray_reg[0] to_clk
{BITS.format(at=f"{TOP}/its_control/lines", name="pointers[0].there", clock="to_clk",
             driver=f"{TOP}/its_control/lines/written_gray_reg[0]")}
{BITS.format(at=f"{TOP}/its_control/lines", name="pointers[0].back", clock="from_clk",
             driver=f"{TOP}/its_control/lines/read_gray_reg[0]")}
cell {TOP}/its_control/links[0].link/epochs word_cross
flop {TOP}/its_control/links[0].link/epochs/held_reg[7] from_clk
flop {TOP}/its_control/links[0].link/epochs/taken_reg[7] to_clk
cell {TOP}/its_control/links[0].link/trimmed word_cross__xdcDup__1
cell {TOP}/its_control/host_reset reset_sync
flop {TOP}/its_control/host_reset/caught_reg clk
flop {TOP}/its_control/host_reset/leaves_reg clk
"""  # fmt: skip


def test_every_cell_has_its_bounds() -> None:
    """And the registers are there: in the cell's own source, and those of the tool that judges
    crossings."""
    plan = planned("lora_f_u280")
    rows = crossing_rows(plan)
    assert {row["cell"] for row in rows} | set(DECLARED["bundles"]) == set(DECLARED["cells"])
    for row in rows:
        text = (RTL / "crossing" / f"{row['cell']}.sv").read_text()
        names = [row["from"], row["to"]] if row["kind"] == "delay" else row["to"].split()
        for name in names:
            if name != "driver":
                assert re.search(rf"\b(bit_sync )?{name}\b", text), (row, name)
        if "below" in row:
            assert re.search(rf"input +logic +(\[.*\] )?{row['below']}\b", text), row
    words = {(row["cell"], row["to"]): row["from"] for row in rows if row["kind"] == "delay"}
    assert words.items() >= WORDS.items()
    for bundle in DECLARED["bundles"]:  # nothing of its own crosses there
        source = (RTL / "crossing" / f"{bundle}.sv").read_text()
        parts = re.findall(r"^  (\w+) \w+ \($", source, re.MULTILINE)
        assert parts and set(parts) <= {"bit_sync", "reset_side"}


def test_a_cell_without_bounds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "crossings.yaml").write_text(
        yaml.safe_dump(DECLARED | {"cells": [*DECLARED["cells"], "new_cell"]})
    )
    with pytest.raises(BuildError, match=r"no bounds for \['new_cell'\]"):
        crossing_rows(planned("lora_f_u280"), tmp_path)


@pytest.fixture
def constrained(
    tmp_path: Path, program: Callable[[str], str]
) -> Callable[[str], tuple[list[str], str]]:
    """(bounds, error) of a design."""
    tclsh = program("tclsh")
    write_files(planned("lora_f_u280"), tmp_path / "b")

    def run(design: str) -> tuple[list[str], str]:
        (tmp_path / "design.tcl").write_text(design.replace("[", "\\["))
        # the recorder begins, the hook's own line ends
        (tmp_path / "hook.tcl").write_text(hook(tmp_path / "b").replace("constrain $plan\n", ""))
        done = subprocess.run(
            [tclsh, VENDOR / "implementation.tcl", tmp_path / "design.tcl", tmp_path / "hook.tcl"],
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.splitlines(), done.stderr

    return run


def test_paths_between_clocks_are_bounded(
    constrained: Callable[[str], tuple[list[str], str]],
) -> None:
    bounds, error = constrained(DESIGN)
    assert not error
    at = f"{TOP}/its_control"
    fifo, cross = f"{at}/lines", f"{at}/links[0].link/epochs"
    gray = "written_gray_reg[0]"
    expected = {
        f"set_max_delay -datapath_only -from {{{fifo}/{gray}}} -to "
        f"{{{fifo}/pointers[0].there/first_reg}} PERIOD(clk)",
        f"set_max_delay -datapath_only -from {{{cross}/held_reg[7]}} -to "
        f"{{{cross}/taken_reg[7]}} PERIOD(to_clk)",
        f"set_max_delay -datapath_only -from {fifo}/words_reg_0_31_0_13 -to "
        f"{{{fifo}/out_word_reg[3]}} PERIOD(to_clk)",
        f"set_bus_skew -from {{{fifo}/{gray}}} -to {{{fifo}/pointers[0].there/first_reg}} "
        f"PERIOD(from_clk)",
        f"set_bus_skew -from {{{fifo}/read_gray_reg[0]}} -to "
        f"{{{fifo}/pointers[0].back/first_reg}} PERIOD(to_clk)",
        f"set_false_path -to {at}/host_reset/caught_reg/PRE",
        f"set_property USER_SLR_ASSIGNMENT SLR0 {at}",
    }
    plain = {line.replace("{{", "{").replace("}}", "}") for line in bounds}
    assert plain >= expected, plain
    assert sum(line.startswith("set_false_path") for line in bounds) == 2  # resets alone


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            f"flop {TOP}/its_control/links[0].link/epochs/held_reg[7] from_clk\n",
            "0 of held and 1 of taken found",
        ),
        (
            f"flop {TOP}/its_control/lines/written_gray_reg[0] from_clk\n",
            "0 of written_gray and 1 of there found",
        ),
        (f"cell {TOP}/its_control/host_reset reset_sync\n", "no cell of module reset_sync"),
        (f"cell {TOP}/its_control control_clocks\n", "0 cells its_control found, one expected"),
    ],
)
def test_a_missing_cell_is_an_error(
    line: str, said: str, constrained: Callable[[str], tuple[list[str], str]]
) -> None:
    assert DESIGN.count(line) == 1
    assert said in constrained(DESIGN.replace(line, ""))[1]


def test_a_path_that_is_gone_everywhere_is_an_error(
    constrained: Callable[[str], tuple[list[str], str]],
) -> None:
    design = "".join(one for one in DESIGN.splitlines(True) if "epochs/" not in one)
    assert "no register taken in any word_cross: no bound was set" in constrained(design)[1]


def test_synthesis_keeps_every_crossing_cell() -> None:
    """The script finds them by the name of their module."""
    for name in DECLARED["cells"]:
        text = (RTL / "crossing" / f"{name}.sv").read_text()
        assert re.search(
            rf'^\(\* keep_hierarchy = "yes" \*\)\n`endif\nmodule {name}\b', text, re.M
        ), name
