"""test_card.py would notice these mistakes in what joins a card's units."""

from __future__ import annotations

from pathlib import Path

import pytest

from lora_host import abi
from tests.rtl.boards_build import ask
from tests.rtl.card_build import build
from tests.rtl.generations import Fault, Request, as_text
from tests.rtl.test_card import differences
from tests.rtl_rig import mistaken
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.rtl, pytest.mark.long]

FAILS = Fault(1, 2, abi.FAULT_UNIT_FAILS, (abi.UNIT_MPU, 2))
MAIL = "card/mail_commands.sv"

MISTAKES = {
    "rows of another unit": (
        "card/card.sv",
        ".row_position(found[OF_VFU].fields.position)",
        ".row_position(found[OF_MPU].fields.position)",
        1,
    ),
    "units begin before their step is read": (
        "card/card.sv",
        ".hold_units(feed_busy)",
        ".hold_units(1'b0)",
        1,
    ),
    "sums of another unit": (
        "card/card.sv",
        ".result_sum(values[ROUTER])",
        ".result_sum(values[DMA])",
        2,
    ),
    "poison of no epoch": (
        "card/card.sv",
        ".poison_epoch(step.epoch)",
        ".poison_epoch(step.step)",
        2,
    ),
    "the next sequence's length": (
        "card/step_feed.sv",
        "word_t'(LENGTHS) + word_t'(now.sequence_number[5:0])",
        "word_t'(LENGTHS) + word_t'(now.sequence_number[5:0]) + 1'b1",
        1,
    ),
    "the list in the place of the state": (
        MAIL,
        "(index == 5'd2) state",
        "(index == 5'd1) state",
        1,
    ),
    "the last command's first word": (MAIL, "(index > 5'd2) command", "(index > 5'd3) command", 1),
    "a failed command is done": (
        MAIL,
        "2'(LORA_UNIT_DONE) ? DONE : FAILED",
        "2'(LORA_UNIT_DONE) ? DONE : DONE",
        1,
    ),
    "what is waited for is told once": (MAIL, "!known[i] || shown[i] != now[i]", "!known[i]", 2),
    "the next word of what is waited for": (
        MAIL,
        "6'(WAITS - LORA_SEGMENTS) + 6'(place)",
        "6'(WAITS - LORA_SEGMENTS + 1) + 6'(place)",
        2,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("cards") / "model")


def is_noticed(request: Request, cards: Path) -> bool:
    """The run fails otherwise than it should, or bytes or frames differ."""
    try:
        found = ask(as_text(request), "card", variables={"LORA_TEST_CARDS": str(cards)})
    except AssertionError:
        return True
    if request.fault:
        return found["seen"]["codes"] != [abi.ERR_LINK_POISON, abi.ERR_UNIT]
    return bool(found["seen"]["error"]) or bool(differences(request, found))


def test_nothing_is_noticed_without_a_mistake(folder: Path, tmp_path: Path) -> None:
    """What fails below fails because of the mistake."""
    cards = build(tmp_path, LANES=8)
    assert not is_noticed(Request(str(folder), 1, 4, mailed=True), cards)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_noticed(name: str, folder: Path, tmp_path: Path) -> None:
    path, right, wrong, boards = MISTAKES[name]
    fault = FAILS if "poison" in name else None
    sources = mistaken(tmp_path, path, right, wrong)
    cards = build(tmp_path, RTL=sources, LANES=8)
    request = Request(str(folder), boards, 4, fault=fault, mailed=fault is None)
    assert is_noticed(request, cards)
