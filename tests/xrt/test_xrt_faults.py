"""Faults of boards behind XRT, and of the processes around them, while an engine runs: the tokens
are the undisturbed ones, or the engine ends with one error, within the fault's bound."""

from __future__ import annotations

import pytest

from tests.fault_table import SITUATIONS, VARIANTS, column
from tests.process_faults import outcome
from tests.recovery_rig import Folders, write_folders

pytestmark = pytest.mark.xrt

QUICK = ("link down", "VFU stuck", "completion lost")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("situation", ["decode", "adapter load"])
def test_some_faults_end_in_the_same_tokens(folders: Folders, situation: str) -> None:
    for name, cell in column(folders, "xrt", situation, QUICK).items():
        cell.check("xrt", name, situation)


@pytest.mark.long
@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_fault_ends_in_the_same_tokens(folders: Folders, situation: str) -> None:
    for name, cell in column(folders, "xrt", situation, tuple(VARIANTS)).items():
        cell.check("xrt", name, situation)


@pytest.mark.parametrize("variant", ["device process killed", "host killed"])
def test_a_process_that_ends_while_the_engine_decodes(folders: Folders, variant: str) -> None:
    outcome(folders, "xrt", variant, "decode").check("xrt", variant)


@pytest.mark.long
@pytest.mark.parametrize("situation", [one for one in SITUATIONS if one != "decode"])
def test_a_card_that_leaves_the_bus_is_recovered(folders: Folders, situation: str) -> None:
    outcome(folders, "xrt", "device process killed", situation).check(
        "xrt", "device process killed"
    )


@pytest.mark.long  # after a kill XRT asks its dead socket in a loop, on all cores: see the page
@pytest.mark.parametrize(
    ("variant", "situation"),
    [
        ("daemon stopped", "adapter load"),
        ("daemon stopped", "boards' own loop"),
        ("daemon killed", "decode"),
    ],
)
def test_limits_of_a_dead_runtime_do_not_add_up(
    folders: Folders, variant: str, situation: str
) -> None:
    outcome(folders, "xrt", variant, situation).check("xrt", variant)
