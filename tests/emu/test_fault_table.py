"""Every fault in every situation: the tokens are the undisturbed ones, no board is left out, and
recovery ends in time. The page has the table of the same cells. Boards behind XRT:
tests/xrt/test_xrt_faults.py."""

from __future__ import annotations

import pytest

from tests import process_faults
from tests.fault_table import BEGIN, END, PAGE, SITUATIONS, TESTED, VARIANTS, column
from tests.process_faults import outcome
from tests.recovery_rig import Folders, write_folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("place", ["emu", "slash"])
def test_each_fault_ends_in_the_same_tokens(folders: Folders, place: str, situation: str) -> None:
    for cell in column(folders, place, situation, TESTED[place]).values():
        cell.check(situation)


def test_faults_in_a_step_end_in_the_same_tokens(folders: Folders) -> None:
    for cell in column(folders, "emu", "decode", TESTED["emu"]).values():
        cell.check("decode")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["emu", "slash"])
def test_the_next_host_finds_a_killed_ones_boards_free(folders: Folders, place: str) -> None:
    outcome(folders, place, "host killed", "decode").check("host killed")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["daemon killed", "daemon stopped"])
def test_without_its_daemon_a_v80_ends_in_one_error(folders: Folders, variant: str) -> None:
    outcome(folders, "slash", variant, "decode").check(variant)


@pytest.mark.parametrize(
    ("begin", "end", "rows"),
    [(BEGIN, END, VARIANTS), (process_faults.BEGIN, process_faults.END, process_faults.VARIANTS)],
)
def test_the_page_has_every_fault_and_situation(
    begin: str, end: str, rows: dict[str, object]
) -> None:
    lines = PAGE.read_text().split(begin)[1].split(end)[0].strip().splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[2:-1]] == list(SITUATIONS)
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(rows)
