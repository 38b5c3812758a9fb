"""Which boards the vLLM plug-in uses: what the environment says, without vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lora_vllm
from lora_host.errors import RequestError
from lora_sdk import demo_model_path
from lora_vllm.selection import BOARDS, CLUSTER, DEVICES, options_for

DEMO = str(demo_model_path())


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BOARDS, DEVICES, CLUSTER):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "value"), [(BOARDS, "2"), (DEVICES, "emu:u280"), (CLUSTER, "f")])
def test_vllm_is_left_alone_where_no_board_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    assert lora_vllm.register() is None
    monkeypatch.setenv(name, "")
    assert lora_vllm.register() is None
    monkeypatch.setenv(name, value)
    assert lora_vllm.register() == "lora_vllm.platform.LoraPlatform"


def test_the_entry_point_names_the_function() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '[project.entry-points."vllm.platform_plugins"]\nlora = "lora_vllm:register"' in project


def test_options_of_the_named_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOARDS, "4")
    assert options_for(DEMO, {"threads": 1}, context=100).board_count == 4
    monkeypatch.setenv(BOARDS, "2")
    monkeypatch.setenv(DEVICES, "emu:u280, emu:u280")
    assert options_for(DEMO, {}).devices == ("emu:u280", "emu:u280")
    monkeypatch.setenv(BOARDS, "4")
    with pytest.raises(RequestError, match="4 boards requested, 2 devices named"):
        options_for(DEMO, {})


@pytest.mark.parametrize(
    ("value", "passed_on", "line"),
    [
        ("four", {}, "LORA_BOARDS='four'; expected a number of boards"),
        ("-1", {}, "LORA_BOARDS='-1'; expected a number"),
        ("٣", {}, "LORA_BOARDS='٣'; expected a number"),
        ("3", {}, "3 boards were requested; expected 1, 2, 4"),
        ("9" * 5000, {}, "expected a number of boards"),
        ("1", {"context": 5}, "--additional-config has 'context'; boards know adapter_mode"),
        ("1", {"kernels": "fast"}, "fast"),
    ],
)
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, value: str, passed_on: dict[str, Any], line: str
) -> None:
    monkeypatch.setenv(BOARDS, value)
    with pytest.raises(RequestError) as found:
        options_for(DEMO, passed_on)
    assert line in str(found.value)


@pytest.mark.parametrize("value", [",", "emu:u280,", "emu:u280,,emu:u280", " "])
def test_an_empty_name_is_no_board(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(DEVICES, value)
    with pytest.raises(RequestError, match="has an empty name; expected boards with commas"):
        options_for(DEMO, {})
