"""What `lora lab model` prints in place of a design's times, and the options that go with it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_lab.cli.model import VIEWS, answer, model
from lora_lab.timing.report import part_title
from lora_sdk.model.shapes import SHAPES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--list --context 5", "--context does not go with --list"),
        ("--list --validate", "--list does not go with --validate"),
        ("--validate --design own-u280", "--design does not go with --validate"),
        ("--analyses --boards 1", "--boards does not go with --analyses"),
        ("--resources --model gpt2-345m", "--model does not go with --resources"),
        ("--fleet x.yaml --in 3", "--in does not go with --fleet"),
    ],
)
def test_an_option_that_would_not_count_is_refused(arguments: str, message: str) -> None:
    found = CliRunner().invoke(model, arguments.split())
    assert isinstance(found.exception, RequestError)
    assert str(found.exception) == message


def test_the_table_of_views_names_options_of_the_command() -> None:
    options = {one.name for one in model.params}
    assert {name for view, others in VIEWS.items() for name in (view, *others)} <= options


def test_lists_as_text_and_as_json() -> None:
    text = CliRunner().invoke(model, ["--list"]).stdout
    found = json.loads(CliRunner().invoke(model, ["--list", "--json"]).stdout)
    assert found["models"] == list(SHAPES)
    assert found["designs"]["own-u280"]["boards"] == ["u280"]
    for name in (*found["designs"], *found["overlays"], *found["boards"], *found["models"]):
        assert name in text


@pytest.mark.parametrize("more", [(), ("--hosts", "2"), ("--mode", "sd")])
def test_a_token_is_at_context_128_where_no_length_is_given(more: tuple[str, ...]) -> None:
    asked = ["--design", "own-u280", "--model", "llama2-7b", "--json", *more]
    told = [CliRunner().invoke(model, [*asked, *context]) for context in ((), ("-c", "128"))]
    assert told[0].exit_code == 0 and told[0].stdout == told[1].stdout
    half = CliRunner().invoke(model, [*asked[:5], "--in", "32"])
    assert str(half.exception) == "give either --context, or both --in and --out"


def test_the_breakdown_has_the_words_of_the_plots_and_says_that_it_is_exposed_time() -> None:
    asked = ["--design", "own-u280", "--model", "llama2-7b", "--boards", "4", "--mode", "sd"]
    said = CliRunner().invoke(model, asked).stdout
    found = json.loads(CliRunner().invoke(model, [*asked, "--json"]).stdout)
    words = [line.strip().split("  ")[0] for line in said.splitlines()]
    assert {part_title(name) for name, ms in found["breakdown"].items() if ms > 0} <= set(words)
    for short in ("vfu", "kv", "scrub", "aat", "link exposed", "issue"):
        assert short not in words
    assert "parts are exposed time" in said and "AAT, tokens a round" in said


def test_weights_that_do_not_fit_are_those_that_are_read() -> None:
    for boards, stages in (("1", "1"), ("4", "1")):
        asked = ["--design", "own-u280", "--model", "llama2-70b", "--boards", boards]
        found = json.loads(CliRunner().invoke(model, [*asked, "--stages", stages, "--json"]).stdout)
        (note,) = (one for one in found["notes"] if one.startswith("does not fit"))
        assert f"{found['bytes']['weights'] / 1e9:.2f} GB of weights" in note


def test_the_roof_of_the_sources_memory_is_its_port() -> None:
    found = answer("source-u280", None, "llama2-7b", 1, 128, None, None, "ar", None)
    moved = found.bytes["weights"] + found.bytes["kv"]
    assert found.utilisation["memory"] == pytest.approx(moved / found.latency_ms * 1e3 / 16e9)
    assert any("16 GB/s" in note for note in found.notes)


def test_resources_of_a_plan_are_called_planned() -> None:
    for design, label in (("wide-u280", "planned"), ("own-u280", "counted")):
        asked = ["--resources", "--design", design]
        (found,) = json.loads(CliRunner().invoke(model, [*asked, "--json"]).stdout)
        assert found["label"] == label
        assert CliRunner().invoke(model, asked).stdout.startswith(f"{label}: {design} ")
