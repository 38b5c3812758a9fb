"""What is to be said of a design's time is said wherever the time is printed: attention in the
units that it was counted with, the counts of a file's base, an assumed memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lora_host.boards import load_board
from lora_host.errors import RequestError
from lora_host.overlay import load_overlay
from lora_lab.cli.model import model
from lora_lab.cli.spec import spec
from lora_lab.timing.designs import load_design
from lora_lab.timing.model import token_time
from lora_lab.timing.planned import token_times
from lora_lab.timing.plots import DRAWERS
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import shape_config
from lora_sdk.plan.formats import quantized_as
from lora_sdk.plan.placement import make_plan

LLAMA = shape_config("llama2-7b")
ADDED = "attention alone would add "


def notes_of(command: object, text: str) -> list[str]:
    run = CliRunner().invoke(command, [*text.split(), "--json"])  # type: ignore[arg-type]
    assert run.exit_code == 0, run.output
    notes: list[str] = json.loads(run.stdout)["notes"]
    return notes


@pytest.mark.parametrize(
    ("command", "asked", "where"),
    [
        (model, "--design own-u280 --model llama2-7b -c 4096", "at context 4096"),
        (model, "--design own-u280 --model llama2-7b --in 64 --out 64", "at context 128"),
        (model, "--design own-u280 --model llama2-7b --beams 4 --in 96 --out 32", "at context 128"),
        (model, "--hosts 1 --boards 2 --design own-u280 --model llama2-7b -c 256", "on 2 boards"),
        (spec, "design own-v80 llama2-7b -c 128 -c 256", "at context 256"),
    ],
)
def test_every_command_says_what_counted_attention_would_add(
    command: object, asked: str, where: str
) -> None:
    (note,) = (one for one in notes_of(command, asked) if ADDED in one)
    if "--hosts" in asked:
        assert any("for each row of a step" in one for one in notes_of(command, asked))
    assert where in note and "2 attention units, which are slower" in note


@pytest.mark.parametrize("kind", DRAWERS)
def test_every_plot_says_it_too(kind: str) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure(layout="constrained")
    DRAWERS[kind](figure.subplots(), ["own-u280"], "llama2-7b", 2, 64)
    note = " ".join(figure.get_supxlabel().split())
    assert note.count(ADDED) == 1
    assert ("on 1 board," in note) == (kind == "scaling")


def test_a_file_has_the_caveats_of_its_base(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine: {base: own-u280, lanes: 14, title: mine}")
    target = make_target(str(path), None, LLAMA, 1)
    found = token_time(target, "", 128).notes
    (fit,) = (one for one in found if one.startswith("no hardware"))
    assert "its base own-u280 does not fit the Alveo U280" in fit
    assert fit.endswith("changed and not counted: lanes")
    assert any("its base own-u280 was counted with 2 attention units" in one for one in found)
    path.write_text("mine: {base: lora-q, lanes: 14, origin: own}")
    (fit,) = (one for one in make_target(str(path), None, LLAMA, 1).notes if "hardware" in one)
    assert "its base lora-q" in fit


def test_a_faster_memory_moves_its_roof_and_is_said(tmp_path: Path) -> None:
    path = tmp_path / "fast.yaml"
    path.write_text("fast: {base: own-u280, hbm_efficiency: 1.67}")
    with pytest.raises(RequestError, match="1 at most; a faster memory: memory_bytes_per_second"):
        load_design(path)
    path.write_text("fast: {base: own-u280, memory_bytes_per_second: 920000000000}")
    target = make_target(str(path), None, LLAMA, 1)
    plain = token_time(make_target("own-u280", None, LLAMA, 1), "", 128)
    found = token_time(target, "", 128)
    assert found.latency_ms < plain.latency_ms and 0 < found.utilisation["memory"] < 1
    assert target.roofs.memory == 920e9
    assert "memory of 920 GB/s is assumed: the u280's has 460" in found.notes


def test_an_overlay_with_channels_takes_what_lora_plan_says() -> None:
    overlay = load_overlay("lora_channels_u280")
    config = quantized_as(LLAMA, overlay.precision)
    plan = make_plan(config, overlay, load_board("u280"), 1)
    target = make_target(overlay.name, None, LLAMA, 1)
    planned = token_times(config, plan)[0]
    assert token_time(target, "", 128).latency_ms == planned["modelled_ms_a_token"]
    for one in (target, make_target("channels-u280", None, LLAMA, 1)):
        assert any("not counted: " in note and "80% is the most" in note for note in one.notes)
        assert not any("ideal units" in note for note in one.notes)


def test_a_board_without_a_price_has_no_cheapest_split(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine: {base: own-u280, boards: [u55c]}")
    asked = ["--hosts", "1", "--boards", "2", "--model", "llama2-7b", "-c", "256", "--design"]
    for design, priced in ((str(path), False), ("own-u280", True)):
        text = CliRunner().invoke(model, [*asked, design]).stdout
        assert ("lowest cost" in text) == priced and ("prices are assumptions" in text) == priced
        assert ("cost: no price of u55c (--prices FILE)" in text) != priced
    with pytest.raises(RequestError, match=r"or a file with base: own-u280 and boards: \[u55c\]"):
        make_target("own-u280", "u55c", LLAMA, 1)


def test_links_are_one_part() -> None:
    found = token_time(make_target("own-u280", None, LLAMA, 4), "", 128).breakdown_ms
    assert found["link_exposed"] > 0 and "link" not in found
