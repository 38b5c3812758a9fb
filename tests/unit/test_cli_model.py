"""What `lora lab model` prints in place of a design's times, and the options that go with it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_lab.cli.model import VIEWS, model
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
