"""Section VI.C's analyses and the commands that print them."""

import json

import pytest
from click.testing import CliRunner

from lora_lab.cli.model import model
from lora_lab.timing import analyses


def test_summation_matches_the_paper() -> None:
    found = analyses.summation()
    assert round(found["row"]) == 121
    assert found["communication"] == pytest.approx(220, rel=0.05)
    assert found["longer"] == pytest.approx(1.07, rel=0.05)
    assert found["prefill"] == pytest.approx(3.9, rel=0.05)
    assert found["saved"] == 0.75
    two = analyses.summation(boards=2)
    assert two["communication"] < found["communication"] and two["row"] > found["row"]


def test_reordering_matches_the_paper() -> None:
    found = analyses.reordering()
    assert round(found["tile"]) == 400
    assert found["receive_port"] == pytest.approx(1090, rel=0.02)
    assert found["idle"] == pytest.approx(690, rel=0.02)
    assert found["window"] == pytest.approx(9208, rel=0.005)
    assert found["longer"] == pytest.approx(0.45, rel=0.06)
    assert found["receive"] > found["receive_port"]  # the stated line rate is lower


def test_scaling_deteriorates_with_boards_and_energy_follows_power() -> None:
    gains = analyses.scaling("lora-f")
    assert gains[1] == 1 and 1.5 < gains[2] < 2 and gains[2] < gains[4] < 2 * gains[2]
    assert analyses.energy_per_token("u280", 2, 46.0) == pytest.approx(2.0)


def test_lora_model_prints_reports_and_analyses() -> None:
    run = CliRunner().invoke(model, ["--analyses"])
    assert run.exit_code == 0 and "(9208)" in run.stdout
    arguments = [
        "--design",
        "flightllm-sd",
        "--board",
        "v80",
        "--model",
        "llama3.1-8b",
        "--context",
        "1024",
        "--mode",
        "sd",
        "--verify-length",
        "13",
        "--json",
    ]
    found = json.loads(CliRunner().invoke(model, arguments).stdout)
    assert found["label"] == "modelled" and found["verification_length"] == 13
    assert found["tokens_per_second"] == pytest.approx(87.89, rel=0.05)
    for key in ("latency_ms", "tokens_per_second", "breakdown", "bytes", "utilisation"):
        assert key in found
    assert sum(found["breakdown"].values()) == pytest.approx(found["latency_ms"])


def test_validate_prints_every_row_and_the_parameters() -> None:
    text = CliRunner().invoke(model, ["--validate"]).stdout
    assert sum(line.startswith(("calibrated ", "consistent ")) for line in text.splitlines()) >= 109
    assert "at least 259" in text and "lora_hbm_efficiency" in text
    found = json.loads(CliRunner().invoke(model, ["--validate", "--json"]).stdout)
    assert len(found["rows"]) == found["summary"]["rows"] == 370


def test_validate_begins_and_ends_with_its_summary_and_says_a_reason_once() -> None:
    text = CliRunner().invoke(model, ["--validate"]).stdout
    before, _, after = text.partition("source, metric, conditions")
    for part in (before, after.partition("fitted parameters")[0]):
        assert "calibrated_worst_error" in part and "consistent_mean_error" in part
    assert text.count("(the resource constants are read from this table)") == 0
    assert text.count("] the resource constants are read from this table") == 1
    some = CliRunner().invoke(model, ["--validate", "--status", "inconsistent", "--json"]).stdout
    assert {row["status"] for row in json.loads(some)["rows"]} == {"inconsistent"}
    wrong = CliRunner().invoke(model, ["--validate", "--status", "odd"]).exception
    assert "expected one of calibrated" in str(wrong)


@pytest.mark.parametrize(
    "arguments",
    [["--design", "lora-f"],
     ["--design", "lora-f", "--model", "gpt2-345m", "--context", "9", "--in", "3", "--out", "4"],
     ["--design", "lora-f", "--model", "gpt2-345m", "--context", "9", "--verify-length", "3"]],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(model, arguments).exit_code != 0


def test_a_trace_is_written_beside_the_report(tmp_path) -> None:
    path = tmp_path / "t.json"
    arguments = ["--design", "own-v80", "--model", "gpt2-345m", "--boards", "2", "--context", "64",
                 "--trace", str(path)]  # fmt: skip
    assert CliRunner().invoke(model, arguments).exit_code == 0
    assert json.loads(path.read_text())["otherData"]["boards"] == 2
