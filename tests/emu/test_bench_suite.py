"""`lora lab bench --suite`: its table is complete, judged by its own limits, and honest where a
part is not measured."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lora_host import native
from lora_host.errors import RequestError
from lora_lab.bench import suite, suite_rows
from lora_lab.bench.machine import describe_machine, free_memory
from lora_lab.bench.many_rows import open_many, prompt_rate, together_rate
from lora_lab.bench.peak import peak
from lora_lab.bench.products import row_products
from lora_lab.bench.suite import markdown, run_suite
from lora_lab.bench.suite_rows import MEASUREMENTS, Figures, Measurement, Row, Setting
from lora_lab.bench.synthetic import SyntheticModels
from lora_lab.cli.bench import bench
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from tests.variants import variant, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama"), tmp_path_factory.mktemp("m") / "llama")


def test_no_row_is_named_twice() -> None:
    keys = [row.key for one in MEASUREMENTS for row in one.rows]
    assert len(keys) == len(set(keys)) == 14
    for one in MEASUREMENTS:
        for row in one.rows:
            assert row.goal < row.floor if row.at_most else row.floor < row.goal


def test_a_suite_measures_the_demo_size(tmp_path: Path) -> None:
    """The real measurement, one round of it."""
    answer = CliRunner().invoke(
        bench, ["--suite", "--only", "demo-size", "--rounds", "1", "--json"], catch_exceptions=False
    )
    report = json.loads(answer.stdout)
    (row,) = report["rows"]
    assert row["key"] == "demo-4" and 0.1 < row["value"] < 10
    assert row["spread"] == [row["value"]] * 2
    assert row["floor_holds"] is (row["value"] >= row["floor"])
    assert report["machine"]["cores"] >= report["threads"] >= 1
    assert "demo size, 4 boards" in markdown(report)


ROWS = (Row("fast", "a rate", 0.5, 0.8), Row("cost", "a cost", 1.4, 1.1, at_most=True))


def suite_of(monkeypatch: pytest.MonkeyPatch, measure: Any) -> dict[str, Any]:
    monkeypatch.setattr(suite, "MEASUREMENTS", (Measurement("some", ROWS, measure),))
    monkeypatch.setattr(suite, "NAMES", ("some",))
    return run_suite(["some"], rounds=3)


@pytest.mark.parametrize(
    ("fast", "cost", "said"),
    [
        (0.9, 1.0, ("goal reached", "goal reached")),
        (0.6, 1.2, ("floor holds", "floor holds")),
        (0.4, 1.5, ("below the floor", "above the limit")),
    ],
)
def test_figures_are_judged_by_floor_and_goal(
    monkeypatch: pytest.MonkeyPatch, fast: float, cost: float, said: tuple[str, str]
) -> None:
    def measure(setting: Setting) -> Figures:
        setting.note("requests", 4, 7.0)
        return {"fast": [0.0, fast, 9.0], "cost": [cost] * setting.rounds}

    report = suite_of(monkeypatch, measure)
    assert [row["value"] for row in report["rows"]] == [fast, cost]
    lines = markdown(report).splitlines()
    for row, words in zip(ROWS, said, strict=True):
        (line,) = [line for line in lines if line.startswith(f"| {row.what} ")]
        assert line.endswith(f"| {words} |")
    assert "Tokens/s by requests: 4: 7.0." in lines


def test_other_errors_are_no_lack_of_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(setting: Setting) -> Figures:
        raise RequestError("a mistake")

    with pytest.raises(RequestError, match="a mistake"):
        suite_of(monkeypatch, measure)
    assert not list(Path(tempfile.gettempdir()).glob("lora-bench-*"))


def test_what_lacks_memory_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(setting: Setting) -> Figures:
        setting.models.need(memory=1 << 60, disk=0)
        raise AssertionError

    report = suite_of(monkeypatch, measure)
    assert all(row["value"] is None and "of memory" in row["why"] for row in report["rows"])
    assert "not measured: needs" in markdown(report)
    with pytest.raises(RequestError, match="of disk"):
        SyntheticModels(tmp_path).need(memory=0, disk=1 << 60)
    assert 0 < free_memory() <= describe_machine()["memory_bytes"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "--boards", "2"], "--boards does not go with --suite"),
        (["--only", "decode"], "--only needs --suite"),
        (["--suite", "--only", "decoding"], "measurement 'decoding' is not known"),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[str], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        CliRunner().invoke(bench, arguments, catch_exceptions=False)


def test_peaks_are_rates_of_the_fastest_loop() -> None:
    lib, ffi = native.lib(), native.ffi()
    kind = ffi.new("enum lora_bench_arithmetic *")
    plain: dict[int, float] = {}
    for index in range(2):
        assert lib.lora_bench_loop(index, kind) != ffi.NULL
        plain[kind[0]] = lib.lora_bench_products(1, 200, index)
    for arithmetic, number in (("fp32", lib.LORA_BENCH_FP32), ("int8", lib.LORA_BENCH_INT8)):
        best = peak(arithmetic, 1)  # type: ignore[arg-type]
        assert 1e8 < plain[number] < best.products_per_second < 1e14
        assert best.loop != "plain" or "avx2" not in describe_machine()["instruction_sets"]  # type: ignore[operator]
    assert lib.lora_bench_products(0, 1, 0) == lib.lora_bench_products(1, 0, 0) == 0
    assert lib.lora_bench_products(1, 1, 99) == 0 == lib.lora_bench_products(65, 1, 0)
    assert lib.lora_bench_loop(99, kind) == ffi.NULL


KEPT = (".q", ".k", ".v")  # of the last layer, for all rows


def test_products_of_a_row_are_the_matrices(folder: Path) -> None:
    config = load_config(folder)
    work = row_products(config)
    checkpoint = Checkpoint.open(folder)
    names = [n for n in checkpoint.names if n == "lm_head" or n.startswith("layer.")]
    sizes = {name: checkpoint.shape(name) for name in names}
    matrices = {name: shape[0] * shape[1] for name, shape in sizes.items() if len(shape) == 2}
    last = f"layer.{config.layers - 1}."
    head = {"lm_head"} | {n for n in matrices if n.startswith(last) and n[-2:] not in KEPT}
    assert len(head) > 3
    assert work.head == sum(matrices.pop(name) for name in head)
    assert work.layers == sum(matrices.values())


def test_rates_of_many_rows(folder: Path) -> None:
    with open_many(folder, 1, 1, 64) as engine:
        assert all(prompt_rate(engine, 8) > 0 for _ in range(2))  # each releases its sequence
    with open_many(folder, 4, 1, 256) as engine:
        together_rate(engine, 4, 8)  # warms up
        assert together_rate(engine, 4, 200) > 0


def test_a_plot_needs_a_curve(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from lora_lab.bench.plots import plot_curves

    path = tmp_path / "rates.svg"
    with pytest.raises(RequestError, match="no curve"):
        plot_curves({"curves": {}}, path)
    plot_curves({"curves": {"requests": {"1": 2.0, "4": 6.0}}}, path)
    assert "measured" in path.read_text()


def test_all_measurements_are_listed() -> None:
    assert tuple(one.name for one in MEASUREMENTS) == suite_rows.NAMES
    text = CliRunner().invoke(bench, ["--help"]).output
    assert all(name in text for name in suite_rows.NAMES)
