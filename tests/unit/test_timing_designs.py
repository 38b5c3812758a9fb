"""Designs from YAML files: what is wrong is named, what is right is timed."""

import dataclasses
import re
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_host.overlay import overlay_names
from lora_lab.timing.design_fields import CHOICES
from lora_lab.timing.designs import Link, design_names, load_design
from lora_lab.timing.facts import board_facts, board_names
from lora_lab.timing.model import token_time
from lora_lab.timing.target import make_target
from lora_sdk.model.shapes import shape_config


def test_a_file_builds_on_a_shipped_design(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine: { base: lora-f, lanes: 32, origin: own }\n")
    config = shape_config("gpt2-345m")
    mine = token_time(make_target(str(path), None, config, 2), "", 128)
    theirs = token_time(make_target("lora-f", None, config, 2), "", 128)
    assert mine.design == "mine" and mine.latency_ms < theirs.latency_ms


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine: { base: lora-f, lane: 4 }", "did you mean 'lanes'"),
        ("mine: { base: lora-f, lanes: 0 }", "lanes is 0, expected a number above 0"),
        ("mine: { base: lora-f, lanes: many }", "lanes is 'many'"),
        ("mine: { base: lora-f, clock_hz: .inf }", "clock_hz is inf"),
        ("mine: { base: lora-f, kv_bytes: true }", "kv_bytes is True"),
        ("mine: { base: lora-f, array: [32] }", "expected rows and columns"),
        ("mine: { base: lora-f, boards: [] }", "boards is .., expected a list"),
        ("mine: { base: lora-f, boards: u280 }", "boards is 'u280', expected a list"),
        ("mine: { base: lora-f, norms: both }", "expected split or replicated"),
        ("mine: { base: mine }", "not another design"),
        ("mine: { base: [32, 64] }", r"base \[32, 64\] is not another design"),
        ("mine: { kind: [array] }", r"kind \['array'\], expected array or stream"),
        ("mine: { base: lora-f, boards: [[1]] }", r"expected a list of names"),
        ("mine: { base: lora-f, link: 3 }", "link is 3, expected its fields"),
        ("mine: { base: lora-f, link: { port_bytes: 4 } }", "'bits_per_second' is missing"),
        ("mine: { base: lora-f, speculation: [1] }", r"speculation is \[1\], expected text"),
        ("mine: { base: lora-f, speculation: longspecs }", "did you mean 'longspec'"),
        ("mine: { base: lora-f, weight_bits: 1.0e+308 }", "weight_bits is 1e.308"),
        ("mine: { base: lora-f, resources: [1] }", r"resources is \[1\], expected names"),
        ("mine: { base: lora-f, array: [10000000000000000000, 1] }", "expected rows and columns"),
        ("mine: { base: lora-f, lm_head: 1 }", "lm_head is 1, expected true or false"),
        ("mine: { kind: array }", "is missing"),
        ("mine: 3", "expected its fields"),
        ("a: {}\nb: {}", "expected one design"),
        ("mine: [", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=words) as caught:
        load_design(path)
    assert "\n" not in str(caught.value)


PAGE = (Path(__file__).parents[2] / "docs" / "timing.md").read_text(encoding="utf-8")
OF_ONES_OWN = PAGE.partition("### A design of your own")[2]
ROWS = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \| ([^|]*) \|$", OF_ONES_OWN, re.MULTILINE)


def test_the_page_has_each_field_with_what_own_u280_has() -> None:
    design = load_design("own-u280")
    told: dict[str, str] = {}
    for names, values, what in ROWS:
        fields = re.findall(r"`(\w+)`", names)
        if fields == ["link"]:
            link = {one.name: getattr(design.link, one.name) for one in dataclasses.fields(Link)}
            assert values == ", ".join(f"{value!r}".removesuffix(".0") for value in link.values())
            assert all(f"`{name}`" in what for name in link)
        told.update(zip(fields, re.split(r", (?!\d+\])", values.replace("`", "")), strict=False))
        for field in fields:
            choices = CHOICES.get(field, ())
            assert all(f"`{one}`" in values + what for one in choices if one != "none"), field
    assert set(told) == {one.name for one in dataclasses.fields(design)} - {"name"}
    for field, value in told.items():
        if field in ("title", "resources", "link"):
            continue
        real = getattr(design, field)
        shown = f"{real:g}" if isinstance(real, float) and real < 1e6 else str(real)
        shown = {"True": "true", "False": "false"}.get(shown, shown)
        if isinstance(real, tuple):
            shown = f"[{', '.join(map(str, real))}]"
        assert value == shown.removesuffix(".0"), field


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine: { base: wide-u280, lanes: 3 }", "has title, clock_hz and constants"),
        ("mine: { base: wide-u280, constants: { hops: 3 } }", "expected each of 25 once: channels"),
        ("mine: { base: wide-u280, constants: { hop: -3 } }", "hop is -3, expected a number of at"),
        ("mine: { base: wide-u280, constants: { rows: 0 } }", "rows is 0, expected a number above"),
        ("mine: { base: wide-u280, constants: { rows: 2.5 } }", "expected a whole number"),
        ("mine: { base: wide-u280, constants: { hop: .inf } }", "hop is inf, expected a number"),
        ("mine: { base: wide-u280, clock_hz: fast }", "clock_hz is 'fast', expected a number"),
        ("mine: { base: wide-u281, clock_hz: 3 }", "expected one of lora-f, .*own-v80, wide-u280"),
        ("mine: { base: lora-f, lane: 4 }", "All fields: docs/timing.md, A design of your own"),
    ],
)
def test_what_is_wrong_in_a_file_on_any_base_has_the_way_out(
    text: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(RequestError, match=words) as caught:
        make_target(str(path), None, shape_config("llama2-7b"), 1)
    assert "\n" not in str(caught.value)


def test_everything_that_ships_can_be_timed() -> None:
    for name in design_names():
        model = "llama2-7b" if name.startswith("flight") else "gpt2-345m"
        for board in load_design(name).boards:
            assert token_time(make_target(name, board, shape_config(model), 1), "", 64).latency_ms
    for name in overlay_names():
        found = token_time(make_target(name, None, shape_config("gpt2-345m"), 2), "", 64)
        assert found.latency_ms > 0 and found.design == name
    for name in board_names():
        assert board_facts(name).dsp > 0
