"""The MPU as one unit of the sequencer: both arrays, adapters and attention behind their slots, and
an arbiter before memory. Each command's bytes, status and counts are the native kernels'."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import abi
from lora_lab.timing.channel_counts import AHEAD
from tests.rtl.bench_rig import build, built, counted, run
from tests.rtl.mpu_rig import Groups
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

# Least of a hundred groups: commands that are done by kind, how runs of them end, statuses.
LEAST = {
    **{f"weights_{kind}": 15 for kind in (
        abi.WEIGHT_FP16, abi.WEIGHT_INT8, abi.WEIGHT_W4A8, abi.WEIGHT_W4A16)},
    "adapted": 30, "down": 25, "attention": 25, "nonfinite": 20,
    "told_early": 100, "fetched_early": 10000, "aborts": 20, "resets": 8, "ended_running": 20,
    "ended_told": 20, "ended_under_way": 8, "failed_line": 8, "failed_early": 5,
    f"status_{abi.ERR_UNIT}": 15, f"status_{abi.ERR_SIZE}": 3, f"status_{abi.ERR_ADDRESS}": 12,
    f"status_{abi.ERR_OPCODE}": 1,
}  # fmt: skip
FURTHER = {  # the same with channels
    "by_columns": 100, "columns_told_further_ahead": 50, "attention": 15, "failed_column": 5,
    "aborts": 20, "resets": 8, "ended_told": 20, f"status_{abi.ERR_SIZE}": 3,
}  # fmt: skip
CHANNELS = 2
CAMPAIGN = {"failed_write": 2, f"status_{abi.ERR_ROW}": 5}  # of 1,000 groups


@pytest.fixture(scope="module")
def bench() -> Path:
    return build("slotted", "bench_mpu")


def check(
    bench: Path, path: Path, seed: int, count: int, rows: int = 1, **more: int
) -> dict[str, int]:
    Groups(seed, rows, **more).write(path, count)
    found = counted(run(bench, path, seed))
    path.unlink()
    assert found["groups"] == count
    return found


def few(found: dict[str, int], least: dict[str, int], times: int) -> dict[str, int]:
    return {k: found.get(k, 0) for k, n in least.items() if found.get(k, 0) < n * times}


def test_some_groups(bench: Path, tmp_path: Path) -> None:
    found = check(bench, tmp_path / "groups", 1, 16)
    assert found["told_early"] >= 10 and found["aborts"] + found["resets"] >= 3


@pytest.mark.slow
def test_groups_of_every_kind(bench: Path, tmp_path: Path) -> None:
    assert not few(check(bench, tmp_path / "groups", 2, 100), LEAST, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3, 8))
def test_many_groups(bench: Path, tmp_path: Path, seed: int) -> None:
    found = check(bench, tmp_path / "groups", seed, 1000)
    assert not few(found, LEAST, 10) and not few(found, CAMPAIGN, 1)


@pytest.mark.long
def test_arrays_of_two_rows(tmp_path: Path) -> None:
    bench = build("slotted", "bench_mpu", folder=tmp_path, LANES=16, ROWS=2)
    assert not few(check(bench, tmp_path / "groups", 8, 500, rows=2), LEAST, 5)


@pytest.fixture(scope="module")
def wide() -> Path:
    """With channels, and told as far ahead as their cards tell it."""
    folder = built("slotted") / "wide"
    return build("slotted", "bench_mpu", folder=folder, AHEAD=AHEAD, CHANNELS=CHANNELS)


@pytest.mark.parametrize(
    ("seed", "count"),
    [pytest.param(9, 100, marks=pytest.mark.slow),
     *(pytest.param(seed, 1000, marks=pytest.mark.long) for seed in range(10, 14))],
)  # fmt: skip
def test_channels_that_are_told_further_ahead(
    wide: Path, tmp_path: Path, seed: int, count: int
) -> None:
    """Aborts and resets at any cycle, lines that fail, refused commands, and others between."""
    found = check(wide, tmp_path / "groups", seed, count, channels=CHANNELS, commands=8)
    assert not few(found, FURTHER, count // 100)


SLOT, UNIT, PORT = "mpu/matmul_slot.sv", "mpu/mpu_unit.sv", "mpu/shared_port.sv"
MISTAKES = [
    # the array that was told a command takes results of the other one's adapters
    (UNIT, "integers_valid = values_valid && of_integers", "integers_valid = values_valid"),
    (SLOT, "if ((line_refused & of_next) != '0) early_refused", "if (1'b0) early_refused"),
    (SLOT, "(line_error & of_next) != '0) early_failed", "1'b0) early_failed"),
    (SLOT, ".line_error((line_error & run_units) != '0 ||", ".line_error(line_error != '0 ||"),
    (SLOT, "looks ? look_row : adapter_row", "looks ? 6'd0 : adapter_row"),
    (SLOT, "{told_here, starts} <= 2'b00;", "starts <= 1'b0;"),
    (SLOT, "rows > 7'(ROWS)", "1'b0"),
    (SLOT, "~(7'h7f << group)", "~(7'h7e << group)"),
    (SLOT, "verdict == adapter_types::BAD_SIZE", "1'b0"),
    (PORT, "unit_line_error[line_unit] = line_error", "unit_line_error[0] = line_error"),
    ("mpu/unit_turns.sv", "if (waits) unit = last;", ""),
    ("adapter/adapter.sv", "verdict == GOOD ? LOOK :", "verdict == GOOD ? ROW :"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(tmp_path: Path, mistake: tuple[str, str, str]) -> None:
    sources = mistaken(tmp_path, *mistake)
    bench = build("slotted", "bench_mpu", sources=sources, folder=tmp_path / "build")
    for seed in range(1, 5):
        Groups(seed).write(tmp_path / "groups", 150)
        done = run(bench, tmp_path / "groups", seed)
        if done.returncode == 1 and "group " in done.stderr:
            return
    pytest.fail(f"{mistake} is not noticed")


ARRAYS, TOLD = "mpu/integer_arrays.sv", "mpu/told_commands.sv"
FURTHER_MISTAKES = [
    (SLOT, "starts && !busy && parked == '0;", "starts && !busy;"),  # out of order
    (SLOT, "      parked <= '0;\n", ""),  # by an abort
    (TOLD, "      if (start && i + 1 < AHEAD)", "      if (i + 1 < AHEAD && 0)"),
    (ARRAYS, "assign wide = command_told || by_columns;", "assign wide = by_columns;"),
]


@pytest.mark.long
@pytest.mark.parametrize("mistake", FURTHER_MISTAKES, ids=range(len(FURTHER_MISTAKES)))
def test_mistakes_of_what_is_told_further_ahead(
    mistake: tuple[str, str, str], tmp_path: Path
) -> None:
    bench = build(
        "slotted", "bench_mpu", sources=mistaken(tmp_path, *mistake), folder=tmp_path / "build",
        OPT="-O0", AHEAD=AHEAD, CHANNELS=CHANNELS,
    )  # fmt: skip
    Groups(9, channels=CHANNELS, commands=8).write(tmp_path / "groups", 100)
    assert run(bench, tmp_path / "groups", 9).returncode == 1
