"""Bounded proofs of arbiters, AXI ports, buffers and crossings; each fails on a planted mistake."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.rtl_rig import SOURCES
from tools.rtl_prove import PROOFS, holds, proofs

pytestmark = pytest.mark.rtl


NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if "slow" in row else name
    for name, row in proofs().items()
]


@pytest.fixture(autouse=True)
def _tool(pytestconfig: pytest.Config) -> None:
    if find_spec("pyosys") is None:
        missing = "pyosys is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)


@pytest.mark.parametrize("name", NAMES)
def test_it_holds(name: str) -> None:
    held, log = holds(name)
    assert held, log[-3000:]


# Proof: file, what is there, what is put there.
MISTAKES = {
    "port_choice": ("axi/port_choice.sv", "passed[p] <= p <= int'(port)", "passed[p] <= 1'b0"),
    "read_bursts": ("axi/read_bursts.sv", " || next[5:0] == 6'd0;", ";"),
    "axi_share": (
        "axi/axi_share.sv", "write_free = (!awvalid || awready) && (!wvalid || wready)",
        "write_free = !awvalid || awready",
    ),
    "frame_buffer": (
        "router/frame_buffer.sv", "write_slot <= write_base == LAST ? 3'd0 : write_slot + 3'd1",
        "write_slot <= write_slot + 3'd1",
    ),
    "streams": (
        "axi/stream_widen.sv", "has_low <= !has_low && !in_last", "has_low <= !has_low",
    ),
    "async_fifo": (
        "crossing/async_fifo.sv", "sees_written != read_gray && (!full || out_ready)",
        "sees_written != read_gray",
    ),
    "host_port": ("control/host_port.sv", "bvalid = state == WRITTEN", "bvalid = has_aw && has_w"),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    file, right, mistake = MISTAKES[name]
    folder = Path(shutil.copytree(SOURCES, tmp_path / "rtl"))
    text = (folder / file).read_text()
    assert text.count(right) == 1
    (folder / file).write_text(text.replace(right, mistake))
    held, log = holds(name, folder)
    assert not held
    assert "proof did fail" in log, log[-3000:]


def test_every_proof_is_named() -> None:
    found = {path.stem.removeprefix("prove_") for path in PROOFS.glob("prove_*.sv")}
    assert found == set(proofs()) == set(MISTAKES)
