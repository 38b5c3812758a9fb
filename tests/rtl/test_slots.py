"""Slots of units: fields, statuses and results of random commands and bad ones, beside the native
kernels, while units are stopped and memory ports fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host import abi
from tests.rtl.bench_rig import build
from tests.rtl.slots_rig import Cases, attention_cases, in_hardware, vector_cases
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

# Least of a campaign of 60 commands an operation.
LEAST = {
    "aborts_before": 5, "aborts_running": 5, "aborts_ended": 1, "resets": 5, "resets_running": 1,
    "failed_line": 15, "failed_write": 60, "refused_line": 5, "refused_write": 15,
    "nonfinite": 200, "finite": 200, "started": 700, "not_started": 150,
    f"status_{abi.OK}": 500, f"status_{abi.ERR_UNIT}": 80, f"status_{abi.ERR_SIZE}": 50,
    f"status_{abi.ERR_OPCODE}": 20, f"status_{abi.ERR_ADDRESS}": 90,
}  # fmt: skip


@pytest.fixture(scope="module")
def vector_bench() -> Path:
    return build("slots", "bench_vector")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 40))]
)
def test_vector_commands(vector_bench: Path, tmp_path: Path, seed: int) -> None:
    found = vector_cases(seed, 60).run(vector_bench, tmp_path / "cases", seed)
    least = LEAST | {f"op_{number}": 30 for number in in_hardware().values()}
    few = {name: found.get(name, 0) for name, count in least.items() if found.get(name, 0) < count}
    assert not few


ATTENTION_LEAST = {
    "aborts": 10, "aborts_before": 5, "resets": 5, "failed_line": 1, "failed_write": 15,
    "refused_line": 1, "refused_write": 5, "nonfinite": 80, "finite": 80, "started": 250,
    "not_started": 150, f"status_{abi.OK}": 250, f"status_{abi.ERR_UNIT}": 20,
    f"status_{abi.ERR_SIZE}": 45, f"status_{abi.ERR_OPCODE}": 8, f"status_{abi.ERR_ADDRESS}": 45,
    f"status_{abi.ERR_ROW}": 40,
}  # fmt: skip


@pytest.fixture(scope="module")
def attention_bench() -> Path:
    return build("slots", "bench_attention")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 40))]
)
def test_attention_commands(attention_bench: Path, tmp_path: Path, seed: int) -> None:
    found = attention_cases(seed, 800).run(attention_bench, tmp_path / "cases", seed)
    few = {
        name: found.get(name, 0) for name, n in ATTENTION_LEAST.items() if found.get(name, 0) < n
    }
    assert not few


MISTAKES = [
    ("vfu/vector_slot.sv", "if (remainder != '0) uneven", "if (remainder != '0 && heads) uneven"),
    ("vfu/vector_slot.sv", "head_first <= quotient;", "if (step == 2'd1) head_first <= quotient;"),
    ("vfu/vector_slot.sv", "looks ? look_row", "1'b0 ? look_row"),
    ("vfu/vector_operands.sv", "command.first >= command.extra", "command.first > command.extra"),
    ("port/row_range.sv", "40'(more) + 40'(bytes)", "40'(more)"),
    ("port/unit_run.sv", "SETTLE: if (!write_open)", "SETTLE:"),
    ("port/unit_run.sv", "if (rst || unit_abort) state <= IDLE;", "if (rst) state <= IDLE;"),
]  # fmt: skip


def noticed(
    folder: Path, unit: str, cases: Callable[[int], Cases], mistake: tuple[str, str, str]
) -> bool:
    """With one of four seeds."""
    name, right, wrong = mistake
    sources = mistaken(folder, name, right, wrong)
    bench = build("slots", f"bench_{unit}", sources=sources, folder=folder / "build")
    for seed in range(4):
        try:
            cases(seed).run(bench, folder / "cases", seed)
        except AssertionError as error:
            return "case " in str(error)
    return False


@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_in_the_vector_slot_is_noticed(
    tmp_path: Path, mistake: tuple[str, str, str]
) -> None:
    assert noticed(tmp_path, "vector", lambda seed: vector_cases(seed, 60), mistake)


SLOT = "attention/attention_slot.sv"
ATTENTION_MISTAKES = [
    (SLOT, "state == LAST ? 17'(command.q_heads) - 17'd1", "state == LAST ? 17'(command.q_heads)"),
    (SLOT, "depth == 8'(LORA_MAX_SCRATCH)", "depth == 8'd127"),
    (SLOT, "37'(row_committed) >", "37'(row_committed) >="),
    (SLOT, ".bytes(integers && !step[0] ?", ".bytes(integers ?"),
]


@pytest.mark.long
@pytest.mark.parametrize("mistake", ATTENTION_MISTAKES)
def test_a_mistake_in_attentions_slot_is_noticed(
    tmp_path: Path, mistake: tuple[str, str, str]
) -> None:
    assert noticed(tmp_path, "attention", lambda seed: attention_cases(seed, 800), mistake)
