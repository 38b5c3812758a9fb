"""Each kind of fault bites: with its detection turned off a campaign fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_lab.torture import campaign as campaigns
from lora_lab.torture.campaign import Campaign
from lora_lab.torture.faults import Fault, Run, draws_of
from lora_lab.torture.folders import Folders, write_folders
from lora_lab.torture.host import kinds as host_kinds
from lora_lab.torture.host.campaign import HostCampaign
from lora_lab.torture.kinds import BY_NAME
from lora_lab.torture.rig import Rig
from tests import torture_process_switches as processes
from tests.torture_switches import BENIGN, OFF, Detection

TRIES = 16  # faults of other numbers, at other steps


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("switches"))


@pytest.fixture
def rig(folders: Folders) -> Iterator[Rig]:
    rig = Rig(folders)
    yield rig
    rig.close()


def runs(name: str, phase: str) -> Iterator[Run]:
    """With this fault alone, on board 1."""
    for number in range(TRIES):
        numbers = BY_NAME[name].draw(draws_of(7, number))
        yield Run(number, phase, 2, (Fault(name, 1, number % 3, numbers),))


def test_every_kind_has_a_switch_or_a_reason() -> None:
    assert {*OFF, *BENIGN} == set(BY_NAME) and not set(OFF) & set(BENIGN)


@pytest.mark.long
@pytest.mark.parametrize("name", OFF)
def test_a_campaign_fails_without_the_detection(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    detection: Detection = OFF[name]
    campaign = Campaign(rig, minimise=False)
    monkeypatch.setattr(campaigns, "SECONDS", 2.0)  # what has no end is broken off after 4
    campaign._want(detection.phase)
    campaign._want("decode")
    for run in runs(name, detection.phase):
        if detection.phase != "load":
            engine = rig.engine(2)
            detection.switch(engine, monkeypatch)
        else:
            detection.switch(None, monkeypatch)
        if campaign.verdict(run).problems:
            return
    pytest.fail(f"{name}: {TRIES} runs without its detection ended as they must")


def test_every_kind_of_processes_has_a_switch_or_a_reason() -> None:
    switched = {one.kind for one in processes.OFF}
    assert switched | set(processes.BENIGN) == set(host_kinds.BY_NAME)
    assert not switched & set(processes.BENIGN)


@pytest.mark.long
@pytest.mark.parametrize("row", processes.OFF, ids=lambda row: f"{row.kind}, {row.target}")
def test_a_process_campaign_fails_without_the_detection(
    tmp_path: Path, row: processes.Detection
) -> None:
    run = Run(0, row.phase, 2, (Fault(row.kind, 0, 0),), row.target)
    child = (processes.__name__, row.switch)
    assert HostCampaign(row.target, tmp_path, child).verdict(run).problems
