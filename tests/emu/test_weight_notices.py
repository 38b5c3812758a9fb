"""Programs are told of damaged weights that were found and loaded again. Real bits of emulated
boards' memory, flipped."""

from __future__ import annotations

import io
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lora_cluster import Fleet
from lora_cluster.cli.fleet import fleet_command
from lora_host import abi
from lora_host.errors import LoraError, RequestError, TransportError
from lora_sdk import Engine, SamplingParams, WeightNotice
from lora_sdk.cli.chat import chat
from lora_sdk.cli.conversation import Conversation
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run as lora_run_command
from lora_sdk.cli.statistics import Statistics
from lora_sdk.engine.evaluation import evaluate_text
from tests.fault_table import PROMPT
from tests.recovery_rig import WHICH, Disturbed, Folders, inject, opened, speculation, write_folders
from tests.scrub_rig import flip, sum_at_every_step, sum_nothing
from tests.variants import write_checkpoint

PARAMS = SamplingParams(max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("notices"))


def test_a_program_is_told_of_requests_that_fail(folders: Folders) -> None:
    told: list[WeightNotice] = []
    with opened(folders, 2, on_notice=told.append) as engine:
        sum_at_every_step(engine)
        places: list[str] = []
        began = time.time()
        with (
            Disturbed(engine, {4: lambda: places.append(flip(engine))}),
            pytest.raises(TransportError),
        ):
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
        with suppress(LoraError):
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
        errors: list[LoraError] = []
        fleet.generate(
            [PROMPT, PROMPT[:9], PROMPT[:5]], PARAMS, on_error=lambda _, error: errors.append(error)
        )
        assert errors and all(place in str(error) for error in errors)
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
    assert run_command(lora_run_command, "lora-run", arguments) == 1
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "notice:" in one]
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
    assert done.exit_code != 0
    assert "lora fleet: notice: weights changed: board 1" in done.stderr


def test_another_callback_is_refused(folders: Folders) -> None:
    with pytest.raises(RequestError, match="on_notice"):
        Engine(folders.model, on_notice=3)  # type: ignore[arg-type]


def test_a_chat_whose_last_answer_was_wrong_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_checkpoint(WHICH, tmp_path / "model")
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    (model / "chat_template.jinja").write_text(template)
    places: list[str] = []

    class Flipped(Conversation):
        def run(self) -> None:
            sum_nothing(self._engine)
            self._engine.confirm()
            places.append(flip(self._engine))
            super().run()

    monkeypatch.setattr("lora_sdk.cli.conversation.Conversation", Flipped)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ab\n")))
    assert run_command(chat, "lora chat", ["--model", str(model), "--boards", "2", "-n", "3"]) == 1
    notice, error = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("lora chat")
    ]
    assert notice.startswith("lora chat: notice: weights changed") and places[0] in notice
    assert "1 request that has ended may hold wrong tokens" in error and places[0] in error


def test_lora_fleet_ends_with_an_error_if_results_may_be_wrong(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description, prompts = tmp_path / "fleet.yaml", tmp_path / "prompts.jsonl"
    description.write_text(f"model: {folders.model}\nclusters:\n  - {{boards: 2}}\n")
    prompts.write_text('{"prompt": "ab", "max_tokens": 4}\n')
    opened_fleet = Fleet.open

    def flipped(path: Path, **options: Any) -> Fleet:
        fleet = opened_fleet(path, **options)
        sum_nothing(fleet.places[0].engine)
        flip(fleet.places[0].engine)
        return fleet

    monkeypatch.setattr(Fleet, "open", flipped)
    with pytest.raises(
        TransportError, match=r"cluster 0: .*1 request that has ended may hold wrong"
    ):
        CliRunner().invoke(fleet_command, [str(description), str(prompts)], catch_exceptions=False)


def test_a_fleet_confirms_what_a_worker_has_given_away(folders: Folders) -> None:
    worker, cluster = (Engine(folders.model, boards=2) for _ in range(2))
    with Fleet([worker], [cluster]) as fleet:
        sum_nothing(worker)
        fleet.generate([PROMPT[: 9 + i] for i in range(12)], PARAMS)
        assert fleet.use.moved
        fleet.confirm()
        place = flip(worker)
        sequence = worker.open_sequence()
        worker.step(worker.rows(sequence, [5, 6]))
        worker.release(sequence)
        with pytest.raises(TransportError, match=r"worker 0: .*moved away may hold") as caught:
            fleet.confirm()
        assert place in str(caught.value)
        fleet.confirm()  # each notice once


def test_a_text_is_not_scored_by_damaged_weights(folders: Folders) -> None:
    text = b"import os"
    with opened(folders, 2) as engine:
        want = evaluate_text(engine, text).bits
        sum_nothing(engine)
        place = flip(engine)
        with pytest.raises(TransportError, match="score the text again") as caught:
            evaluate_text(engine, text)
        assert place in str(caught.value)
        assert evaluate_text(engine, text).bits == want


def test_an_engine_that_is_closed_tells_what_nobody_asked_for(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[WeightNotice] = []
    with opened(folders, 2, on_notice=told.append) as engine:
        sum_nothing(engine)
        engine.generate(PROMPT, PARAMS)
        place = flip(engine)
        engine.generate(PROMPT, PARAMS)
    (notice,) = told
    assert place in notice.cause and notice.ended == 2
    assert "may hold wrong tokens" in caplog.text


def test_a_program_that_has_failed_does_not_wait_for_sums(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(KeyError), opened(folders, 2) as engine:
        sum_nothing(engine)
        engine.generate(PROMPT, PARAMS)
        before = engine.scrubbed
        flip(engine)
        raise KeyError
    assert engine.scrubbed == before and not caplog.text


def test_boards_that_cannot_sum_at_the_end_are_told(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folders, 2) as engine:
        sum_nothing(engine)
        engine.generate(PROMPT, PARAMS)
        inject(engine, 1, abi.FAULT_BOARD_LOST, until_reset=False)
    assert "were not summed after the last step" in caplog.text and engine.cluster.closed
