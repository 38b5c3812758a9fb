"""Every fault in every situation: the tokens are the undisturbed ones, no board is left out, and
each ends within its bound. The page has the table of the same cells. Boards behind XRT:
tests/xrt/test_xrt_faults.py."""

from __future__ import annotations

import pytest

from tests import process_faults
from tests.fault_table import BEGIN, BOUNDS, END, PAGE, SITUATIONS, VARIANTS, column
from tests.process_faults import outcome
from tests.recovery_rig import Folders, write_folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("faults"))


def check_all(folders: Folders, place: str, situation: str) -> None:
    for name, cell in column(folders, place, situation, tuple(VARIANTS)).items():
        cell.check(place, name, situation)


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("place", ["emu", "slash"])
def test_each_fault_ends_in_the_same_tokens(folders: Folders, place: str, situation: str) -> None:
    check_all(folders, place, situation)


def test_faults_in_a_step_end_in_the_same_tokens(folders: Folders) -> None:
    check_all(folders, "emu", "decode")


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("place", ["emu", "slash"])
def test_the_next_host_finds_a_killed_ones_boards_free(
    folders: Folders, place: str, situation: str
) -> None:
    outcome(folders, place, "host killed", situation).check(place, "host killed")


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
def test_without_its_daemon_a_v80_ends_in_one_error(folders: Folders, situation: str) -> None:
    outcome(folders, "slash", "daemon killed", situation).check("slash", "daemon killed")


@pytest.mark.slow
@pytest.mark.parametrize("situation", ["decode", "boards' own loop"])
def test_waits_for_a_daemon_that_has_stopped_do_not_add_up(
    folders: Folders, situation: str
) -> None:
    outcome(folders, "slash", "daemon stopped", situation).check("slash", "daemon stopped")


@pytest.mark.parametrize(
    ("begin", "end", "rows"),
    [(BEGIN, END, VARIANTS), (process_faults.BEGIN, process_faults.END, process_faults.VARIANTS)],
)
def test_the_page_has_every_fault_and_situation(
    begin: str, end: str, rows: dict[str, object]
) -> None:
    lines = PAGE.read_text().split(begin)[1].split(end)[0].strip().splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[2:-1]] == ["bound", *SITUATIONS]
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(rows)


def test_every_fault_has_its_bound_and_the_page_says_it() -> None:
    assert list(BOUNDS) == list(VARIANTS)
    applies = process_faults.APPLIES
    assert set(process_faults.BOUNDS) == {(w, name) for w in applies for name in applies[w]}
    said = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
    found = {cells[1].strip(): float(cells[2]) for cells in (line.split("|") for line in said)}
    assert found == BOUNDS
