"""slang, `verilator -Wall` and the files' heads find nothing in the hardware source but what is
listed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.rtl_rig import ROOT, SOURCES
from tools.rtl_lint import HEAD

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module", autouse=True)
def _tool(pytestconfig: pytest.Config) -> None:
    if find_spec("pyslang") is None:
        missing = "pyslang is not installed (extra rtl)"
        if pytestconfig.getoption("--require-rtl"):
            pytest.fail(f"--require-rtl, but {missing}")
        pytest.skip(missing)


def linted(sources: Path = SOURCES) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tools.rtl_lint", "--sources", sources],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


def test_the_source_is_clean() -> None:
    done = linted()
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


# A file of the crossings, what is there, what is put there, and what must be told of it.
MISTAKES = {
    "written twice": (
        "word_cross.sv", "endmodule", "  always_ff @(posedge from_clk) held <= '0;\nendmodule",
        "word_cross.sv:{line}: multiple-always-assigns: variable 'held' driven by always_ff",
    ),
    "unused": (
        "bit_sync.sv", "endmodule", "  logic spare;\n  assign spare = d;\nendmodule",
        "bit_sync.sv:{line}: UNUSEDSIGNAL: Signal is not used: 'spare'",
    ),
    "too narrow": (
        "pulse_cross.sv", "endmodule", "  logic [1:0] two;\n  assign two = 3'd5;\nendmodule",
        "pulse_cross.sv:{line}: WIDTH: ",
    ),
    "head": ("reset_pair.sv", HEAD, "", "reset_pair.sv:1: head: expected"),
}  # fmt: skip


@pytest.fixture(scope="module")
def crossings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cells between clocks as a source of their own."""
    folder = tmp_path_factory.mktemp("rtl")
    shutil.copytree(SOURCES / "crossing", folder / "crossing")
    rules = yaml.safe_load((SOURCES / "lint.yaml").read_text())
    (folder / "lint.yaml").write_text(yaml.safe_dump(rules | {"signals": {}}))
    return folder


def test_a_part_of_it_is_clean_alone(crossings: Path) -> None:
    done = linted(crossings)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_mistakes_are_told(crossings: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(crossings, tmp_path / "rtl"))
    for file, right, mistake, _ in MISTAKES.values():
        path = folder / "crossing" / file
        text = path.read_text()
        assert right in text
        path.write_text(text.replace(right, mistake, 1))
    rules = yaml.safe_load((folder / "lint.yaml").read_text())
    rules["signals"] = {"nothing warns of it": {"crossing/async_fifo.sv": ["words"]}}
    (folder / "lint.yaml").write_text(yaml.safe_dump(rules))
    done = linted(folder)
    assert done.returncode == 1
    for file, _, _, told in MISTAKES.values():
        lines = (folder / "crossing" / file).read_text().count("\n")
        wanted = [f"crossing/{told.format(line=line)}" for line in range(1, lines + 1)]
        assert any(one in done.stdout for one in wanted), (told, done.stdout)
    assert "crossing/async_fifo.sv: words is not warned of: remove it" in done.stdout
