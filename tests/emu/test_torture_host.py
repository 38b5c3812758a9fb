"""Faults of the engine's process, its files and limits: runs follow from their seed, and end as
they must."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from lora_host.errors import RequestError, TransportError
from lora_lab.torture.campaign import Verdict
from lora_lab.torture.faults import Fault, Run
from lora_lab.torture.host.campaign import (
    Ended,
    HostCampaign,
    _left_by,
    _processes_of,
    _wrong_end,
    draw,
)
from lora_lab.torture.host.kinds import BY_NAME, KINDS, Kind, kinds_of, phases_of
from lora_lab.torture.host.places import PLACES, Place
from lora_lab.torture.replay import run_from

PLACE = Place({}, ("xrt:0", "xrt:1"))


def test_runs_follow_from_seed_and_number() -> None:
    for target in PLACES:
        runs = [draw(target, 5, number) for number in range(90)]
        assert runs == [draw(target, 5, number) for number in range(90)]
        assert run_from(json.loads(json.dumps(runs[7].as_dict()))) == runs[7]
        assert all(target in BY_NAME[run.faults[0].kind].targets for run in runs)
        met = {phase for phase in phases_of(target) if kinds_of(target, phase)}
        assert {run.phase for run in runs} == met


def test_a_replay_file_of_another_target_is_refused() -> None:
    fault = {"kind": "daemon killed", "board": 0, "at": 0, "numbers": []}
    wrong = {"number": 0, "phase": "decode", "boards": 2, "faults": [fault], "target": "host"}
    with pytest.raises(RequestError, match="daemon killed"):
        run_from(wrong)
    with pytest.raises(RequestError, match="target"):
        run_from({**wrong, "target": "moon"})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_wrong_ends_are_problems(kind: Kind) -> None:
    """A trace in place of an error, another text, an error that names nothing, a late end."""
    for phase in kind.phases:
        killed = kind.ends_in(phase) == "killed"
        for ended in (
            Ended(None, "", 1, 1.0, "Traceback"),
            Ended("t" if killed else "another", "", 0, 1.0, ""),
            Ended(None, "one\ntwo", 1, 1.0, ""),
            Ended(None, "", -9, 1e3, ""),
            Ended("text", "", -9 if killed else 0, 1.0, "", left=1),
            Ended("text", "", -9 if killed else 0, 1.0, "", struck=False),
        ):
            assert list(_wrong_end(kind, phase, PLACE, ended, "text")), ended


@pytest.mark.parametrize("kind", [one for one in KINDS if one.names], ids=lambda kind: kind.name)
def test_an_error_that_names_something_else_is_a_problem(kind: Kind) -> None:
    ended = Ended(None, "board 7 (emu:u280/7): a unit has failed", 1, 1.0, "")
    for phase in kind.phases:
        (problem,) = list(_wrong_end(kind, phase, PLACE, ended, "text"))[-1:]
        assert "names none of" in problem


def test_a_run_that_fails_without_a_fault_ends_the_campaign_in_a_line(tmp_path: Path) -> None:
    campaign = HostCampaign("host", tmp_path, ("no_such_module",))
    with pytest.raises(TransportError, match=r"^a run of decode without a fault .*no_such_module"):
        campaign.verdict(Run(0, "decode", 2, (Fault(KINDS[0].name, 0, 0),), "host"))


def test_processes_that_are_left_are_counted() -> None:
    words = ["sh", "-c", "sleep 60 & exit 0"]
    with subprocess.Popen(words, start_new_session=True) as first:
        first.wait()
        assert _processes_of(first.pid) == 1
        os.killpg(first.pid, signal.SIGKILL)
        assert _left_by(first.pid) == 0


def verdict_of(root: Path, target: str, phase: str, name: str) -> Verdict:
    if target == "boardd":
        pytest.importorskip("cryptography")  # its keys
    run = Run(0, phase, 2, (Fault(name, 0, 0),), target)
    return HostCampaign(target, root).verdict(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "phase", "name"),
    [
        ("worker", "hand-over", "boardd killed"),
        ("boardd", "decode", "connections cut"),
    ],
)
def test_lost_ends_cost_no_text(tmp_path: Path, target: str, phase: str, name: str) -> None:
    verdict = verdict_of(tmp_path, target, phase, name)
    assert not verdict.problems, verdict


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "phase", "name"),
    [
        ("host", "decode", "host killed"),
        ("host", "open", "descriptors exhausted"),
        ("host", "decode", "descriptors exhausted"),
        ("host", "decode", "pages exhausted"),
        ("host", "open", "weights cut short"),
        ("host", "open", "weights' header garbled"),
        ("host", "open", "configuration garbled"),
        ("slash", "open", "bank full"),
        ("slash", "decode", "daemon restarted"),
        ("slash", "load", "daemon restarted"),
        ("xrt", "decode", "device process stopped"),
        ("xrt", "verify", "device process stopped for a while"),
        ("boardd", "load", "boardd killed"),
        ("boardd", "decode", "boardd restarted"),
        ("boardd", "own loop", "boardd stopped"),
        ("boardd", "verify", "boardd stopped for a while"),
        ("boardd", "prefill", "network parted"),
        ("boardd", "open", "network silent"),
        ("boardd", "adapter load", "network silent for a while"),
        ("boardd", "decode", "all of boardd killed"),
        ("boardd", "decode", "cable between daemons cut"),
        ("boardd", "own loop", "cable between daemons parted"),
        ("boardd", "verify", "cable between daemons silent"),
        ("boardd", "decode", "host killed"),
        ("worker", "prefill", "boardd stopped"),
        ("worker", "hand-over", "network silent"),
        ("worker", "load", "boardd restarted"),
        ("fleet", "prefill", "boardd killed"),
        ("fleet", "hand-over", "network parted"),
        ("fleet", "hand-over", "boardd restarted"),
        ("fleet", "hand-over", "host killed"),
    ],
)
def test_processes_end_as_they_must(tmp_path: Path, target: str, phase: str, name: str) -> None:
    verdict = verdict_of(tmp_path, target, phase, name)
    assert not verdict.problems, verdict


def test_kinds_name_targets_and_phases_that_there_are() -> None:
    for kind in KINDS:
        assert set(kind.targets) <= set(PLACES)
        met = {phase for target in kind.targets for phase in phases_of(target)}
        assert met & set(kind.phases)
