"""Failures that outlast a step cost a pause: boards are recovered and every text is the undisturbed
one. Real faults of emulated boards, injected before chosen steps."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import (
    LoraError,
    PlacementError,
    RequestError,
    RowsLostError,
    TransportError,
)
from lora_host.vrtd_mock.process import MockServer
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.step.step import Row
from tests.board_losses import lose_boards, undisturbed
from tests.processes import environment
from tests.recovery_rig import (
    FAULTS,
    PROPOSERS,
    Disturbed,
    Folders,
    inject,
    mixed,
    opened,
    speculation,
    texts,
    write_folders,
)

COMMON = ("link down", "VFU stuck", "done lost")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("recovery"))


@pytest.mark.parametrize(
    "fault",
    [pytest.param(name, marks=() if name in COMMON else pytest.mark.slow) for name in FAULTS],
)
def test_a_fault_that_a_reset_heals_changes_no_text(folders: Folders, fault: str) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 4) as engine:
        for step in (0, 9):
            events = {step: lambda: inject(engine, 1, *FAULTS[fault])}
            with Disturbed(engine, events):
                assert texts(engine, mixed(1)) == want
        assert len(engine.recoveries) == 2 and engine.cluster.size == 4
        assert all(one.weight_bytes == 0 and not one.left_out for one in engine.recoveries)


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_speculation_goes_on(folders: Folders, proposer: str) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 2, speculation=speculation(folders, proposer)) as engine:
        events = {step: lambda: inject(engine, 1, abi.FAULT_DONE_LOST) for step in (4, 9)}
        with Disturbed(engine, events):
            assert texts(engine, mixed(1)) == want
        assert len(engine.recoveries) == 2
        assert engine.speculation is not None and engine.speculation.verifications


@pytest.mark.parametrize("proposer", ["draft", "longspec"])
def test_a_draft_models_board_recovers_or_is_done_without(folders: Folders, proposer: str) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 2, speculation=speculation(folders, proposer)) as engine:
        board = engine._speculation.proposer._board  # type: ignore[union-attr]
        emulated = board.opened.cluster.emulated

        def fail() -> None:
            emulated.fault(0, abi.FAULT_UNIT_STUCK | abi.FAULT_UNTIL_RESET, abi.UNIT_VFU)

        with Disturbed(engine, {5: fail}):
            assert texts(engine, mixed(1)) == want
        recovered = board.stepper.recover.__self__
        assert recovered.count == 1
        with Disturbed(engine, {5: lambda: emulated.fault(0, abi.FAULT_BOARD_LOST)}):
            assert texts(engine, mixed(1)) == want
        assert recovered.ended is not None and engine.lost is None
        assert texts(engine, mixed(1)) == want  # without drafts


def test_the_boards_own_loop_recovers_in_the_middle_of_a_text(folders: Folders) -> None:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    with opened(folders, 2) as engine:
        want = engine.generate([5, 6, 7], params)
        tokens: list[object] = []

        def fail(delta: object) -> None:
            tokens.append(delta)
            if len(tokens) in (1, 11, 12, 29):
                inject(engine, 0, abi.FAULT_FIRMWARE_DEAD)

        found = engine.generate([5, 6, 7], params, on_delta=fail)
        assert isinstance(found, Result) and isinstance(want, Result)
        assert found.token_ids == want.token_ids and len(engine.recoveries) == 4


def test_sequences_of_the_token_api_keep_what_they_have_committed(folders: Folders) -> None:
    """A fork too. Rows that were open are lost; rows that follow none of them run."""

    def run(engine: Engine, fail: bool) -> list[bytes]:
        first = engine.open_sequence("b")
        engine.prefill(first, [(3 * i) % 200 + 3 for i in range(70)])
        second = engine.fork(first)
        engine.prefill(second, [9, 10, 11])
        tree = engine.rows(second, [20, 21, 22], [-1, 0, 0])
        engine.step(tree)
        more = engine.rows(first, [30, 31], logits=[1])
        if fail:
            inject(engine, 1, abi.FAULT_DONE_LOST)
        found = [engine.step(more).logits]
        if fail:
            with pytest.raises(RowsLostError, match=f"sequence {second} were lost"):
                engine.rows(second, [23], after=tree[2].slot)
            with pytest.raises(RowsLostError):
                engine.commit(second, [tree[0].slot])
            assert engine.length(second) == 73
            tree = engine.rows(second, [20, 21, 22], [-1, 0, 0])
            engine.step(tree)
        under = engine.rows(second, [23], after=tree[2].slot)
        found.append(engine.step(under).logits)
        engine.commit(second, [tree[0].slot, tree[2].slot, under[0].slot])
        engine.drop(first)
        found += [engine.prefill(first, [40]), engine.prefill(second, [41])]
        engine.release(first)
        engine.release(second)
        return [np.asarray(one).tobytes() for one in found]

    with opened(folders, 2) as engine:
        want = run(engine, fail=False)
        assert run(engine, fail=True) == want and len(engine.recoveries) == 1
        assert engine._cache.free_sequences == 5


def test_only_damaged_weights_are_loaded_again(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 2) as engine:
        plan = engine.plan.boards[1]
        bank, offset = plan.matrices["layer.1.o"].address(0)

        def damage() -> None:
            (byte,) = engine.cluster.read(plan.board, bank, offset + 130, 1)
            engine.cluster.write(plan.board, bank, offset + 130, bytes([byte ^ 4]))
            inject(engine, 0, abi.FAULT_DONE_LOST)

        with (
            caplog.at_level(logging.WARNING),
            Disturbed(engine, {2: damage}),
            pytest.raises(LoraError, match="weights were loaded again; the request has tokens"),
        ):
            texts(engine, mixed(1))
        assert texts(engine, mixed(1)) == want
        engine.check_weights()
        (record,) = engine.recoveries
        assert 0 < record.weight_bytes < record.total_bytes / 4
        assert record.rows > 0 and record.seconds > 0
        assert "hangs: neither done nor failed" in caplog.text and "positions lost" in caplog.text


def test_a_fault_that_stays_leaves_its_board_out(folders: Folders) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 4) as engine:
        stuck = (abi.FAULT_UNIT_STUCK, abi.UNIT_VFU)
        with Disturbed(engine, {3: lambda: inject(engine, 2, *stuck, until_reset=False)}):
            assert texts(engine, mixed(1)) == want
        *_, record = engine.recoveries
        assert len(engine.recoveries) == 3
        assert record.left_out == ("board 2 (emu:u280)",) and engine.cluster.size == 2
        assert {entry.serial for entry in engine.cluster.entries} == {1, 2}


def test_faults_during_a_recovery_leave_no_board_out(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each board fails twice, one after the other; then one that was well does not come back from
    the other's reset. The log names every failure."""
    want = undisturbed(folders, 1)
    with opened(folders, 2) as engine:
        runner, cluster = engine._loaded.runner, engine.cluster
        restore, program = runner.restore, cluster._program
        turns = iter((1, 0, 1))

        def disturbed_restore(repaired: Counter[int]) -> None:
            for board in turns:
                inject(engine, board, abi.FAULT_DONE_LOST)
                break
            restore(repaired)

        def disturbed_program(_: int) -> None:
            monkeypatch.setattr(cluster, "_program", program)
            inject(engine, 1, abi.FAULT_BOARD_LOST, until_reset=False)
            try:
                program(1)
            finally:
                inject(engine, 1, abi.FAULT_NONE)

        with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
            patch.setattr(runner, "restore", disturbed_restore)
            with Disturbed(engine, {3: lambda: inject(engine, 0, abi.FAULT_DONE_LOST)}):
                assert texts(engine, mixed(1)) == want
        monkeypatch.setattr(cluster, "_program", disturbed_program)
        with Disturbed(engine, {3: lambda: inject(engine, 0, abi.FAULT_DONE_LOST)}):
            assert texts(engine, mixed(1)) == want
        assert not any(one.left_out for one in engine.recoveries)
        causes = [one.cause.split("; then ") for one in engine.recoveries]
        assert [[cause[:7] for cause in one] for one in causes] == [
            ["board 0", "board 1", "board 0", "board 1"],
            ["board 0", "board 1"],
        ]
        assert causes[0][3] in caplog.text


def test_a_cable_that_stays_down_leaves_all_boards_in(folders: Folders) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 4) as engine:
        down = (abi.FAULT_LINK_DOWN, 1)
        with Disturbed(engine, {3: lambda: inject(engine, 1, *down, until_reset=False)}):
            assert texts(engine, mixed(1)) == want
        (record,) = engine.recoveries
        assert "the cable from board 1" in record.left_out[0] and engine.cluster.size == 4
        assert not engine.plan.route.ring


def test_spares_come_before_fewer_boards(folders: Folders) -> None:
    want = undisturbed(folders, 1)
    lose = abi.FAULT_BOARD_LOST
    with opened(folders, 2, spares=["emu:u280"]) as engine:
        for size, step in ((2, 3), (1, 4)):
            with Disturbed(engine, {step: lambda: inject(engine, 0, lose, until_reset=False)}):
                assert texts(engine, mixed(1)) == want
            assert engine.cluster.size == size
        inject(engine, 0, lose, until_reset=False)
        with pytest.raises(PlacementError, match=r"board 1 \(.*0 that remain"):
            engine.generate([1, 2], SamplingParams(max_tokens=2))
        with pytest.raises(PlacementError, match=r"board 1 \(.*0 that remain"):
            engine.generate([1, 2], SamplingParams(max_tokens=2))
        assert engine.lost is not None


def test_a_model_that_does_not_fit_on_the_rest_is_one_error(
    folders: Folders, tmp_path: Path
) -> None:
    """With one weight bank, as many adapter slots as two boards hold and one does not."""
    overlay = tmp_path / "overlay"
    shutil.copytree(ROOT / "overlays" / "lora_f_u280", overlay)
    manifest = (overlay / "manifest.yaml").read_text()
    (overlay / "manifest.yaml").write_text(
        manifest.replace("first: 0, count: 32", "first: 0, count: 1")
    )
    slots = {"max_adapters": 41, "max_adapter_rank": 1024}
    with Engine(folders.model, boards=2, overlay=str(overlay), **slots) as engine:
        inject(engine, 1, abi.FAULT_BOARD_LOST, until_reset=False)
        with pytest.raises(PlacementError, match=r"board 1 .* does not fit on the 1 that remain"):
            engine.generate([1, 2], SamplingParams(max_tokens=2))


def test_a_spare_must_be_like_the_others(folders: Folders) -> None:
    with pytest.raises(RequestError, match=r"spare emu:v80: .*expected an emulated u280"):
        Engine(folders.model, spares=["emu:v80"])
    with pytest.raises(RequestError, match=r"spare xrt:0: .*expected an emulated u280"):
        Engine(folders.model, spares=["xrt:0"])


def test_a_fault_while_an_adapter_is_loaded(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        params = SamplingParams(max_tokens=8, ignore_eos=True, adapter="b")
        want = engine.generate([7, 8, 9], params)
    with opened(folders, 2) as engine:
        inject(engine, 1, abi.FAULT_BOARD_LOST, until_reset=False)
        found = engine.generate([7, 8, 9], params)
        assert isinstance(found, Result) and isinstance(want, Result)
        assert found.token_ids == want.token_ids and engine.cluster.size == 1


def test_a_recovery_that_was_interrupted_is_done_at_the_next_request(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = undisturbed(folders, 1)
    with opened(folders, 2) as engine:
        runner = engine._loaded.runner

        def interrupt(_: object) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(runner, "restore", interrupt)
            inject(engine, 1, abi.FAULT_DONE_LOST)
            with pytest.raises(KeyboardInterrupt):
                texts(engine, mixed(1))
        assert texts(engine, mixed(1)) == want and len(engine.recoveries) == 1


def test_without_recovery_the_request_ends(folders: Folders) -> None:
    with opened(folders, 2, recovery="off") as engine:
        inject(engine, 1, abi.FAULT_DONE_LOST)
        with pytest.raises(TransportError, match=r"board 1 .* hangs"):
            engine.generate([1, 2], SamplingParams(max_tokens=2))
        assert not engine.recoveries


def test_a_refused_step_is_no_reason_for_a_reset(folders: Folders) -> None:
    with opened(folders, 1) as engine, pytest.raises(LoraError):
        sequence = engine.open_sequence()
        rows = engine.rows(sequence, [5])
        engine._stepper.run([Row(sequence, 7, 5, rows[0].slot)])
    assert not engine.recoveries


@pytest.mark.parametrize("boards", [2, 4])
def test_boards_that_are_lost_at_random_change_no_text(folders: Folders, boards: int) -> None:
    assert sum(lose_boards(folders, boards, seed) for seed in range(1, 3)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("boards", [2, 4])
def test_many_boards_that_are_lost_change_no_text(folders: Folders, boards: int) -> None:
    assert sum(lose_boards(folders, boards, 100 + seed) for seed in range(40)) >= 30


@pytest.mark.slow
def test_a_v80_that_hangs_is_recovered_through_its_daemon(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its memory is lost with the reset, so all weights are loaded again."""
    want = undisturbed(folders, 1)
    monkeypatch.setenv("LORA_LOCK_FOLDER", str(tmp_path))
    with MockServer(2, ["--speed", "10"]) as server:
        monkeypatch.setenv("LORA_VRTD_SOCKET", str(server.socket))

        def fail() -> None:
            server.command(f"fault 1 {abi.FAULT_DONE_LOST | abi.FAULT_UNTIL_RESET} 0 0 0")

        with opened(folders, None, devices=server.uris) as engine, Disturbed(engine, {3: fail}):
            assert texts(engine, mixed(1)) == want
            (record,) = engine.recoveries
            assert record.weight_bytes == record.total_bytes and not record.left_out


def test_the_error_of_a_lost_board_names_board_and_unit(folders: Folders) -> None:
    with opened(folders, 1) as engine:
        inject(engine, 0, abi.FAULT_BOARD_LOST, until_reset=False)
        with pytest.raises(PlacementError, match=r"board 0 .*unit: none") as lost:
            engine.generate([5, 6, 7], SamplingParams(max_tokens=2))
        failure = lost.value.failure
        assert failure is not None and (failure.board, failure.unit_name) == (0, "none")
        with pytest.raises(RequestError, match="the engine is closed"):
            engine.load_adapter("c", folders.adapters[0])
    with Engine(folders.model, boards=2, recovery="off") as engine:
        inject(engine, 1, abi.FAULT_UNIT_STUCK, abi.UNIT_VFU, until_reset=False)
        with pytest.raises(LoraError, match=r"board 1 .*unit VFU") as stuck:
            engine.generate([5, 6, 7], SamplingParams(max_tokens=2))
        failure = stuck.value.failure
        assert failure is not None and (failure.board, failure.unit_name) == (1, "VFU")


def test_a_closed_engine_takes_no_adapter(folders: Folders) -> None:
    with opened(folders, 1) as engine:
        pass
    with pytest.raises(RequestError, match="the engine is closed; open another one"):
        engine.load_adapter("c", folders.adapters[0])


@pytest.mark.slow
def test_recoveries_leave_nothing_behind() -> None:
    """What fills once does so within the first hundred."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.recovery_memory", "100", "300"],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=900,
    ).stdout
    early, late = (json.loads(line) for line in said.splitlines())
    assert late["descriptors"] == early["descriptors"] and late["threads"] == early["threads"]
    # Less than one object in three recoveries, and 43 bytes of malloc each; pages are the
    # allocators' own, which keep what a busy moment took.
    assert late["blocks"] - early["blocks"] < 63
    assert late["allocated"] - early["allocated"] < 8192
    assert late["resident"] - early["resident"] < 256
