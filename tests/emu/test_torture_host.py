"""Faults of the engine's process, its files and limits: runs follow from their seed, and end as
they must."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.torture.faults import Fault, Run
from lora_sdk.torture.host.campaign import Ended, HostCampaign, _wrong_end, draw
from lora_sdk.torture.host.kinds import BY_NAME, KINDS, PHASES, kinds_of
from lora_sdk.torture.host.places import PLACES, Place
from lora_sdk.torture.replay import run_from

PLACE = Place({}, ("xrt:0", "xrt:1"))


def test_runs_follow_from_seed_and_number() -> None:
    for target in PLACES:
        runs = [draw(target, 5, number) for number in range(60)]
        assert runs == [draw(target, 5, number) for number in range(60)]
        assert run_from(json.loads(json.dumps(runs[7].as_dict()))) == runs[7]
        assert all(target in BY_NAME[run.faults[0].kind].targets for run in runs)
        met = {phase for phase in PHASES if kinds_of(target, phase)}
        assert {run.phase for run in runs} == met


def test_a_replay_file_of_another_target_is_refused() -> None:
    fault = {"kind": "daemon killed", "board": 0, "at": 0, "numbers": []}
    wrong = {"number": 0, "phase": "decode", "boards": 2, "faults": [fault], "target": "host"}
    with pytest.raises(RequestError, match="daemon killed"):
        run_from(wrong)
    with pytest.raises(RequestError, match="target"):
        run_from({**wrong, "target": "moon"})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_wrong_ends_are_problems(kind: object) -> None:
    """A trace in place of an error, another text, an error that names nothing, a late end."""
    for ended in (
        Ended(None, "", 1, 1.0, "Traceback"),
        Ended("another", "", 0, 1.0, "") if kind.ends != "killed" else Ended("t", "", 0, 1.0, ""),  # type: ignore[attr-defined]
        Ended(None, "one\ntwo", 1, 1.0, ""),
        Ended(None, "", -9, 1e3, ""),
    ):
        assert list(_wrong_end(kind, PLACE, ended, "text")), ended  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("host killed", "decode"),
        ("descriptors exhausted", "open"),
        ("descriptors exhausted", "decode"),
        ("pages exhausted", "decode"),
        ("weights cut short", "open"),
        ("weights' header garbled", "open"),
        ("configuration garbled", "open"),
    ],
)
def test_processes_end_as_they_must(tmp_path: Path, name: str, phase: str) -> None:
    run = Run(0, phase, 2, (Fault(name, 0, 0),), "host")
    verdict = HostCampaign("host", tmp_path).verdict(run)
    assert not verdict.problems, verdict
