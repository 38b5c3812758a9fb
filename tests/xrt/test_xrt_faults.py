"""Faults of boards behind XRT, and of the processes around them, while an engine runs: the tokens
are the undisturbed ones, or the engine ends with one error."""

from __future__ import annotations

import pytest

from tests.fault_table import TESTED, column
from tests.process_faults import outcome
from tests.recovery_rig import Folders, write_folders

pytestmark = pytest.mark.xrt

QUICK = ("link down", "VFU stuck", "completion lost")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("faults"))


@pytest.mark.parametrize("situation", ["decode", "adapter load"])
def test_some_faults_end_in_the_same_tokens(folders: Folders, situation: str) -> None:
    for cell in column(folders, "xrt", situation, QUICK).values():
        cell.check(situation)


@pytest.mark.slow
def test_more_faults_end_in_the_same_tokens(folders: Folders) -> None:
    for cell in column(folders, "xrt", "verify", TESTED["xrt"]).values():
        cell.check("verify")


@pytest.mark.parametrize("variant", ["device process killed", "host killed"])
def test_a_process_that_ends_while_the_engine_decodes(folders: Folders, variant: str) -> None:
    outcome(folders, "xrt", variant, "decode").check(variant)


@pytest.mark.slow  # after a kill XRT asks its dead socket in a loop, on all cores: see the page
def test_without_the_process_behind_it_the_engine_ends(folders: Folders) -> None:
    outcome(folders, "xrt", "daemon stopped", "adapter load").check("daemon stopped")
