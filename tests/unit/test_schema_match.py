"""The quick check never takes what jsonschema refuses, and takes all files that ship."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from lora_host.schema_match import surely_valid
from lora_sdk import demo_model_path
from lora_sdk.spec.table_schema import SCHEMA as TABLES
from tests.mutations import revalued
from tests.processes import environment

ROOT = Path(__file__).resolve().parents[2]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@cache
def cases() -> dict[str, tuple[Any, Any]]:
    """A schema and a valid value of it, small enough for thousands of mutations."""
    tables = json.loads((demo_model_path() / "speculation.json").read_text())
    measurement = tables["measurements"][0]
    measurement["tables"] = measurement["tables"][:1]
    measurement["trees"] = dict(list(measurement["trees"].items())[:2])
    board = read(ROOT / "boards" / "u280.yaml")
    return {
        "tables": (TABLES, {**tables, "measurements": [measurement]}),
        "manifest": (
            read(ROOT / "overlays" / "manifest.schema.json"),
            read(ROOT / "overlays" / "lora_q_u280" / "manifest.yaml"),
        ),
        "board": (read(ROOT / "boards" / "board.schema.json"), board),
        "cluster": (
            read(ROOT / "boards" / "cluster.schema.json"),
            read(ROOT / "tests" / "topologies" / "ring4.yaml"),
        ),
    }


@pytest.mark.parametrize("name", ["tables", "manifest", "board", "cluster"])
def test_what_it_takes_is_valid(name: str) -> None:
    schema, value = cases()[name]
    judge: Any = Draft202012Validator(schema)
    assert surely_valid(schema, value)
    taken = 0
    for seed in range(300):
        mutated = revalued(Random(f"{name} {seed}"), value)
        if surely_valid(schema, mutated):
            taken += 1
            assert judge.is_valid(mutated), (seed, next(judge.iter_errors(mutated)).message)
    assert 0 < taken < 300


@pytest.mark.parametrize(
    "schema, value",
    [
        ({"type": "integer"}, 32.0),
        ({"type": "integer"}, True),
        ({"const": 1}, True),
        ({"enum": [0]}, False),
        ({"minimum": 1}, float("nan")),
        ({"multipleOf": 8}, 12),
        ({"uniqueItems": True}, ["a", "a"]),
        ({"items": {"type": "string"}}, ["a", 1]),
        ({"pattern": "^a$"}, "b"),
        ({"required": ["a"]}, {}),
        ({"additionalProperties": False}, {"a": 1}),
        ({"patternProperties": {"^a": {"type": "null"}}}, {"ab": 1}),
        ({"allOf": [{"type": "string"}, {"maxLength": 1}]}, "ab"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1),
        ({"$ref": "#/$defs/nothing"}, 1),
        ({"dependentRequired": {}}, {}),  # a keyword that it does not know
        (False, 1),
    ],
)
def test_what_it_leaves_to_jsonschema(schema: object, value: object) -> None:
    assert not surely_valid(schema, value)


def test_all_files_that_ship_are_taken() -> None:
    for path in (ROOT / "boards").glob("*.yaml"):
        assert surely_valid(cases()["board"][0], read(path)), path
    for path in (ROOT / "overlays").glob("*/manifest.yaml"):
        assert surely_valid(cases()["manifest"][0], read(path)), path
    assert surely_valid(TABLES, json.loads((demo_model_path() / "speculation.json").read_text()))


RUN = """
import sys
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run
assert run_command(lora_run, "lora-run", ["-q", "-n", "1", "-p", "a"]) == 0
print([name for name in ("jsonschema", "jinja2", "torch", "scipy", "matplotlib")
       if name in sys.modules], file=sys.stderr)
"""

HELP = """
import sys
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
assert run_command(lora, "lora", ["--help"]) == 0
print([name for name in ("numpy", "jsonschema", "lora_host._lora") if name in sys.modules],
      file=sys.stderr)
"""


@pytest.mark.parametrize("code", [RUN, HELP], ids=["run", "help"])
def test_a_start_imports_what_it_needs(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stderr.splitlines()[-1:] == ["[]"], done.stderr
