"""The soft core does what rv32imc says: beside a reference, which is compared with unicorn."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.rtl.bench_rig import counted
from tests.rtl.core_rig import Reference, build, lockstep
from tests.rtl_rig import mistaken

pytestmark = pytest.mark.rtl


@pytest.fixture(scope="module")
def program() -> Path:
    """The test program over the source as it is."""
    return build("lockstep")


@pytest.mark.parametrize(
    "instructions", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)]
)
def test_random_programs(program: Path, instructions: int) -> None:
    """An instruction at a time; with waits, resets, faults, and a random state at the beginning."""
    found = counted(lockstep(program, instructions, seed=instructions))
    assert found["instructions"] >= instructions
    assert found["places"] >= instructions / 5  # different ones: programs do not stand still
    for kind in ("accesses", "stops", "resets"):
        assert found[kind] >= instructions / 20_000, kind


@pytest.mark.parametrize("programs", [200, pytest.param(5_500, marks=pytest.mark.slow)])
def test_the_reference_is_as_unicorn(programs: int) -> None:
    """The same programs; registers, memory and accesses at their end."""
    reference = Reference()
    causes = set()
    done = 0
    for seed in range(1, programs + 1):
        count, cause = reference.run(seed)
        done += count
        causes.add(cause)
    assert done >= 1_900 * programs  # more than ten million of 5,500
    assert causes >= {0, 1, 2, 4, 5, 6, 7}


def test_each_16_bit_encoding(program: Path) -> None:
    """By itself: what it does, or that it is none."""
    done = subprocess.run([program, "--halves", "0"], capture_output=True, text=True)
    assert 20_000 < counted(done)["instructions"] < 3 << 14


NOP, ADD_1, LOAD, USE, STORE = 0x00000013, 0x00100093, 0x10002083, 0x00108113, 0x10102023
TAKEN, NOT_TAKEN, JAL, JALR = 0x00000263, 0x00001263, 0x0040006F, 0x00000067
MUL, DIV, DEVICE, EBREAK = 0x02108133, 0x0210C133, 0x100001B7, 0x00100073
DEVICE_LOAD, DEVICE_STORE = 0x0001A203, 0x0001A023
CYCLES = {
    "sum": ([ADD_1, USE], 1),
    "load": ([LOAD, NOP], 1),
    "load, and its value at once": ([LOAD, USE], 2),
    "store": ([STORE, NOP], 1),
    "branch not taken": ([NOT_TAKEN, NOP], 1),
    "taken branch": ([TAKEN, NOP], 3),
    "jump": ([JAL, NOP], 2),
    "jump to a register": ([0x00000097, 0x00808067, NOP], 3),
    "product": ([NOP, MUL], 3),
    "quotient": ([NOP, DIV], 34),
    "device that answers at once": ([DEVICE, DEVICE_LOAD], 2),
    "store to a device": ([DEVICE, DEVICE_STORE], 2),
}


@pytest.mark.parametrize("name", CYCLES)
def test_cycles_of_an_instruction(program: Path, name: str, tmp_path: Path) -> None:
    """Between the last two that are done: what docs/core.md says."""
    code, cycles = CYCLES[name]
    words = [*[NOP] * 4, *code, EBREAK]
    path = tmp_path / "program"
    path.write_bytes(b"".join(word.to_bytes(4, "little") for word in words))
    done = subprocess.run([program, "--time", path], capture_output=True, check=True)
    times = json.loads(done.stdout)
    assert [at for at, _ in times] == [4 * i for i in range(len(words) - 1)]
    assert times[-1][1] - times[-2][1] == cycles


MISTAKES = {
    "a value that is on its way is not seen": (
        "rv32_core",
        "return m_has && which == m_at ? m_is : stored;",
        "return stored;",
    ),
    "fetch forgets what is coming": ("rv32_fetch", "count + 3'(coming) <", "count <"),
}
MORE_MISTAKES = {
    "a fault does not stop what follows": ("rv32_core", "!leaves && !faults", "!leaves"),
    "a wide hint is no instruction": (
        "rv32_decode",
        "legal = funct == 3'd0;  // fence",
        "legal = word[31:20] == 12'd0 && funct == 3'd0;  // fence",
    ),
}


@pytest.mark.parametrize(
    "name", [*MISTAKES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_MISTAKES)]
)
def test_mistake_is_noticed(program: Path, name: str, tmp_path: Path) -> None:
    module, right, wrong = (MISTAKES | MORE_MISTAKES)[name]
    sources = mistaken(tmp_path, f"control/{module}.sv", right, wrong)
    done = lockstep(build("lockstep", sources, tmp_path / "build", "-O0"), 300_000, seed=1)
    assert done.returncode == 1 and done.stderr.startswith("program ")
