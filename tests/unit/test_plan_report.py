"""`lora plan`: figures that add up, as a table and as JSON, from headers alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lora_host.errors import OverlayError, PlacementError
from lora_host.naming import ranges
from lora_host.overlay import load_overlay
from lora_lab.timing.model import token_time
from lora_lab.timing.target import make_target
from lora_sdk.cli.plan import plan as command
from lora_sdk.model.shapes import shape_config
from lora_sdk.model.spec import RopeConfig
from lora_sdk.plan import placement
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.report import report, table
from tests.adapter_folders import Folder, write_adapter
from tests.unit.plan_rig import GPT2, LLAMA2_7B, board, overlay, quantized
from tests.variants import variant, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_gqa_tied"), tmp_path_factory.mktemp("plan") / "model")


def test_figures_of_the_banks_add_up() -> None:
    plan = make_plan(GPT2, overlay(), board(), 4)
    found = json.loads(json.dumps(report(plan)))
    for one, real in zip(found["board"], plan.boards, strict=True):
        for bank in one["banks"]:
            parts = [bank[name] for name in ("weights", "kv", "tables", "control", "free")]
            assert sum(parts) == bank["usable"] and min(parts) >= 0
        placed = sum(bank["weights"] + bank["tables"] for bank in one["banks"])
        assert placed >= real.placed_bytes
    assert found["fits"] and found["weight_bytes"] == plan.weight_bytes
    assert len(found["link_bytes_a_decoded_token"]) == 8


def test_the_table_names_banks_context_replicas_and_links() -> None:
    text = table(report(make_plan(GPT2, overlay(), board(), 2)))
    lines = text.splitlines()
    assert lines[0].startswith("2 x u280, overlay lora_f_u280: yes, it fits")
    assert any(line.startswith("0      HBM[0-31] ") for line in lines)
    assert any(line.startswith("1      DDR[0] ") for line in lines)
    assert "boards by rank: 0, 1; a path, cabled as by default" in lines
    assert any("context 256 for 16 sequences" in line for line in lines)
    assert any(line.startswith("replica: lm_head, tied") for line in lines)
    assert any(line.startswith("link: board 0, port 1: ") for line in lines)


def test_many_boards_are_ranges_and_differing_ones_have_a_line_each() -> None:
    lines = table(report(make_plan(LLAMA2_7B, overlay(), board(), 32))).splitlines()
    assert "boards by rank: 0-31; a ring, cabled as by default" in lines
    assert [line for line in lines if line.startswith("boards ") and line.endswith(":")] == [
        "boards 0, 4, 8, 12, 16, 20, 24, 28:",
        "boards 1-3, 5-7, 9-11, 13-15, 17-19, 21-23, 25-27, 29-31:",
    ]
    assert sum("HBM[" in line for line in lines) == 2 and max(map(len, lines[:9])) <= 80
    few = table(report(make_plan(shape_config("gpt2-345m"), overlay(), board(), 4))).splitlines()
    assert sum(line.startswith("0-3 ") for line in few) == sum("DDR" in s for s in few) + 1 == 3
    assert ranges([3, 0, 1, 2, 5, 6]) == "3, 0-2, 5, 6" and ranges([]) == ""


def test_formats_and_the_cache_are_named() -> None:
    config = quantized(GPT2, "w8a8")
    found = report(make_plan(config, load_overlay("lora_q_u280"), board(), 2))
    assert found["formats"] == {"int8": 4 * GPT2.layers + 1} and found["kv_cache"] == "int8"
    assert "13 x int8; KV cache int8" in table(found)


def test_rotary_positions_that_follow_the_context_are_named() -> None:
    longrope = RopeConfig("longrope", 1e4, original_positions=64, context=100)
    config = replace(LLAMA2_7B, rope=longrope)
    found = report(make_plan(config, overlay(), board(), 4, context=100))
    assert found["rope"] == {"type": "longrope", "context": 100}
    assert "longrope for a context of 100; another --ctx-size gives other logits" in table(found)
    yarn = replace(config, rope=RopeConfig("yarn", 1e4))
    assert report(make_plan(yarn, overlay(), board(), 4))["rope"] == {
        "type": "yarn",
        "context": None,
    }
    assert report(make_plan(LLAMA2_7B, overlay(), board(), 4))["rope"] is None


def test_windows_are_named_with_what_happens_to_pages() -> None:
    config = replace(LLAMA2_7B, windows=(100, 0) * 16)
    found = report(make_plan(config, overlay(), board(), 4))
    kept = {"positions": [100], "layers": 16, "of": 32, "pages_returned": False}
    assert found["windows"] == kept
    line = next(line for line in table(found).splitlines() if line.startswith("windows: "))
    assert "16 of 32 layers read the last 100 positions" in line and "keep the pages" in line
    every = replace(LLAMA2_7B, windows=(100, 80) * 16)
    text = table(report(make_plan(every, overlay(), board(), 4)))
    assert "32 of 32 layers read the last 80, 100 positions; sequences return the pages" in text
    assert report(make_plan(LLAMA2_7B, overlay(), board(), 4))["windows"] is None


def test_spill_is_listed_with_its_cost() -> None:
    found = report(make_plan(LLAMA2_7B, overlay(), board(), 1))
    spilled = found["board"][0]["spilled"]
    assert spilled and all(matrix["modelled_extra_ms_a_token"] > 0 for matrix in spilled)
    assert "ms more per token (modelled): layer." in table(found)


def test_the_command_prints_a_table_or_json(folder: Path) -> None:
    text = CliRunner().invoke(command, ["--model", str(folder), "--boards", "4"])
    assert text.exit_code == 0 and "4 x u280" in text.output
    answer = CliRunner().invoke(command, ["--model", str(folder), "--boards", "4", "--json"])
    found = json.loads(answer.output)
    assert found["boards"] == 4 and found["context"] == 384 and found["model"] == str(folder)
    assert "1 x u280" in CliRunner().invoke(command, []).output  # the demo model on one board
    assert "they share" not in text.output
    many = ["--model", "llama2-7b", "--sequences", "64"]
    assert (
        "KV pages of 32 positions, enough for 13 of them"
        in CliRunner().invoke(command, many).output
    )
    shorter = ["--model", str(folder), "--json", "-c", "100", "--sequences", "2"]
    assert json.loads(CliRunner().invoke(command, shorter).output)["kv_pages"] == 4 + 2 * 4


def planned(*arguments: object) -> Any:
    answer = CliRunner().invoke(command, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert answer.exit_code == 0
    return json.loads(answer.output)


def test_a_plan_needs_no_weights(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    bare, whole = planned("--model", tmp_path), planned("--model", folder)
    assert bare.pop("model") == str(tmp_path) and whole.pop("model") == str(folder)
    assert bare == whole
    real = load_overlay("lora_f_u280")
    shape = planned("--model", "gpt2-345m", "--boards", 4)
    assert shape["model"] == "gpt2-345m" and shape["model_positions"] == 1024
    assert (
        shape["board"] == report(make_plan(shape_config("gpt2-345m"), real, real.board, 4))["board"]
    )


def test_boards_of_two_kinds_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    """As a run refuses them."""
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "boards: [{uri: emu:u55c, serial: 1}, {uri: emu:u280, serial: 2}]\n"
        "cables: [{board_a: 0, port_a: 1, board_b: 1, port_b: 0}]\n"
    )
    asked = ["--model", str(folder), "--cluster", str(file)]
    assert planned(*asked, "--boards", 1)["overlay"] == "lora_f_u55c"
    error = CliRunner().invoke(command, asked).exception
    assert isinstance(error, OverlayError)
    assert "board 1 (emu:u280): a u280 found, overlay lora_f_u55c is for a u55c" in str(error)


def test_adapters_are_planned(folder: Path, tmp_path: Path) -> None:
    write_adapter(variant("llama_gqa_tied"), Folder("a", rank=12), tmp_path / "a")
    plain, named = (
        planned("--model", folder, *more)
        for more in ((), ("--adapter", f"a={tmp_path / 'a'}", "--max-adapters", 3))
    )
    assert plain["adapters"] == {"slots": 0, "named": []}
    assert named["adapters"] == {"slots": 3, "named": ["a"]}
    banks = named["board"][0]["banks"]
    assert "adapters" not in plain["board"][0]["banks"][0]
    assert sum(bank["adapters"] for bank in banks) > 0
    for bank in banks:
        names = ("weights", "kv", "tables", "control", "adapters", "free")
        assert sum(bank[name] for name in names) == bank["usable"]
    assert table({**named}).splitlines()[1].split()[-2:] == ["adapters", "free"]


def test_what_does_not_fit_is_said_in_json_and_by_the_exit_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def small(config: Any, overlay: Any, _: Any, *rest: Any, **more: Any) -> Any:
        return make_plan(config, overlay, board(hbm=2048), *rest, **more)

    monkeypatch.setattr(placement, "make_plan", small)
    arguments = ["--model", str(folder), "--boards", "1", "--json"]
    answer = CliRunner().invoke(command, arguments)
    found = json.loads(answer.output)
    assert answer.exit_code == 1 and found["fits"] is False and "MiB" in found["error"]
    with pytest.raises(PlacementError, match="KV cache"):
        CliRunner().invoke(command, arguments[:-1], catch_exceptions=False)


def test_a_shape_has_the_precision_of_the_overlay_as_in_the_laboratory() -> None:
    """One model, one overlay, one time, by both commands; the first line says which weights."""
    overlay_of = ["--model", "llama2-7b", "--overlay", "lora_w4a8_u280"]
    first, *_ = CliRunner().invoke(command, overlay_of).output.splitlines()
    assert first.startswith("llama2-7b, a shape without weights, planned as W4A8 with int8-heads")
    plain, *_ = CliRunner().invoke(command, overlay_of[:2]).output.splitlines()
    assert "planned as FP16" in plain
    modelled = planned(*overlay_of)["modelled"][0]
    report = token_time(make_target("lora_w4a8_u280", None, shape_config("llama2-7b"), 1), "", 128)
    assert modelled["modelled_ms_a_token"] == pytest.approx(report.latency_ms, rel=1e-12)


def test_columns_are_timed_by_the_units_of_the_source() -> None:
    """With the K and V that the laboratory's design has, in the same time."""
    asked = ["--model", "llama2-7b", "--overlay", "lora_channels_u280"]
    modelled = planned(*asked)["modelled"][0]
    assert modelled["units"] == "simulated"
    lines = CliRunner().invoke(command, asked).output.splitlines()
    assert any(line.startswith("modelled, units as simulated: ") for line in lines)
    told = f"it is {modelled['modelled_tokens_per_second']:.1f} (`lora plan "
    page = (Path(__file__).parents[2] / "docs" / "timing.md").read_text(encoding="utf-8")
    assert told in page
    static = make_target("channels-u280", None, shape_config("llama2-7b"), 1)
    report = token_time(static, "", 128)
    assert report.latency_ms < modelled["modelled_ms_a_token"] < 2.2 * report.latency_ms
    spread = planned(*asked, "--boards", "2")["modelled"][0]  # whose waits the units' costs lack
    assert "units" not in spread


def test_a_beam_search_that_is_longer_than_the_model_says_that_it_has_no_times() -> None:
    asked = ["--model", "gpt2-345m", "--beams", "4", "--prompt", "1024", "--response", "1024"]
    said = " ".join(CliRunner().invoke(command, asked).output.split())
    assert "no times: 1024 and 1024 tokens take 2047 positions, the model has 1024" in said
    asked[-1] = "1"
    assert "no times" not in CliRunner().invoke(command, asked).output


def test_the_pages_beam_search_is_what_its_command_prints() -> None:
    page = (Path(__file__).parents[2] / "docs" / "timing.md").read_text(encoding="utf-8")
    (asked,) = re.findall(r"`lora plan (.*--beams.*?)` compares", page)
    found = planned(*asked.split())["beam_search"]
    speeds = [
        found["modelled"][name]["modelled_tokens_per_second"] for name in ("standard", "pages")
    ]
    largest = found["largest_batch"]
    text = " ".join(page.split())
    assert (
        f"hold {largest['standard']} prompts by the standard policy and {largest['pages']}" in text
    )
    assert "modelled {:.1f} and {:.1f} tokens/s".format(*speeds) in text
