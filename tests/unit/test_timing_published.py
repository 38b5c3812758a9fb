"""The model against the papers' printed numbers."""

import pytest

from lora_lab.timing import facts
from lora_lab.timing.validate import CALIBRATED, CONSISTENT, STATUSES, errors, validate


@pytest.fixture(scope="module")
def rows():
    return validate()


def test_calibrated_rows_within_five_percent(rows) -> None:
    values = errors(rows, CALIBRATED)
    assert len(values) >= 18
    assert max(values) <= 0.05


def test_other_consistent_rows_within_fifteen_percent_and_six_on_average(rows) -> None:
    values = errors(rows, CONSISTENT)
    assert len(values) >= 90
    assert max(values) <= 0.15
    assert sum(values) / len(values) <= 0.06


def test_every_row_says_where_it_stands(rows) -> None:
    assert {row.status for row in rows} <= set(STATUSES)
    for row in rows:
        if row.status in (CALIBRATED, CONSISTENT):
            assert row.model is not None, row
        if row.status in ("inconsistent", "outside"):
            assert row.note, row


def test_at_most_twelve_fitted_parameters_each_with_meaning_source_and_use() -> None:
    used = (facts.DATA / "designs.yaml").read_text()
    assert 0 < len(facts.parameters()) <= 12
    for entry in facts.parameters().values():
        assert entry.meaning and entry.source and entry.unit
        assert f": {entry.name}\n" in used or f": {entry.name} " in used


@pytest.mark.parametrize(
    "name", ["lora_hbm_efficiency", "fill_cycles", "tile_cycles", "start_cycles", "dfx_utilisation",
             "flightllm_hbm_efficiency", "flightllm_issue_cycles", "flightllm_kv_factor",
             "speculation_hbm_efficiency", "speculation_kv_factor", "sum_cycles", "rest_cycles"],
)  # fmt: skip
def test_each_parameter_matters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled, or halved where it is a part of memory's rate, every fitted parameter breaks a
    calibrated row."""
    from dataclasses import replace

    from lora_lab.timing import quantities

    changed = dict(facts.parameters())
    factor = 0.5 if name.endswith("efficiency") else 2
    changed[name] = replace(changed[name], value=changed[name].value * factor)
    monkeypatch.setattr(facts, "parameters", lambda: changed)
    quantities._target.cache_clear()
    quantities._run_report.cache_clear()
    try:
        assert max(errors(validate(CALIBRATED), CALIBRATED)) > 0.05
    finally:
        quantities._target.cache_clear()
        quantities._run_report.cache_clear()
