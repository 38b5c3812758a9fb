"""Every fault in every situation: the tokens are the undisturbed ones, no board is left out, and
recovery ends in time. The page has the table of the same cells."""

from __future__ import annotations

import pytest

from tests.fault_table import (
    BEGIN,
    END,
    LIMIT,
    MAY_BE_LATE,
    MEASURED,
    PAGE,
    SITUATIONS,
    VARIANTS,
    column,
)
from tests.recovery_rig import Folders, write_folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("faults"))


@pytest.mark.slow
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("place", MEASURED)
def test_each_fault_ends_in_the_same_tokens(folders: Folders, place: str, situation: str) -> None:
    for name, cell in column(folders, place, situation).items():
        assert cell.same and not cell.left_out, (name, cell)
        if cell.seconds is None:
            assert (place, situation) == MAY_BE_LATE, name
        else:
            assert cell.seconds < LIMIT, (name, cell)


def test_the_page_has_every_fault_and_situation() -> None:
    lines = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[2:-1]] == list(SITUATIONS)
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(VARIANTS)
