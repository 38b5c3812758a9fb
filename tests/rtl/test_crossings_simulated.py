"""Cells between unrelated clocks, with flops that take the old or the new value near an edge; the
control's ports to host, memory and links; and the control among its clocks, on which the overlay's
firmware image runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lora_host import abi
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.step.step import Row
from tests.rtl import core_rig
from tests.rtl.card_rig import SimulatedCard, load
from tests.rtl.crossing_rig import build, counts, run
from tests.rtl.test_card_image_simulated import (
    Untimed,
    generate_tokens,
    is_reset_at_any_cycle,
    tells_its_identity,
    tells_where_its_core_stands,
)
from tests.rtl_rig import first_then_long, mistaken
from tests.unit import test_card_image as cases
from tests.unit.card_core import CONTROL

pytestmark = pytest.mark.rtl
SLOW = pytest.mark.long

# Half periods, from 1:5 to 5:1; none is a multiple of another, and both drift.
RATIOS = [
    (1000, 5003), (1000, 3109), (1000, 1987), (1000, 1409), (1000, 1013),
    (1009, 1000), (1423, 1000), (2011, 1000), (3137, 1000), (4999, 1000),
]  # fmt: skip
QUICK = (0, 4, 9)
WORDS = 100_000  # of each cell, over all ratios


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    "ratio", [r if i in QUICK else pytest.param(r, marks=SLOW) for i, r in enumerate(RATIOS)]
)
def test_a_cell_loses_and_doubles_nothing(ratio: tuple[int, int], resets: bool) -> None:
    words = WORDS // len(RATIOS)
    options = ["--words", words, "--a", ratio[0], "--b", ratio[1], "--seed", sum(ratio)]
    found = counts(build("cells"), *options, *["--resets"] * resets)
    assert all(given >= words for given in found["given"])
    assert found["unsure"] > words / 4  # bits that changed close to an edge
    assert (found["lost"] > 0) == resets == (found["resets"] > 0)


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize(
    "seed", [*range(1, 4), *(pytest.param(seed, marks=SLOW) for seed in range(4, 24))]
)
def test_ports_answer_what_was_asked(seed: int, resets: bool) -> None:
    options = ["--seed", seed, "--edges", 400_000]
    found = counts(build("ports"), *options, *["--resets"] * resets)
    assert min(found[name] for name in ("lines", "reads", "writes", "errors", "refused")) > 0
    assert min(found[name] for name in ("epochs", "poisons", "tests")) > 10
    assert (found["resets"] > 0) == resets


# (program, file, right, wrong, what is said)
MEMORY, HOST = "control/memory_port.sv", "control/host_port.sv"
MISTAKES = {
    "a word is taken with its request": (
        "cells", "crossing/word_cross.sv", ".d(request),", ".d(request ^ (in_valid && in_ready)),",
        "",
    ),
    "a burst has a line more": ("ports", MEMORY, "8'(asked.beats)", "8'(asked.beats) + 8'd1", ""),
    "a burst begins at the end of a page": (
        "ports", MEMORY, "araddr <= {asked.line, 6'd0}", "araddr <= {asked.line | 42'd60, 6'd0}",
        "a burst crosses 4 KiB",
    ),
    "a read's address is offered for a cycle": (
        "ports", MEMORY, "if (arvalid && arready) arvalid", "if (arvalid) arvalid",
        "AR changed before it was taken",
    ),
    "a write's address is offered for a cycle": (
        "ports", MEMORY, "if (awvalid && awready) awvalid", "if (awvalid) awvalid",
        "AW changed before it was taken",
    ),
    "what is written goes with its address": (
        "ports", MEMORY, "if (wvalid && wready) wvalid", "if (awvalid && awready) wvalid",
        "W changed before it was taken",
    ),
    "two words are written": (
        "ports", MEMORY, "64'(asked.strobe) <<", "64'({asked.strobe, asked.strobe}) <<",
        "a write is not of one word",
    ),
    "a word read is offered for a cycle": (
        "ports", HOST, "if (rready) begin", "if (1'b1) begin", "R changed before it was taken",
    ),
    "the end of a write is offered for a cycle": (
        "ports", HOST, "if (bready) begin", "if (1'b1) begin", "B changed before it was taken",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(name: str, tmp_path: Path) -> None:
    target, path, right, wrong, said = MISTAKES[name]
    sources = mistaken(tmp_path, path, right, wrong)
    program = build(target, sources, tmp_path / "build", "-O0")
    if target == "cells":
        runs = [("--words", 4000, "--a", a, "--b", b) for a, b in RATIOS[::3]]
    else:
        runs = [("--edges", 400_000, "--seed", seed) for seed in (1, 2, 3)]
    ends = (run(program, *options, *more) for options in runs for more in ((), ("--resets",)))
    assert any(status and said in text for status, text in ends)


# --- the control among its clocks ---


@cache
def library() -> object:
    return load(core_rig.build("libclocked.so"))


@pytest.fixture(params=[1, *(pytest.param(seed, marks=SLOW) for seed in (2, 3))])
def card(request: pytest.FixtureRequest) -> Iterator[SimulatedCard]:
    """Each seed has other clocks, other delays and other bits to begin with."""
    made = SimulatedCard(request.param, library())
    yield made
    made.close()


def test_it_says_who_it_is(card: SimulatedCard) -> None:
    cases.test_it_says_who_it_is(card)
    # an interrupt has ended the wait, and reading AP_CTRL has cleared done
    assert card.registers[abi.REG_ISR // 4] == 1
    assert not card.registers[abi.REG_AP_CTRL // 4] & abi.AP_DONE
    tells_its_identity(card)


def test_it_runs_steps(card: SimulatedCard) -> None:
    """Registration, and steps with their list in bursts."""
    cases.test_it_runs_a_models_steps(card, "llama", 1)


@pytest.mark.long
def test_it_runs_steps_of_several_boards(card: SimulatedCard) -> None:
    cases.test_it_runs_a_models_steps(card, "opt_post", 2)


@pytest.mark.long
def test_it_generates_tokens() -> None:
    generate_tokens(Untimed(4, library()))


test_it_refuses_an_address_beyond_its_arena = pytest.mark.long(
    cases.test_it_refuses_an_address_beyond_its_arena
)


def test_an_error_of_memory_fails_the_run(card: SimulatedCard) -> None:
    """In a burst of the list; the next run is as ever."""
    plan, _, completion, error = cases.register(card, "llama", 1)
    assert completion["status"] == abi.OK, error
    ops = [KvOp.table(0, 0, plan.page_count - 1), KvOp.length(0, 0)]
    rows = [Row(0, 0, 7, 0)]
    card.fail_line(CONTROL, plan.boards[0].control.list_offset + 5 * 64)
    completion, error = cases.step(card, plan, 1, rows, ops)
    assert completion["status"] == abi.ERR_ADDRESS
    card.fail_line(0, 0)
    completion, error = cases.step(card, plan, 1, rows, ops)
    assert completion["status"] == abi.OK, error


def test_an_error_at_the_window_stops_the_core(card: SimulatedCard) -> None:
    tells_where_its_core_stands(card)


@SLOW
@pytest.mark.parametrize("seed", range(1, 9))
def test_all_of_it_is_reset_at_any_cycle(seed: int) -> None:
    """The clocks go on: the host asks through it, memory owes answers, links have words to come."""
    made = SimulatedCard(seed, library())
    is_reset_at_any_cycle(made, seed)
    made.close()


def test_the_host_sees_the_end_of_its_registers(card: SimulatedCard) -> None:
    card.set_arenas({CONTROL: 1 << 20})
    last = (abi.REG_ARENAS + abi.MAX_ARENAS * 32) // 4 - 1
    card.registers[last] = 0x12345678
    assert card.registers[last] == 0x12345678
