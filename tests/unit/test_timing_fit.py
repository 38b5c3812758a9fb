"""What designs take of their boards by counts: modules of the hardware source times instances."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_lab.cli.model import model
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.designs import load_design
from lora_lab.timing.fit import RESOURCES, counts, fit, fit_names, memory_uram, unbuilt_note
from lora_lab.timing.source_target import SOURCE_TARGETS
from lora_lab.timing.target import make_target
from lora_lab.timing.wide_card import wide_card, wide_names
from lora_sdk.model.shapes import shape_config

ROOT = Path(__file__).resolve().parents[2]
BUDGET = yaml.safe_load((ROOT / "overlays" / "rtl" / "budget.yaml").read_text())
SOURCE, CHANNELS = "source-u280", "channels-u280"
FITS = {
    SOURCE: True,
    CHANNELS: True,
    "lora-f": True,
    "lora-q": True,
    "own-u280-4096": True,
    "own-u280": False,
}


def test_counts_are_those_of_the_budget() -> None:
    assert set(counts()) == set(BUDGET["modules"]) | set(BUDGET["units"])
    array = BUDGET["units"]["int8_array"]
    assert counts()["int8_array"] == {
        "lut": array["lut"] + array["lutram"],
        "ff": array["ff"],
        "dsp": array["dsp"],
        "bram": array["ramb36"] + array["ramb18"] / 2,
        "uram": 0,
    }


def test_a_memory_in_ultraram() -> None:
    assert memory_uram(4096 * 64) == 8  # eight words of 72 bits hold a line
    assert memory_uram(4096 * 64 + 1) == 16
    assert memory_uram(16 << 20) == 512


def test_a_design_is_the_sum_of_its_parts() -> None:
    found = fit("own-u280-4096")
    parts = {part.name: part for part in found.parts}
    assert parts["int8_array"].instances == 32  # one a pseudo-channel
    for resource in RESOURCES:
        total = sum(part.instances * part.each[resource] for part in found.parts)
        assert found.total(resource) == total
        assert found.shares()[resource] == total / getattr(found.board, resource)
    assert found.total("uram") == 512 + 128 + 8  # onchip_memory is counted with a part of it
    assert parts["shell, static region"].each["lut"] > 100_000


@pytest.mark.parametrize("name", FITS)
def test_which_designs_fit(name: str) -> None:
    found = fit(name)
    assert max(found.shares().values()) > 0.5
    assert (not found.excess()) == FITS[name]
    assert all(share < found.most for share in found.shares().values()) == FITS[name]


def test_designs_that_are_timed_have_the_multipliers_that_are_counted() -> None:
    """Of one array: 32 lanes of FP16, 64 products of W8A8, 128 of W4A8 a row."""
    products = {"fp16_array": 32, "int8_array": 128, "int8_array_2": 256, "w8a8_array_2": 128}
    kinds = {"fp16": {"fp16_array"}, "w8a8": {"w8a8_array_2"}}
    for name in fit_names():
        if name in wide_names() or name in SOURCE_TARGETS:
            continue
        design = load_design(name)
        arrays = kinds.get(design.precision, {"int8_array", "int8_array_2"})
        found = fit(name)
        parts = {part.name: part.instances for part in found.parts}
        counted = sum(parts.get(array, 0) * products[array] for array in arrays)
        assert counted == design.array[0] * design.array[1], name
        assert 4 * parts["vfu"] == design.lanes, name


def test_a_wide_card_has_the_channels_and_pipes_that_are_planned() -> None:
    card, parts = wide_card("wide-u280"), {p.name: p for p in fit("wide-u280").parts}
    channel, finisher = parts["channel_3"], parts["channel_finish_3"]  # counted, of three rows
    assert card.rows == 3 and not {"planned: channel", "planned: finisher"} & set(parts)
    assert channel.instances == card.channels
    assert 64 * card.rows <= channel.each["dsp"] < 70 * card.rows  # integer_lanes' 64 a row
    assert memory_uram(int(card.fifo_lines) * 64) == channel.each["uram"]
    assert finisher.instances == card.finishers
    assert parts["planned: SwiGLU and exponential pipe"].instances == card.activate_columns


def test_the_source_has_one_of_each_unit_on_one_port() -> None:
    parts = {part.name: part.instances for part in fit(SOURCE).parts}
    for unit in ("fp16_array", "int8_array", "vfu", "attention", "adapter", "port_arbiter"):
        assert parts[unit] == 1, unit
    assert "line_rotate" not in parts  # the crossbar of 32 arrays, which it has not
    text = CliRunner().invoke(model, ["--resources", "--design", SOURCE]).stdout
    assert "32 arrays" not in text and "26.2%" in text


def test_the_card_with_channels_has_the_units_that_are_timed() -> None:
    parts = {part.name: part.instances for part in fit(CHANNELS).parts}
    attentions = {name: parts[name] for name in ("attention", "attention_int8")}
    assert parts["channel"] == 32 and sum(attentions.values()) == card_costs().attentions == 4
    assert attentions["attention"] == card_costs().float_attentions
    assert parts["pipe_column"] == 2 * parts["pipe_silu"] == 16


def test_the_card_with_channels_keeps_its_floors() -> None:
    shares = fit(CHANNELS).shares()
    assert shares is not None
    most = {"lut": 0.70, "ff": 0.80, "dsp": 0.80, "bram": 0.75, "uram": 0.75}
    assert all(shares[name] < share for name, share in most.items()), shares


def test_no_share_of_a_device_whose_cells_are_not_counted() -> None:
    assert fit("own-v80").shares() is None and not fit("own-v80").excess()
    lines = CliRunner().invoke(model, ["--resources", "--design", "own-v80"]).stdout
    assert "no share of this device" in lines and "%" not in lines


def test_reports_say_whether_a_design_fits() -> None:
    for name, fits in FITS.items():
        if name not in SOURCE_TARGETS and load_design(name).origin == "own":
            (note,) = (
                note
                for note in make_target(name, None, shape_config("gpt2-345m"), 1).notes
                if "no hardware" in note
            )
            assert ("does not fit" in note) != fits and "lora lab model --resources" in note
    assert "%" not in unbuilt_note(load_design("own-v80"))


def test_lora_model_prints_the_tables() -> None:
    run = CliRunner().invoke(model, ["--resources", "--json"])
    assert run.exit_code == 0
    found = {one["design"]: one for one in json.loads(run.stdout)}
    assert tuple(found) == fit_names()
    assert found["own-u280"]["excess"]["lut"] > 0 and found["own-u280"]["not_counted"]
    with pytest.raises(RequestError, match="has no counts"):
        fit("dfx")


def test_the_pages_table_is_this_one() -> None:
    """docs/rtl.md has a row a design: shares of its board."""
    text = (ROOT / "docs" / "rtl.md").read_text()
    for name in FITS:
        row = re.search(rf"^\| {name}:[^|]*\|(.*)\|$", text, re.MULTILINE)
        assert row is not None, name
        shares = fit(name).shares()
        assert shares is not None
        told = [cell.strip() for cell in row[1].split("|")]
        assert told == [f"{shares[resource]:.1%}" for resource in RESOURCES], name
