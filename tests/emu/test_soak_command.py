"""A soak of mixed requests with faults: what it counts, and what it must find."""

from __future__ import annotations

import pytest

from lora_host.errors import ModelError
from lora_lab.torture import soak as soaks
from lora_lab.torture.folders import write_folders
from lora_lab.torture.kinds import BY_NAME
from lora_lab.torture.rig import Rig
from lora_lab.torture.soak import REPEATED, Soak, soak_kinds
from lora_lab.torture.soak_load import KINDS, Asked, all_requests
from lora_lab.torture.soak_report import Held, SoakReport, Took


def test_a_value_that_is_not_finite_has_weights_summed_that_were_right_before_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A soak has found it: all were summed after the last text, then one changed, and the first
    step with it was taken for one that had not run."""
    rig = Rig(write_folders(tmp_path_factory.mktemp("soak")))
    with rig.opened(2) as engine:
        prompt = [5, 6, 7]
        want = engine.generate(prompt, max_tokens=4, ignore_eos=True).token_ids
        plan = engine.plan.boards[1]
        bank, offset = next(iter(plan.matrices.values())).address(0)
        engine.cluster.write(plan.board, bank, offset, b"\x00\x7e" * 256)  # FP16 NaN
        found = engine.generate(prompt, max_tokens=4, ignore_eos=True)
        assert found.token_ids == want
        assert "weights changed: board 1" in engine.recoveries[-1].cause


def test_quarters_count_what_ended_in_them() -> None:
    report = SoakReport(seconds=800.0, seed=1, boards=2)
    report.took = [Took("greedy", 100.0 + 200 * i, 0.1 * (i + 1)) for i in range(4)]
    report.held = [Held(100.0 + 200 * i, 100_000 + i, 10 + i, 5) for i in range(4)]
    quarters = report.quarters()
    assert [one["requests"] for one in quarters] == [1, 1, 1, 1]
    assert [one["median_ms"] for one in quarters] == [100.0, 200.0, 300.0, 400.0]
    assert [one["resident_kib"] for one in quarters] == [100_000, 100_001, 100_002, 100_003]
    report.judge_memory()
    assert report.failed == 0 and "| requests | 1 | 1 | 1 | 1 |" in report.markdown()


def test_memory_that_grows_is_a_problem() -> None:
    report = SoakReport(seconds=800.0, seed=1, boards=2)
    report.held = [Held(100.0 + 200 * i, 100_000 + 20_000 * i, 10, 5) for i in range(4)]
    report.judge_memory()
    assert report.failed == 1 and "resident memory 160000 KiB" in report.problems[0]


def test_faults_of_a_soak_are_those_that_cost_no_board() -> None:
    names = {kind.name for kind in soak_kinds(2)}
    assert {"frame lost", "MPU stuck", "weights of a board ruined"} <= names
    assert not names & {*REPEATED, "transfer lost", "links configured wrongly"}
    assert "frame lost" not in {kind.name for kind in soak_kinds(1)}
    assert names <= set(BY_NAME)


@pytest.mark.slow
def test_a_soak_ends_well_and_finds_wrong_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Soak(8.0, seed=4, every=0.7).run()
    assert report.problems == [] and report.faults.total() > 2
    assert {one.kind for one in report.took} <= set(KINDS) and len(report.took) > 20
    asked, real = [], soaks.ask

    def ask(engine: object, one: Asked, url: str) -> str:
        asked.append(one)
        if len(asked) == len(all_requests()) + 3:
            return "another"
        if len(asked) == len(all_requests()) + 4:
            raise ModelError("made up")
        return real(engine, one, url)  # type: ignore[arg-type]

    monkeypatch.setattr(soaks, "ask", ask)
    found = Soak(4.0, seed=4, every=0).run()
    assert found.failed == 2 and found.faults.total() == 0
    assert any("'another'" in problem for problem in found.problems)
    assert any("made up" in problem for problem in found.problems)
