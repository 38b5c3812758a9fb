"""The kernel that the vendor build packs, from its generated top on: it boots from its ROM behind
AXI as a shell has it, answers, interrupts, and refuses what it has no unit for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_host.overlay import load_overlay
from tests.rtl_rig import ROOT
from tests.vendor_rig import planned
from tools.vendor_build.files import write_files
from tools.vendor_build.kernels import RTL
from tools.vendor_build.plan import Plan

pytestmark = pytest.mark.rtl


def built(plan: Plan, folder: Path, sources: Path = RTL) -> Path:
    """The simulated kernel of a plan."""
    write_files(plan, folder / "files")
    target = folder / "build" / "kernel"
    subprocess.run(
        ["make", "-C", ROOT / "tests" / "rtl" / "vendor", f"BUILD={target.parent}",
         f"FILES={folder / 'files'}", f"RTL={sources}", target],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return target


def ran(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], capture_output=True, text=True, timeout=300)


def expected() -> dict[str, Any]:
    overlay = load_overlay("lora_f_u280")
    return {
        "board": overlay.board.kind, "crc": overlay.image_crc, "refused": 5, "abi": overlay.abi,
        "operation": abi.OP_IDENTIFY, "status": abi.OK, "absent": abi.ERR_OPCODE,
        "code": abi.ERR_OPCODE, "unit": abi.UNIT_DMA,
    }  # fmt: skip


@pytest.mark.slow
def test_it_boots_and_answers(tmp_path: Path) -> None:
    """Behind power-on, and once more behind a reset."""
    done = ran(built(planned("lora_f_u280"), tmp_path))
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == [expected(), expected()]


MISTAKES = {
    "registers of before a reset": ("control_kernel.sv", "settles == '0 ? rdata", "1'b1 ? rdata"),
    "accesses are taken in reset": ("control_kernel.sv", "arready && !rst", "arready"),
    "registers come again": (
        "control_kernel.sv", "address[15:13] == 3'd0 ? address[12:0] : 13'h1ffc", "address[12:0]",
    ),
    "a sum of other bits": ("firmware_loader.sv", "32'hedb88320", "32'h82f63b78"),
    "a program without its last word": ("firmware_loader.sv", "WORDS - 1", "WORDS - 2"),
    "an absent unit that does not answer": (
        "absent_units.sv", "assign unit_write = asked != '0;", "assign unit_write = 1'b0;",
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, wrong = MISTAKES[name]
    sources = shutil.copytree(RTL, tmp_path / "rtl")
    text = (sources / "vendor" / file).read_text()
    assert text.count(right) == 1
    (sources / "vendor" / file).write_text(text.replace(right, wrong))
    done = ran(built(planned("lora_f_u280"), tmp_path, sources))
    assert done.returncode != 0 or json.loads(done.stdout) != [expected(), expected()]


@pytest.mark.parametrize("overlay", ["lora_f_u280", "lora_w4a8_v80"])
def test_both_boards_tops_have_no_warning(overlay: str, tmp_path: Path) -> None:
    """The list of sources that is packed, elaborated as it is."""
    plan = planned(overlay)
    write_files(plan, tmp_path)
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM",
         "--top-module", plan.name, *plan.sources, tmp_path / "firmware_rom.sv",
         tmp_path / "lora_ctrl.sv"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
