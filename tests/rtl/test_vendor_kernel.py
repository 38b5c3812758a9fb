"""The kernel that the vendor build packs, from its generated top on: it boots from its ROM behind
AXI as a shell has it, answers, interrupts, and refuses what it has no unit for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_host.overlay import load_overlay
from tests.rtl.bench_rig import build, run
from tests.rtl.kernel_rig import PRIMITIVE
from tests.rtl_rig import SOURCES, mistaken
from tests.vendor_rig import planned
from tools.vendor_build.files import write_files
from tools.vendor_build.plan import Plan

# Models of the primitives that a board's INT8 sums are made of.
MODELS = {"DSP48": PRIMITIVE, "DSP58": PRIMITIVE.parents[1] / "dsp58" / "DSP58.sv"}

pytestmark = pytest.mark.rtl


def built(plan: Plan, folder: Path, sources: Path = SOURCES) -> Path:
    """The simulated kernel of a plan."""
    files = folder / "files"
    write_files(plan, files)
    return build("vendor", sources=sources, folder=folder / "build", FILES=files)


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
    done = run(built(planned("lora_f_u280"), tmp_path))
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == [expected(), expected()]


MISTAKES = {
    "registers of before a reset": (
        "register_guard.sv", "settles == '0 ? port_rdata", "1'b1 ? port_rdata",
    ),
    "accesses are taken in reset": (
        "register_guard.sv", "{arvalid, port_arready} & {2{!rst}}", "{arvalid, port_arready}",
    ),
    "registers come again": (
        "register_guard.sv", "address[15:13] == 3'd0 ? address[12:0] : 13'h1ffc", "address[12:0]",
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
    sources = mistaken(tmp_path, f"vendor/{file}", right, wrong)
    done = run(built(planned("lora_f_u280"), tmp_path, sources))
    assert done.returncode != 0 or json.loads(done.stdout) != [expected(), expected()]


@pytest.mark.parametrize("kernel", ["card", "control"])
@pytest.mark.parametrize("overlay", ["lora_f_u280", "lora_w4a8_v80"])
def test_both_boards_tops_have_no_warning(overlay: str, kernel: str, tmp_path: Path) -> None:
    """The list of sources that is packed, elaborated as it is."""
    plan = planned(overlay, kernel)
    write_files(plan, tmp_path)
    primitives = [MODELS[name] for name in MODELS if plan.parameters.get(name)]
    assert len(primitives) == (kernel == "card")
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM",
         "--top-module", plan.name, *plan.sources, tmp_path / "firmware_rom.sv",
         tmp_path / "lora_ctrl.sv", *primitives],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
