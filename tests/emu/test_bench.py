"""`lora lab bench` at demo size: its figures belong together, and memory is really read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_host import native
from lora_host.errors import RequestError
from lora_lab.bench import rounds
from lora_lab.bench.measure import compare, token_bytes
from lora_lab.bench.memory import ReadBuffer, WarmPages, bound_threads, copy_bandwidth
from lora_lab.bench.page_reporting import reports_free_pages
from lora_lab.bench.report import FIGURES, summarize
from lora_lab.bench.rounds import Round, Workload
from lora_lab.cli.bench import bench
from lora_sdk.engine.engine import Engine
from lora_sdk.sampling import SamplingParams
from tests.variants import variant, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama"), tmp_path_factory.mktemp("m") / "llama")


def test_the_command_prints_the_keys_that_others_read(folder: Path) -> None:
    short = ["--model", str(folder), "--boards", "2", "--prompt", "8", "--tokens", "4"]
    answer = CliRunner().invoke(bench, [*short, "--rounds", "2", "--json"], catch_exceptions=False)
    report = json.loads(answer.stdout)
    assert report["label"] == "measured" and len(report["rounds"]) == 2
    for name in (
        "decode_tokens_per_second",
        "prefill_tokens_per_second",
        "read_bandwidth_bytes_per_second",
        "share_of_read_bandwidth",
        *FIGURES,
    ):
        low, high = report["spread"][name]
        assert low <= report[name] <= high, name
        assert low > 0 or name == "host_seconds_per_step", name  # a difference of two clocks
    for one in report["rounds"]:
        share = (
            report["bytes_per_token"]
            * one["decode_tokens_per_second"]
            / one["read_bandwidth_bytes_per_second"]
        )
        assert share == pytest.approx(one["share_of_read_bandwidth"])
    text = CliRunner().invoke(bench, [*short, "--rounds", "1"]).output
    assert "measured: median of 1 round (" in text and "tokens/s" in text


def test_a_pipe_is_told_how_far_it_is(folder: Path) -> None:
    short = ["--model", str(folder), "--prompt", "2", "--tokens", "2", "--rounds", "1"]
    told = CliRunner().invoke(bench, short)
    assert told.stderr.splitlines()[:2] == ["rounds: 0 of 1", "rounds: 1 of 1"]
    assert "rounds:" not in told.stdout


def test_workloads_take_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note(work: Workload, buffer: ReadBuffer, count: int) -> Round:
        seen.append(work.boards)
        assert buffer.bytes >= min(count, 1 << 16)
        return Round(*[float(len(seen))] * len(FIGURES), reader="plain")

    monkeypatch.setattr("lora_lab.bench.measure.run_round", note)
    works = [Workload(folder, boards, 1, 8, 4) for boards in (1, 4)]
    one, four = compare(works, 3)
    assert seen == [1, 4, 1, 4, 1, 4]
    assert one["step_seconds"] == 3 and one["spread"]["step_seconds"] == [1, 5]
    assert four["boards"] == 4 and [r["step_seconds"] for r in four["rounds"]] == [2, 4, 6]


def test_medians_and_spread_of_rounds() -> None:
    rounds = [Round(*[float(v)] * len(FIGURES), reader="plain") for v in (5, 1, 9)]
    report = summarize(rounds, model="m")
    assert report["decode_tokens_per_second"] == 5
    assert report["spread"]["decode_tokens_per_second"] == [1, 9]


def test_time_of_the_units_is_part_of_the_wall_clock(folder: Path) -> None:
    """And nothing is counted, nor computed differently, without the profiler."""
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with Engine(folder, boards=2) as plain:
        expected = plain.generate([5, 6, 7], params).token_ids  # type: ignore[union-attr]
        assert plain.cluster.emulated is not None
        emulated = plain.cluster.emulated
        assert emulated.unit_seconds.total == 0
        emulated.profile(True)
        began = time.perf_counter()
        found = plain.generate([5, 6, 7], params).token_ids  # type: ignore[union-attr]
        passed, units = time.perf_counter() - began, emulated.unit_seconds
        assert min(units.kernels, units.moves, units.links) > 0
        assert units.total < passed
        assert found == expected
        emulated.profile(False)
        plain.generate([5, 6, 7], params)
        assert emulated.unit_seconds == units


def test_every_reader_reads_all_of_the_buffer() -> None:
    """Twice the bytes take longer than half of them, with every variant that the machine has."""
    lib = native.lib()
    with ReadBuffer(64 << 20) as large:
        rates = large.bandwidth(1)
        assert "plain" in rates and all(1e8 < rate < 1e12 for rate in rates.values())
        for index in range(len(rates)):
            took = [
                min(lib.lora_bench_read(large._memory, size << 20, 1, 1, index) for _ in range(5))
                for size in (2, 64)
            ]
            assert took[1] > 8 * took[0], index
        assert lib.lora_bench_read(large._memory, 1 << 20, 0, 1, 0) == 0
        assert lib.lora_bench_read(large._memory, 1 << 20, 1, 1, 99) == 0


def test_copies_are_timed_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(8 << 20))
    assert 1e7 < copy_bandwidth([path, path], 2) < 1e12


def test_pages_are_held_until_loading_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of the whole model, given back once, before the first word's time is taken."""
    said: list[str] = []

    class Noted(WarmPages):
        def __init__(self, bytes: int) -> None:
            said.append("held" if bytes > 6 << 20 else "too few")
            super().__init__(bytes)

        def close(self) -> None:
            said.append("given back" if self._buffer is not None else "again")
            super().close()

    monkeypatch.setattr("lora_lab.bench.memory.WarmPages", Noted)
    monkeypatch.setattr("lora_lab.bench.rounds.WarmPages", Noted)
    clock = rounds._Loading(lambda: said.append(f"began {clock.began}"))
    clock(0, 5)
    clock(5, 5)
    assert said == ["began 0.0"] and clock.ended >= clock.began > 0 and clock.bytes == 5
    said.clear()
    with ReadBuffer(1 << 20) as buffer:
        rounds.run_round(rounds.Workload(None, 1, 1, 4, 2), buffer, 1 << 20)
    loading = ["held", "given back", "again"]
    assert said == ["held", "given back", *loading, "held", "given back"]


def test_many_pages_are_released_after_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    pages = WarmPages(1 << 20)
    monkeypatch.setattr(
        "lora_lab.bench.memory.wait_for_report", lambda: held.append(pages._buffer is not None)
    )
    pages.release()
    assert held == [] and pages._buffer is None  # too few to be caught by one
    monkeypatch.setattr("lora_lab.bench.memory.MIN_SETTLED", 1 << 20)
    pages = WarmPages(1 << 20)
    pages.release()
    assert held == [True] and pages._buffer is None
    pages.release()
    WarmPages(1 << 20).close()
    assert held == [True]


@pytest.mark.parametrize(
    ("features", "reported"), [("0110010", True), ("0110000", False), ("011", False), (None, False)]
)
def test_a_virtual_machine_that_reports_pages_is_known(
    tmp_path: Path, features: str | None, reported: bool
) -> None:
    if features is not None:
        (tmp_path / "virtio3").mkdir()
        (tmp_path / "virtio3/features").write_text(features + "\n")
    assert reports_free_pages(tmp_path) is reported


def test_threads_are_cores_of_the_process_and_come_back() -> None:
    cores = os.sched_getaffinity(0)
    with bound_threads(1) as count:
        assert count == 1 == len(os.sched_getaffinity(0))
    assert os.sched_getaffinity(0) == cores
    with pytest.raises(RequestError, match="threads; expected"), bound_threads(len(cores) + 1):
        pass


def test_bytes_of_a_token_are_the_weight_blocks(folder: Path) -> None:
    """Boards share the work: padding apart, as much is read on four as on one."""
    one, four = (token_bytes(Workload(folder, boards, 1, 8, 4)) for boards in (1, 4))
    assert 0 < one <= four
