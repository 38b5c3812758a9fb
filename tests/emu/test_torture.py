"""Fault campaigns: runs follow from their seed, the product stands them, and each kind's check
bites."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import FailureFields, HangError, LinkError, RequestError
from lora_host.interrupt import Interrupt
from lora_host.naming import counted
from lora_lab.torture import campaign as campaigns
from lora_lab.torture.campaign import Campaign, Verdict, draw
from lora_lab.torture.faults import Fault, Run, draws_of
from lora_lab.torture.folders import write_folders
from lora_lab.torture.jobs import verdict_from
from lora_lab.torture.kinds import BY_NAME, KINDS, Kind
from lora_lab.torture.oracle import Judge, Observed
from lora_lab.torture.phases import PHASES, Phase
from lora_lab.torture.replay import run_from
from lora_lab.torture.report import Report
from lora_lab.torture.rig import Rig, Watch
from lora_lab.torture.table import host_table, table
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
from lora_sdk.recovery.scrubber import Scrubber
from tests.processes import environment

PAGE = Path(__file__).parents[2] / "docs" / "torture.md"
BEGIN, END = "<!-- kinds -->", "<!-- end of kinds -->"
SURE = [kind for kind in KINDS if kind.sure]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(write_folders(tmp_path_factory.mktemp("torture")))
    yield rig
    rig.close()


def one(kind: Kind, phase: str, boards: int = 2, at: int = 0) -> Run:
    """A run with this kind of fault alone, on board 1."""
    numbers = kind.draw(draws_of(3, 0))
    return Run(3, phase, boards, (Fault(kind.name, 1, at, numbers),))


def test_runs_follow_from_seed_and_number() -> None:
    assert [draw(5, n) for n in range(50)] == [draw(5, n) for n in range(50)]
    assert draw(5, 7) != draw(6, 7)
    run = draw(5, 7)
    assert run_from(json.loads(json.dumps(run.as_dict()))) == run


def test_a_campaign_ends_as_it_must(rig: Rig) -> None:
    campaign = Campaign(rig)
    verdicts = [campaign.verdict(draw(11, number)) for number in range(25)]
    assert [verdict for verdict in verdicts if verdict.problems] == []
    assert sum(verdict.noticed for verdict in verdicts) > 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_kind_ends_as_it_must_in_each_phase(rig: Rig, kind: Kind) -> None:
    campaign = Campaign(rig)
    for phase in kind.phases:
        verdict = campaign.verdict(one(kind, phase, max(2, kind.least)))
        assert not verdict.problems, verdict


@pytest.mark.parametrize("kind", SURE, ids=lambda kind: kind.name)
def test_a_fault_that_nobody_notices_fails_a_run(rig: Rig, kind: Kind) -> None:
    """What the host has seen of it is taken away, as if its detection were off."""

    def blind(observed: Observed) -> None:
        observed.seen, observed.repaired, observed.error = [], [], None
        observed.redone = observed.corrected = 0

    run = one(kind, kind.sure[0], at=1)
    assert not Campaign(rig).verdict(run).problems
    assert "not noticed" in " ".join(Campaign(rig, blind, minimise=False).verdict(run).problems)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_wrong_words_about_each_kind_fail_a_run(kind: Kind) -> None:
    """Another text, an error of another board or cause, and what is left behind."""
    run = Run(0, kind.phases[0], 4, (Fault(kind.name, 1, 0, kind.draw(draws_of(0, 0))),))
    judge = Judge(run, BY_NAME, (), ends_with_error=True)
    assert judge.problems(Observed(text=1), 2)
    other = FailureFields(abi.ERR_CANCELLED, "CANCELLED", board=1)
    assert judge.problems(Observed(error=HangError("?", failure=other)), 2)
    for name in kind.codes:
        code = int(getattr(abi, f"ERR_{name}"))
        far = LinkError("board 3", failure=FailureFields(code, name, board=3))
        assert judge.problems(Observed(text=2, seen=[far]), 2), name
    if kind.unit is not None and kind.codes:
        unit = FailureFields(abi.ERR_WATCHDOG, "WATCHDOG", board=1, unit=kind.unit + 1)
        assert judge.problems(Observed(text=2, seen=[HangError("?", failure=unit)]), 2)
    assert judge.problems(Observed(text=2, left=["1 pages"]), 2)
    assert judge.problems(Observed(text=2, seconds=1e3), 2)


def test_a_detection_that_is_off_fails_a_campaign(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody compares the sums of weights: a damaged one gives another text."""
    monkeypatch.setattr(Scrubber, "advance", lambda self: False)
    monkeypatch.setattr(Scrubber, "prove", lambda self: False)
    kind = BY_NAME["weights of a board ruined"]
    runs = [Run(3, "prefill", 2, (Fault(kind.name, 1, 0, (number, 0)),)) for number in range(6)]
    campaign = Campaign(rig, minimise=False)
    assert any(campaign.verdict(run).problems for run in runs)


def test_results_read_in_vain_fail_a_campaign_without_the_same_step(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new step instead of the same one again would take commits twice."""
    monkeypatch.setattr(Cluster, "repeat", lambda self: None)
    run = Run(567, "decode", 2, (Fault("read fails", 0, 2, (1,)),))
    assert Campaign(rig, minimise=False).verdict(run).problems


FOUND = {
    "not finite while rows run again": Run(
        57, "recovery", 1, (Fault("weights of a board ruined", 0, 3, (117749, 0)),)
    ),
    "a board fails while damage is looked for": Run(
        849, "own loop", 4, (Fault("done too early", 2, 2), Fault("record of another step", 3, 0),
                             Fault("weights of a board ruined", 1, 4, (194338, 0))),
    ),
    "the only board leaves while damage is looked for": Run(
        1401, "adapter load", 1, (Fault("board leaves the bus", 0, 2, (0,)),
                                  Fault("weights of a board ruined", 0, 0, (970049, 0))),
    ),
    "a board fails while the weights of an end are summed": Run(
        3836, "own loop", 1, (Fault("done lost", 0, 4),
                              Fault("weights of a board ruined", 0, 2, (366205, 1))),
    ),
    "the only board leaves at a text's end": Run(
        5055, "own loop", 1, (Fault("board leaves the bus", 0, 3, (0,)),
                              Fault("bit of a command list flipped", 0, 0, (937086, 1)),
                              Fault("registers read as ones", 0, 2)),
    ),
    "an adapter damaged before another failure": Run(
        7027, "adapter load", 2, (Fault("bit of an adapter flipped", 0, 0, (230258, 5)),
                                  Fault("record of an old epoch", 0, 1)),
    ),
    "an adapter that a board refuses": Run(
        7591, "adapter load", 2, (Fault("bit of an adapter flipped", 1, 0, (894851, 1)),),
    ),
    "a refused adapter beside a stuck unit": Run(
        7735, "adapter load", 1, (Fault("bit of an adapter flipped", 0, 2, (830401, 3)),
                                  Fault("VFU stuck", 0, 0)),
    ),
    "an adapter's size that a board refuses": Run(
        20360, "adapter load", 2, (Fault("bit of an adapter flipped", 1, 0, (752200, 2)),),
    ),
    "damaged after the recovery that summed them": Run(
        925, "own loop", 2, (Fault("bit of a weight flipped", 0, 4, (666406, 4)),
                             Fault("record of another step", 0, 0)),
    ),
    "damaged after a recovery, in steps of the host": Run(
        3461, "adapter load", 2, (Fault("firmware resets", 0, 1, (29,)),
                                  Fault("bit of a weight flipped", 1, 3, (497445, 1))),
    ),
    "a frame lost on the way to a board that began later": Run(
        2416, "verify", 4, (Fault("sequencer stalls", 0, 2, (3000,)),
                            Fault("frame lost", 3, 2, (1, 2, 1))),
    ),
    "results of a step with a commit do not arrive": Run(
        567, "decode", 2, (Fault("read fails", 0, 2, (1,)),),
    ),
    "results of a step do not arrive from the second board": Run(
        1203, "decode", 2, (Fault("read fails", 1, 1, (1,)),),
    ),
    "results of a step that takes an adapter": Run(
        229, "adapter load", 2, (Fault("read fails", 0, 3, (1,)),),
    ),
    "firmware that counts steps anew": Run(
        705, "own loop", 2, (Fault("firmware resets", 1, 0, (4,)),),
    ),
    "the first board's record of a loop is of another step": Run(
        25452, "own loop", 2, (Fault("registers read as ones", 0, 4),
                               Fault("record of another step", 0, 2)),
    ),
    "boards of a loop that wait in different steps": Run(
        10945, "own loop", 4, (Fault("frame of an old epoch", 2, 4, (0, 9, 1)),
                               Fault("DMA stuck", 3, 1)),
    ),
    "a board whose Router's record cannot be read": Run(
        433, "adapter load", 2, (Fault("Router stuck", 0, 4), Fault("read fails", 0, 3, (1,))),
    ),
    "a board that fails while a refused adapter is looked for": Run(
        28240, "adapter load", 2, (Fault("done too early", 0, 2),
                                   Fault("bit of an adapter flipped", 1, 1, (825987, 3))),
    ),
    "an adapter's header says that it lies nowhere": Run(
        77985, "adapter load", 4, (Fault("bit of an adapter flipped", 2, 0, (256458, 6)),)
    ),
    "both boards leave, one after the other, each the first of its cluster": Run(
        29422, "verify", 2, (Fault("board leaves the bus", 0, 3, (0,)),
                             Fault("board leaves the bus", 0, 2, (0,))),
    ),
    "a garbled block that a neighbour passes on to the board that is named": Run(
        118807, "prefill", 4, (Fault("lane down", 3, 0, (1,)),
                               Fault("bit flipped on a link", 0, 4, (1, 0, 1)),
                               Fault("block garbled, CRC right", 3, 3, (0, 7, 1))),
    ),
    "step numbers of ones": Run(
        1036, "own loop", 2, (Fault("bit of a command list flipped", 0, 1, (866620, 4)),
                              Fault("registers read as ones", 0, 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("run", FOUND.values(), ids=FOUND)
def test_what_campaigns_have_found_stays_repaired(rig: Rig, run: Run) -> None:
    assert not Campaign(rig).verdict(run).problems


ATTEMPTS = (
    Run(103541, "verify", 2, (Fault("bit of a command list, with ECC", 1, 2, (1002233, 48)),
                              Fault("MPU loses a command", 0, 3, (3,)),
                              Fault("record lost", 0, 0))),
    Run(103567, "verify", 2, (Fault("weights of a board ruined", 1, 1, (322459, 7)),
                              Fault("bit of a command list flipped", 1, 2, (98169, 5)),
                              Fault("two bits of K and V, with ECC", 0, 3, (118039, 6)))),
)  # fmt: skip


def test_weights_that_a_failed_attempt_has_loaded_again_are_not_forgotten(tmp_path: Path) -> None:
    """On one new engine: a recovery loads damaged weights, meets a word that ECC cannot correct,
    and its next attempt finds the weights right. The text from before must not pass."""
    rig = Rig(write_folders(tmp_path))
    try:
        assert [Campaign(rig).verdict(run).problems for run in ATTEMPTS] == [(), ()]
    finally:
        rig.close()


def test_a_run_that_does_not_end_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeps(engine: object, watch: object) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setitem(PHASES, "prefill", Phase(sleeps))
    monkeypatch.setattr(campaigns, "SECONDS", 1.0)
    campaign = Campaign(rig, minimise=False)
    campaign._wanted["prefill"] = "text"
    run = one(BY_NAME["lane down"], "prefill")
    rig.engine(run.boards)  # opening one is no part of the run
    assert "no end within" in " ".join(campaign.verdict(run).problems)


def test_a_failed_run_is_made_smaller(rig: Rig) -> None:
    def lie(observed: Observed) -> None:
        if any("completion record" in str(error) for error in observed.seen):
            observed.text = "another"

    faults = (Fault("lane down", 0, 3, (0,)), Fault("record lost", 1, 1))
    verdict = Campaign(rig, lie).verdict(Run(0, "decode", 2, faults))
    assert verdict.problems and verdict.smallest is not None
    assert [fault.kind for fault in verdict.smallest.faults] == ["record lost"]
    report = Report(0, 0, 0)
    report.add(verdict)
    assert report.failed == 1 and "record lost" in report.markdown()
    assert json.dumps(report.as_dict())


LANE = {"kind": "lane down", "board": 0, "at": 0, "numbers": [0]}


@pytest.mark.parametrize(
    "wrong",
    [
        *({"number": 0, "phase": phase, "boards": boards, "faults": faults}
          for phase, boards, faults in (
              ("load", 2, [LANE]), ("decode", 1, [LANE]), ("decode", 2, LANE),
              ("decode", 2, [{**LANE, "numbers": []}]),
              ("decode", 2, [{**LANE, "numbers": [0, 1]}]),
              ("decode", 2, [{**LANE, "numbers": "0"}]),
              ("decode", 2, [{**LANE, "numbers": [2]}]), ("decode", 2, [{**LANE, "at": 5}]),
              ("decode", 2, [{**LANE, "kind": ["lane down"]}]), ("decode", 2, [[]]),
              (["decode"], 2, []), ("decode", 2, [LANE] * 4),
          )),
        {},
        {"number": 0, "phase": "nap", "boards": 2, "faults": []},
        {"number": 0, "phase": "decode", "boards": 3, "faults": []},
        {"number": 0, "phase": "decode", "boards": 2, "faults": [{"kind": "x"}]},
        {"number": 0, "phase": "decode", "boards": 2,
         "faults": [{"kind": "lane down", "board": 2, "at": 0}]},
        {"number": True, "phase": "decode", "boards": 2, "faults": []},
    ],
)  # fmt: skip
def test_a_wrong_replay_file_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        run_from(wrong)


def test_a_number_that_no_campaign_draws_is_named() -> None:
    """A port that no board has would plant nothing."""
    fault = {"kind": "frame delayed", "board": 0, "at": 0, "numbers": [abi.PORTS, 0, 20]}
    wrong = {"number": 0, "phase": "decode", "boards": 2, "faults": [fault]}
    with pytest.raises(RequestError, match="frame delayed: port 2; expected 0 to 1"):
        run_from(wrong)
    fault["numbers"] = [0, 0, 21]
    with pytest.raises(RequestError, match="microseconds 21; expected 20 or 500 or 20000"):
        run_from(wrong)


def test_verdicts_of_other_processes_arrive_whole(rig: Rig) -> None:
    run = one(BY_NAME["frame delayed"], "decode")
    verdict = Verdict(run, ("wrong",), True, False, True, 0.5, run.without(0))
    assert verdict_from(json.loads(json.dumps(asdict(verdict)))) == verdict


def test_folders_of_killed_campaigns_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = tmp_path / "temporary"
    folders.mkdir()
    words = [sys.executable, "-m", "lora_lab.torture.jobs", "emu", "0", "0", "100000", "1"]
    environment = {**os.environ, "TMPDIR": str(folders)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as campaign:
        assert campaign.stdout is not None and campaign.stdout.readline()
        campaign.kill()
    left = {path.name for path in folders.iterdir()}
    assert any(name.startswith("lora-torture-") for name in left)
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    path = tmp_path / "run.json"
    path.write_text(json.dumps(one(BY_NAME["record lost"], "decode").as_dict()))
    assert run_command(lora, "lora", ["lab", "torture", "--replay", str(path)]) == 0
    assert not list(folders.iterdir())


@pytest.mark.parametrize("boards", [1, 2])
def test_ctrl_c_in_any_call_of_the_library_is_ctrl_c(
    rig: Rig, boards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, at = 0, 0
    enter = Interrupt.__enter__

    def entered(self: Interrupt) -> Interrupt:
        nonlocal count
        enter(self)
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGINT)
        return self

    def act(phase: Phase, interrupted: int = 0) -> object:
        nonlocal count, at
        count, at = 0, interrupted
        return phase.act(rig.engine(boards, phase.speculative), Watch())

    monkeypatch.setattr(Interrupt, "__enter__", entered)
    for phase in PHASES.values():
        if phase.opens or phase.shuts:
            continue
        act(phase)  # adapters are where they stay
        text, calls = act(phase), count
        for call in range(1, calls + 1):
            with pytest.raises(KeyboardInterrupt):
                act(phase, interrupted=call)
            assert act(phase) == text


COMMAND = (sys.executable, "-c", "from lora_sdk.cli.main import main; main()", "lab", "torture")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
@pytest.mark.parametrize("words", [(), ("--jobs", "2"), ("--target", "host")], ids=" ".join)
def test_ctrl_c_leaves_the_report_and_no_process(
    tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    report, folders, failures = tmp_path / "report.md", tmp_path / "folders", tmp_path / "failures"
    folders.mkdir()
    options = ("--runs", "5000", "--report", str(report), "--failures", str(failures), *words)
    with subprocess.Popen(
        [*COMMAND, *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**environment(), "TMPDIR": str(folders)},
    ) as campaign:  # fmt: skip
        end = time.monotonic() + 60
        while not any(folders.iterdir()) and time.monotonic() < end:  # it has not begun
            time.sleep(0.05)
        time.sleep(SOON)
        campaign.send_signal(number)
        out, said = campaign.communicate(timeout=120)
    assert campaign.returncode == 130 and "Traceback" not in said, said
    runs = int(re.search(r"interrupted after (\d+) of 5000 runs", said)[1])  # type: ignore[index]
    assert f" --seed 0 --from {runs} --runs {5000 - runs}" in said
    assert f" {counted(runs, 'run')} in " in out and "0 failed" in out
    assert "| kind |" in report.read_text()
    assert not list(folders.iterdir())
    assert not with_variable(f"TMPDIR={folders}")


SOON = 3.0  # seconds until Ctrl-C: whatever the campaign does then


def with_variable(line: str) -> list[int]:
    """Processes that have it in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if line.encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def test_the_command_refuses_a_missing_replay_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.json"
    assert run_command(lora, "lora", ["lab", "torture", "--replay", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}: No such file" in said and "expected a replay file" in said
    assert run_command(lora, "lora", ["lab", "torture", "--replay", str(tmp_path)]) == 2


def test_the_command_replays_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(one(BY_NAME["record lost"], "decode").as_dict()))
    assert run_command(lora, "lora", ["lab", "torture", "--replay", str(path)]) == 0
    assert "ended as it must" in capsys.readouterr().out
    path.write_text("[" * 50_000)
    assert run_command(lora, "lora", ["lab", "torture", "--replay", str(path)]) == 2
    capsys.readouterr()
    report = tmp_path / "report.md"
    words = ["lab", "torture", "--runs", "6", "--jobs", "2", "--json", "--report", str(report)]
    assert run_command(lora, "lora", words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 6 and found["failed"] == 0
    assert "| kind |" in report.read_text()


def test_the_page_has_the_table_of_kinds() -> None:
    assert PAGE.read_text().split(BEGIN)[1].split(END)[0].strip() == table()
    begin, end = "<!-- kinds of processes -->", "<!-- end of kinds of processes -->"
    assert PAGE.read_text().split(begin)[1].split(end)[0].strip() == host_table()
