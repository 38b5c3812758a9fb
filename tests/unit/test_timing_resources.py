"""Resources and exploration (V.D)."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lora_host.errors import RequestError
from lora_host.overlay import load_overlay
from lora_lab.timing.designs import ArrayDesign, design_names, load_design
from lora_lab.timing.dse import SHIPPED, Candidate, Exploration, manifest, paper_values
from lora_lab.timing.facts import board_facts
from lora_lab.timing.layout import Layout
from lora_lab.timing.model import run_time
from lora_lab.timing.resources import (
    LIMITS,
    resources,
    stream_buffer_bram,
    vfu_dsp,
    weight_buffer_bram,
)
from lora_lab.timing.target import target_of
from lora_lab.timing.validate import errors, validate
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.overlay import artefacts
from lora_sdk.model.shapes import shape_config

SMALL = {
    "precision": ("fp16",), "array_rows": (16, 32, 64), "array_columns": (16, 32, 64),
    "tile": (16, 32), "lanes": (4, 8, 16), "kv_uram": (0, 864), "prefetch_bytes": (0,),
    "ports": (16, 32),
}  # fmt: skip


def test_equations_5_to_7_by_hand() -> None:
    assert weight_buffer_bram(32, 16, 32) == 64  # 32 partitions, each one block, twice
    assert weight_buffer_bram(64, 16, 2) == 1 * 2 * 2 * 2
    assert weight_buffer_bram(32, 32, 32) == 128  # words wider than 18 bits take two blocks
    assert stream_buffer_bram(16 * 16, 512) == 8  # 256 bits over words of 36
    assert stream_buffer_bram(16 * 16, 513) == 16
    assert vfu_dsp(8) == 648  # table IV
    assert vfu_dsp(16) - vfu_dsp(8) == 8 * (75 + 2 * 3)


def test_table_iv_resources() -> None:
    assert max(errors(validate("resource"), "resource")) < 0.01


def test_our_designs_fit_their_boards() -> None:
    for name in design_names():
        design = load_design(name)
        if design.origin == "own":
            assert isinstance(design, ArrayDesign)
            board = board_facts(design.boards[0])
            taken = resources(design, board)
            assert not taken.excess(board), (name, taken.shares(board))


def test_a_design_that_does_not_fit_is_named_by_resource() -> None:
    design = load_design("lora-f")
    assert isinstance(design, ArrayDesign)
    board = board_facts("u280")
    excess = resources(replace(design, array=(64, 64)), board).excess(board)
    assert "dsp" in excess and excess["dsp"] == pytest.approx((24576 + 648) / 9024 - LIMITS["dsp"])


def test_evolution_finds_what_exhaustive_search_finds() -> None:
    pytest.importorskip("scipy")
    config = replace(shape_config("gpt2-345m"), layers=4)
    every = Exploration("u280", 1, config, 32, 64, SMALL)
    best = every.exhaustive()
    assert every.evaluated == 216 and best.feasible
    search = Exploration("u280", 1, config, 32, 64, SMALL)
    found = search.evolve(seed=3)
    assert search.evaluated < every.evaluated
    assert found.seconds <= best.seconds * 1.01


@pytest.mark.parametrize("precision", ["fp16", "w8a8"])
def test_the_papers_configurations_are_near_the_optimum(precision: str) -> None:
    """Of the space without a prefetch buffer, which the paper's designs have not."""
    config = replace(shape_config("gpt2-1.5b"), layers=6)
    space = {
        "precision": (precision,), "prefetch_bytes": (0,), "kv_uram": (0, 864), "ports": (16, 32),
        "array_rows": (32, 64, 128), "array_columns": (32, 64, 128), "lanes": (4, 8, 16),
    }  # fmt: skip
    search = Exploration("u280", 4, config, 32, 256, {**space, "tile": (32, 64)})
    best = search.exhaustive()
    paper = search.candidate(paper_values(precision))
    assert paper.feasible
    assert paper.seconds <= 1.05 * best.seconds


def test_searching_with_few_blocks_is_close_to_timing_all() -> None:
    search = Exploration("u280", 4, shape_config("gpt2-1.5b"), 32, 64)
    for changes in ({}, {"prefetch_bytes": 1 << 20}, {"prefetch_bytes": 16 << 20, "kv_uram": 0}):
        values = {**paper_values("w8a8"), **changes}
        few, every = search.candidate(values, whole=False), search.candidate(values)
        assert few.seconds == pytest.approx(every.seconds, rel=0.03)


@pytest.mark.parametrize("precision", ["fp16", "w4a8"])
def test_a_designs_time_is_that_of_lora_lab_model(precision: str) -> None:
    """Of a whole request, with dispatch, the host's accesses and sums of weights."""
    config = replace(shape_config("gpt2-345m"), layers=6)
    found = Exploration("u280", 4, config, 32, 64).candidate(paper_values(precision))
    report = run_time(target_of(found.design, "u280", config, Layout(4)), "", 32, 64)
    assert found.seconds * 1e3 == pytest.approx(report.latency_ms, rel=0.002)
    assert sum(found.totals.by.values()) == pytest.approx(found.seconds)
    for part in ("dispatch", "host", "scrub"):
        assert found.totals.by[part] * 1e3 == pytest.approx(report.breakdown_ms[part], rel=0.01)


def test_infeasible_points_lose_and_unknown_variables_are_refused() -> None:
    config = replace(shape_config("gpt2-345m"), layers=2)
    search = Exploration("u280", 1, config, 8, 8)
    huge = search.candidate({**paper_values(), "array_columns": 128, "array_rows": 128})
    assert not huge.feasible and huge.objective > search.candidate(paper_values()).objective
    with pytest.raises(RequestError, match="is not one of"):
        Exploration("u280", 1, config, 8, 8, {"colour": (1,)})


def test_the_manifest_follows_the_schema_but_for_what_is_not_built() -> None:
    from jsonschema import Draft202012Validator

    from lora_host.data import data_folder

    config = replace(shape_config("gpt2-345m"), layers=2)
    found = Exploration("u280", 1, config, 8, 8).candidate(paper_values())
    facts = manifest(found, "u280")
    schema = json.loads((data_folder("overlays") / "manifest.schema.json").read_text())
    assert not list(Draft202012Validator(schema).iter_errors(facts))
    assert facts["tiling"] == {
        "array_rows": 32, "array_columns": 32, "tile": 32, "vector_lanes": 8
    }  # fmt: skip


def test_lora_dse_prints_a_design_and_writes_its_manifest(tmp_path) -> None:
    from click.testing import CliRunner

    from lora_lab.cli.dse import dse

    pytest.importorskip("scipy")
    path = tmp_path / "manifest.yaml"
    arguments = ["--model", "gpt2-345m", "--in", "8", "--out", "16", "--precision", "fp16",
                 "--no-prefetch", "--manifest", str(path)]  # fmt: skip
    run = CliRunner().invoke(dse, arguments)
    assert run.exit_code == 0 and run.stdout.startswith("modelled: ")
    facts = yaml.safe_load(path.read_text())
    assert facts["precision"] == "fp16" and facts["tiling"]["array_rows"] in (16, 32, 64, 128)


@pytest.mark.parametrize("precision", ["fp16", "w8a8", "w4a8"])
@pytest.mark.parametrize("board", ["u280", "u55c", "v80"])
def test_a_manifest_is_an_overlay_of_its_board(tmp_path: Path, board: str, precision: str) -> None:
    config = replace(shape_config("gpt2-345m"), layers=2)
    values = {**paper_values(precision), "ports": 64}
    found = Exploration(board, 1, config, 8, 8).candidate(values)
    path = tmp_path / "found.yaml"
    path.write_text(yaml.safe_dump(manifest(found, board)))
    overlay, shipped = load_overlay(path), load_overlay(f"lora_f_{board}")
    assert overlay.board == shipped.board and overlay.block_base == shipped.block_base
    assert overlay.weight_banks == shipped.weight_banks
    assert overlay.spill_banks == shipped.spill_banks
    assert overlay.spill_banks or overlay.prefill_copy == "none"  # there is no DDR to copy to
    assert overlay.weights == load_overlay(f"{SHIPPED[precision]}_{board}").weights
    shutil.copy(shipped.image_path, tmp_path)
    assert overlay.image == shipped.image
    artefact, _ = artefacts(overlay, tmp_path)[0]
    assert artefact == overlay.container


def test_what_a_manifest_needs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example of its help, with the point that the search would find."""

    def found(search: Exploration, *_arguments: object, **_named: object) -> Candidate:
        return search.candidate(paper_values("w8a8"))

    monkeypatch.setattr(Exploration, "evolve", found)
    path = tmp_path / "found.yaml"
    words = ["lab", "dse", "--model", "gpt2-345m", "--board", "v80", "--manifest", str(path)]
    assert run_command(lora, "lora", words) == 0
    firmware = load_overlay("lora_f_v80").image_path
    assert f"wrote {path}; " in (said := capsys.readouterr().err)
    assert f"copy {firmware} beside it" in said and f"lora overlay build {path}" in said
    assert run_command(lora, "lora", ["plan", "-m", "gpt2-345m", "--overlay", str(path)]) == 0


def test_a_board_without_an_overlay_has_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(search: Exploration, *_arguments: object, **_named: object) -> Candidate:
        return search.candidate(paper_values("w8a8"))

    words = ["lab", "dse", "--model", "gpt2-345m", "--board", "vhk158"]
    path = tmp_path / "found.yaml"
    with monkeypatch.context() as patch:
        patch.setattr(Exploration, "evolve", None)  # it is refused before
        assert run_command(lora, "lora", [*words, "--manifest", str(path)]) == 2
    err = capsys.readouterr().err
    assert "board 'vhk158': no overlay" in err and "expected u280 or u55c or v80" in err
    assert not path.exists()
    monkeypatch.setattr(Exploration, "evolve", found)
    assert run_command(lora, "lora", [*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["manifest"] is None


@pytest.mark.parametrize("board, ports", [("u280", (8, 16, 32)), ("v80", (8, 16, 32, 64))])
def test_a_design_has_no_more_ports_than_its_board(board: str, ports: tuple[int, ...]) -> None:
    assert Exploration(board, 1, shape_config("gpt2-345m"), 32, 32).space["ports"] == ports
