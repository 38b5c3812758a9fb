"""The wide card's model: each operation is charged at a planned rate, and what docs/wide_card.md
prints is what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_lab.timing import step as steps
from lora_lab.timing import wide_card as cards
from lora_lab.timing.channel_counts import channel_counts
from lora_lab.timing.fit import fit
from lora_lab.timing.matmul_counts import four_bit_tile
from lora_lab.timing.model import token_time
from lora_lab.timing.target import make_target
from lora_lab.timing.wide_card import FROM, Constant, WideCard, wide_card, wide_names
from lora_lab.timing.wide_ops import wide_step_ops
from lora_sdk.model.shapes import shape_config
from tests.unit.test_timing_channels import W4A8, matrix

CONFIG = shape_config("llama2-7b")
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "wide_card.md").read_text(encoding="utf-8")
CHANGED = re.compile(r"`(\w+)` ([\d.]+)")
TABLE = re.compile(r"^\| `(wide-[\w-]+)` \| (\d) x \w+ \| ([\d.]+) \| ([\d.]+) \|", re.MULTILINE)


def changed(card: WideCard, **values: float) -> WideCard:
    more = {name: Constant(value, "planned", "") for name, value in values.items()}
    return replace(card, constants={**card.constants, **more})


def cycles(card: WideCard, boards: int = 1, shape: steps.StepShape | None = None) -> float:
    ops = wide_step_ops(card, replace(CONFIG, layers=2), boards, shape or steps.decode(128))
    return sum(op.compute for op in ops)


@pytest.mark.parametrize("mode", ["ar", pytest.param("sd", marks=pytest.mark.slow)])
def test_the_page_has_what_the_model_says(mode: str) -> None:
    found = TABLE.findall(PAGE)
    assert {name for name, *_ in found} == set(wide_names()) and len(found) == 6
    for name, boards, plain, tree in found:
        target = make_target(name, None, CONFIG, int(boards))
        speed = f"{token_time(target, '', 128, mode).tokens_per_second:.1f}"
        assert speed == (plain if mode == "ar" else tree), (name, boards)


@pytest.mark.parametrize("k", [4096, 11008])
def test_a_tile_is_charged_as_the_channels_source_takes_it(k: int) -> None:
    card = wide_card("wide-u280")
    tile = four_bit_tile(k, 128)
    charged = max(tile.lines, tile.parts * card.part_cycles)
    assert charged == channel_counts(8, matrix(8, k, 256, W4A8), 1)["cycle"]
    assert f"{charged:,.0f}" in PAGE


def test_a_measured_rate_of_memory_is_charged_as_the_page_says() -> None:
    """0.92 of 460 GB/s, over 32 banks at 250 MHz."""
    rate = 0.92 * 460e9 / 32 / (64 * 250e6)
    assert f"{rate:.3f}" == "0.827" and "0.827 of a line, which is 0.92 of 460 GB/s" in PAGE
    target = make_target("wide-u280", None, CONFIG, 1)
    target.card = changed(wide_card("wide-u280"), line_rate=0.827)  # type: ignore[attr-defined]
    speed = f"{token_time(target, '', 128).tokens_per_second:.1f}"
    assert f"for a U280, {speed} and 187.0" in PAGE


VARIED = re.compile(r"^\| ([^|]*`\w+` [\d.].*) \| ([\d.]+), ([\d.]+) \|$", re.MULTILINE)


@pytest.mark.parametrize("mode", ["ar", pytest.param("sd", marks=pytest.mark.slow)])
def test_variations_of_the_page_are_those_of_a_file(mode: str, tmp_path: Path) -> None:
    found = VARIED.findall(PAGE)
    assert len(found) == 6
    path = tmp_path / "mine.yaml"
    for what, plain, tree in found:
        constants = ", ".join(f"{name}: {value}" for name, value in CHANGED.findall(what))
        path.write_text(f"mine: {{base: wide-u280, constants: {{{constants}}}}}")
        report = token_time(make_target(str(path), None, CONFIG, 4), "", 128, mode)
        assert f"{report.tokens_per_second:.1f}" == (plain if mode == "ar" else tree), what


def test_each_constant_says_where_it_comes_from_and_stands_in_the_page() -> None:
    for name in wide_names():
        for key, constant in wide_card(name).constants.items():
            assert constant.source in FROM and constant.what
            assert f"`{key}`" in PAGE, key


def test_each_operation_and_constant_costs_something() -> None:
    """Twice as slow or late, or half as wide, each makes some step longer."""
    card = wide_card("wide-u280")
    names = {op.what for op in wide_step_ops(card, CONFIG, 4, steps.decode(128))}
    assert {"embed", "attn_norm sums", "rope", "store", "attention", "activation", "qkv", "lm_head",
            "AddResidual", "Argmax", "quantize down", "gather o"} <= names  # fmt: skip
    assert all(op.compute > 0 for op in wide_step_ops(card, CONFIG, 4, steps.decode(128)))
    assert "commit" not in names
    tree = steps.verify(4, 128, 3)
    assert any(op.what == "commit" for op in wide_step_ops(card, CONFIG, 1, tree))
    runs = [(boards, shape) for boards in (1, 4) for shape in (steps.decode(128), tree)]
    plain = [cycles(card, *run) for run in runs]
    for key, constant in card.constants.items():
        if key in ("fifo_lines", "rows_held", "dynamic", "gather", "gather_overlap"):
            continue  # of the schedule, of more rows, and below
        others = [changed(card, **{key: constant.value * by}) for by in (2, 0.5)]
        found = [[cycles(one, *run) for run in runs] for one in others]
        assert any(a > b for one in found for a, b in zip(one, plain, strict=True)), key
    for more in ({"dynamic": 1}, {"gather_overlap": 0}, {"gather_overlap": 0, "gather": 320}):
        assert cycles(changed(card, **more), *runs[-1]) > plain[-1]


def test_bytes_are_those_of_lists() -> None:
    """A block of groups of 128 has 34 lines, lm_head is INT8."""
    found = token_time(make_target("wide-u280", None, CONFIG, 1), "", 128).bytes["weights"]
    listed = token_time(make_target("source-u280", None, CONFIG, 1), "", 128).bytes["weights"]
    assert found == listed


def test_memory_is_not_faster_than_its_lines() -> None:
    """Without other work a token takes what its lines take at the channels' rate."""
    card = wide_card("wide-u280")
    report = token_time(make_target("wide-u280", None, CONFIG, 1), "", 128)
    lines = (report.bytes["weights"] + report.bytes["kv"]) / 64 / card.channels
    assert lines / card.line_rate / card.clock_hz < report.latency_ms / 1e3


def test_it_fits_by_planned_counts() -> None:
    found = fit("wide-u280")
    shares = found.shares()
    assert shares is not None and not found.excess()
    told = " of LUTs, {dsp:.1%} of DSPs, {bram:.1%} of block RAM, {uram:.1%} of UltraRAM"
    assert f"{shares['lut']:.1%}{told.format(**shares)}" in PAGE


def test_what_a_file_or_request_has_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = tmp_path / "units"
    units.mkdir()
    text = (ROOT / "overlays" / "units" / "wide-u280.yaml").read_text()
    monkeypatch.setattr(cards, "data_folder", lambda _: tmp_path)
    for wrong, words in (
        (text.replace("  rows: [3, planned", "  rows: [3, hoped"), "rows is"),
        (text.replace("  rows: [3,", "  rows: [-3,"), "above 0"),
        (text.replace("  rows: [3,", "  rouws: [3,"), "'rouws'"),
        (text + "speed: 9\n", "'speed'"),
    ):
        (units / "wrong.yaml").write_text(wrong)
        with pytest.raises(RequestError, match=words):
            wide_card.__wrapped__("wrong")
    with pytest.raises(RequestError, match="query heads"):
        make_target("wide-u280", None, CONFIG, 64)
    with pytest.raises(RequestError, match="is for board u280"):
        make_target("wide-u280", "v80", CONFIG, 1)
