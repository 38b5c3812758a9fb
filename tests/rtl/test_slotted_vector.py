"""The vector unit joined to its slot and to the arbiter before memory: each operation's bytes,
status and counts are the native kernels'."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from tests.rtl.bench_rig import build, built, counted, run
from tests.rtl.slots_rig import BANK_BYTES, SUMS, Cases, in_hardware, spoil, vector_command
from tests.rtl_rig import mistaken
from tests.unit.kernel_rig import CONTROL, ONCHIP, TABLES

pytestmark = [pytest.mark.rtl, pytest.mark.slow]


def fill(cases: Cases, generator: np.random.Generator, name: str, fields: dict[str, Any]) -> None:
    """Values, some infinite; FP32 in every other command."""
    for bank in (ONCHIP, CONTROL, TABLES):
        halves = generator.standard_normal(BANK_BYTES // 2).astype(np.float16)
        halves[generator.integers(0, halves.size, 200)] = np.inf
        singles = generator.standard_normal(BANK_BYTES // 4).astype(np.float32)
        cases.rig.place(bank, 0, singles if generator.random() < 0.5 else halves)
    if name == "QUANTIZE_ROW":  # maxima are magnitudes
        singles = np.abs(generator.standard_normal(BANK_BYTES // 8)).astype(np.float32)
        cases.rig.place(ONCHIP, BANK_BYTES // 2, singles)
    if name == "PERMUTE" and fields["columns"] < 1 << 16:
        order = generator.permutation(fields["columns"]).astype(np.uint32)
        cases.rig.place(TABLES, 64 * 0x40, order)


def banks(cases: Cases) -> bytes:
    return b"".join(cases.rig.banks[bank].tobytes() for bank in (ONCHIP, CONTROL, TABLES))


def write(path: Path, seed: int, count: int, lines: bool = False) -> dict[int, int]:
    """As bench.cpp reads it: of each operation as many commands, every third one spoiled. How many
    have each status. `lines`: rows begin at lines, as pipes take them."""
    cases, generator = Cases(seed), np.random.default_rng(seed)
    statuses: dict[int, int] = {}
    with path.open("wb") as file:
        for number in range(count):
            for name in sorted(in_hardware()):
                fields = vector_command(cases, name)
                if lines:
                    for row in ("x_offset", "y_offset", "z_offset"):
                        fields[row] &= -64
                if number % 3 == 2 and fields["columns"] and name not in SUMS:
                    spoil(cases, name, fields)
                fill(cases, generator, name, fields)
                before, ffi = banks(cases), cases.rig.ffi
                command = ffi.new("struct lora_vector *", fields)
                parts = [bytes(ffi.buffer(x)) for x in (command, cases.rig.list, cases.rig.state)]
                found = cases.rig.run("vector", **fields)
                result = (found.status, found.nonfinite_count, found.nonfinite_row)
                file.write(b"".join([*parts, struct.pack("<3I", *result), before, banks(cases)]))
                statuses[found.status] = statuses.get(found.status, 0) + 1
    return statuses


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in (3, 4, 5))]
)
def test_bytes_of_the_native_kernels(tmp_path: Path, seed: int) -> None:
    statuses = write(tmp_path / "cases", seed, 6)
    assert statuses[abi.OK] >= 110 and len(statuses) == 4 and statuses[abi.ERR_ADDRESS] >= 5
    counts = counted(run(build("slotted", "bench_vector"), tmp_path / "cases", seed))
    assert counts["cases"] == 6 * len(in_hardware()) and counts["ended"] >= 10


@pytest.mark.parametrize("seed", [6, pytest.param(7, marks=pytest.mark.long)])
def test_bytes_with_pipes(tmp_path: Path, seed: int) -> None:
    """Lines that are refused or fail meet commands of the pipes too."""
    statuses = write(tmp_path / "cases", seed, 6, lines=True)
    assert statuses[abi.OK] >= 110 and statuses[abi.ERR_ADDRESS] >= 5
    bench = build("slotted", "bench_vector", folder=built("slotted") / "pipes_8", PIPES=8)
    counts = counted(run(bench, tmp_path / "cases", seed))
    assert counts["cases"] == 6 * len(in_hardware()) and counts["ended"] >= 10


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("assign y_bank = rotates ?", "assign y_bank = 1'b0 ?"),
        ("8'(LORA_VEC_QUANTIZE_ROW): record = 32'(SCALE_WORD)", "8'd255: record = 32'(SCALE_WORD)"),
    ],
)
def test_a_mistake_is_noticed(tmp_path: Path, right: str, wrong: str) -> None:
    sources = mistaken(tmp_path, "vfu/vector_slot.sv", right, wrong)
    write(tmp_path / "cases", 1, 6)
    mistake = build("slotted", "bench_vector", sources=sources, folder=tmp_path / "build")
    done = run(mistake, tmp_path / "cases", 1)
    assert done.returncode == 1 and "case " in done.stderr
