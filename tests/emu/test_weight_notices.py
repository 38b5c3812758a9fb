"""Programs are told of damaged weights that were found and loaded again. Real bits of emulated
boards' memory, flipped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lora_host import abi
from lora_host.errors import RequestError, TransportError
from lora_sdk import Engine, Fleet, SamplingParams, WeightNotice
from lora_sdk.cli.fleet import fleet_command
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run as lora_run_command
from lora_sdk.cli.statistics import Statistics
from tests.fault_table import PROMPT
from tests.recovery_rig import Disturbed, Folders, inject, opened, speculation, write_folders
from tests.scrub_rig import flip, sum_at_every_step, sum_nothing

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("notices"))


def test_a_program_is_told_of_requests_that_begin_again(folders: Folders) -> None:
    told: list[WeightNotice] = []
    with opened(folders, 2, on_notice=told.append) as engine:
        sum_at_every_step(engine)
        places: list[str] = []
        began = time.time()
        with Disturbed(engine, {4: lambda: places.append(flip(engine))}):
            engine.generate([PROMPT, PROMPT[:9]], PARAMS)
        (notice,) = told
        assert places[0] in notice.cause and (notice.running, notice.ended) == (2, 0)
        assert began <= notice.when <= time.time()
        notices = engine.weight_notices
        assert notices.latest == (notice,) and (notices.count, notices.ended) == (1, 0)
        engine.generate(PROMPT, PARAMS)
        assert len(told) == 1


def test_a_program_is_told_of_requests_that_have_ended(folders: Folders) -> None:
    """Also where its callback fails, which hurts no request."""
    told: list[WeightNotice] = []

    def failing(notice: WeightNotice) -> None:
        told.append(notice)
        raise ValueError("planned")

    with opened(folders, 2, on_notice=failing) as engine:
        sum_nothing(engine)
        engine.generate(PROMPT, PARAMS)
        engine.confirm()
        place = flip(engine)
        engine.generate([PROMPT, PROMPT[:9]], PARAMS)
        with pytest.raises(TransportError):
            engine.confirm()
        (notice,) = told
        assert place in notice.cause and (notice.running, notice.ended) == (0, 2)
        assert engine.weight_notices.ended == 2
        assert "2 ended requests may hold wrong tokens" in str(notice)
        engine.generate(PROMPT, PARAMS)


def test_a_recovery_that_loaded_weights_again_is_a_notice(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        sum_nothing(engine)
        flip(engine)
        engine.generate(PROMPT, PARAMS)
        inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        engine.generate(PROMPT, PARAMS)
        (notice,) = engine.weight_notices.latest
        assert "weights were loaded again" in notice.cause and notice.ended == 1


def test_damage_of_a_drafts_weights_is_a_notice_without_requests(folders: Folders) -> None:
    with opened(folders, 2, speculation=speculation(folders, "draft")) as engine:
        sum_at_every_step(engine)
        board: Any = engine._speculation.draft_board  # type: ignore[union-attr]
        plan = board.opened.plan.boards[0]
        bank, at = next(iter(plan.matrices.values())).address(0)
        (byte,) = board.opened.cluster.read(0, bank, at + 3, 1)
        board.opened.cluster.write(0, bank, at + 3, bytes([byte ^ 1]))
        engine.generate(PROMPT, PARAMS)
        (notice,) = engine.weight_notices.latest
        assert notice.cause.startswith("draft: weights changed: board 0")
        assert (notice.running, notice.ended) == (0, 0)


def test_a_fleet_names_the_place(folders: Folders) -> None:
    told: list[WeightNotice] = []
    engines = [Engine(folders.model, boards=1, on_notice=told.append) for _ in range(2)]
    with Fleet([], engines) as fleet:
        assert not fleet.weight_notices
        for engine in engines:
            sum_at_every_step(engine)
        place = flip(engines[1], board=0)
        fleet.generate([PROMPT, PROMPT[:9], PROMPT[:5]], PARAMS)
        (told_of,) = list(fleet.weight_notices)
        name, notice = told_of
        assert name == "cluster 1" and place in notice.cause and told == [notice]


def test_lora_run_prints_notices(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", str(folders.model), "--boards", "2", "-q", "-p", "ab", "-n", "4"]
    loaded = Statistics.loaded
    places: list[str] = []

    def flipped(statistics: Statistics, engine: Engine, drafts: Any) -> None:
        loaded(statistics, engine, drafts)
        sum_at_every_step(engine)
        places.append(flip(engine, bit=1))  # changes no token

    assert run_command(lora_run_command, "lora-run", arguments) == 0
    assert "notice" not in capsys.readouterr().err
    monkeypatch.setattr(Statistics, "loaded", flipped)
    assert run_command(lora_run_command, "lora-run", arguments) == 0
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "notice" in one]
    assert line.startswith("lora-run: notice: weights changed") and places[0] in line


def test_lora_fleet_prints_notices(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, prompts = tmp_path / "fleet.yaml", tmp_path / "prompts.jsonl"
    description.write_text(f"model: {folders.model}\nclusters:\n  - {{boards: 2}}\n")
    prompts.write_text('{"prompt": "ab", "max_tokens": 4}\n')
    opened_fleet = Fleet.open

    def flipped(path: Path, **options: Any) -> Fleet:
        fleet = opened_fleet(path, **options)
        engine = fleet.places[0].engine
        sum_at_every_step(engine)
        flip(engine)
        return fleet

    monkeypatch.setattr(Fleet, "open", flipped)
    done = CliRunner().invoke(fleet_command, [str(description), str(prompts)])
    assert done.exit_code == 0, done.output
    assert "lora fleet: notice: weights changed: board 1" in done.stderr


def test_another_callback_is_refused(folders: Folders) -> None:
    with pytest.raises(RequestError, match="on_notice"):
        Engine(folders.model, on_notice=3)  # type: ignore[arg-type]
