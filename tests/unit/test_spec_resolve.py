"""From flags to a draft and its trees: the model's table decides where nothing is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.spec.resolve import SpeculationRequest, Target, resolve
from lora_sdk.spec.table import Choice, CurveRecord, Measurement, SpeculationTable, put_tables
from lora_sdk.step.tree_shape import TreeShape

CURVE = CurveRecord(1, 1.0, 0.8, 0.2, 0.99, "fit", (2, 3, 4), 3, 90, False, {2: 1.6, 4: 2.4})
TREES = {2: TreeShape.chain(2), 3: TreeShape.by_width((2,)), 4: TreeShape.chain(4)}
CHOICES = (Choice(1, 4, 2.4, 1.0, 1.2, 0.3, 1.6), Choice(64, 1, 1.0, 1.0, 1.0, 0.0, 1.0))
OFF = (Choice(1, 1, 1.0, 1.0, 1.0, 0.0, 1.0),)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with tables: a draft that pays by the model, look-up that pays by the clock, and on
    two boards a head that does not."""
    for name, fields in (("small", {}), ("head", {"draft_vocab_size": 5})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(fields))
    folder = tmp_path / "model"
    folder.mkdir()
    draft = Measurement("draft", "../small", 0.0, "text", 8, TREES, (CURVE,))
    table = SpeculationTable(
        "model", "u280", 1, "lora_f_u280", "modelled", "", "", draft, CHOICES, folder
    )
    lookup = replace(draft, proposer="lookup", draft=None)
    head = replace(draft, proposer="eagle3", draft="../head")
    tables = [
        table,
        replace(table, objective="wall", machine="here", kernels="native", measurement=lookup),
        replace(table, boards=2, measurement=head, choices=OFF),
    ]
    put_tables(folder / "speculation.json", "model", tables)
    return folder


def target(model: Path, boards: int = 1, emulated: bool = False) -> Target:
    return Target(model, "lora_f_u280", boards, emulated)


def test_auto_follows_the_table_of_real_boards_or_of_emulated_ones(model: Path) -> None:
    real = resolve(SpeculationRequest("auto"), target(model))
    assert real.options is not None and real.table is not None
    assert (real.options.proposer, real.options.folder) == ("draft", model.parent / "small")
    assert [real.options.choose(context).size for context in (1, 63, 64, 900)] == [4, 4, 1, 1]
    assert "modelled" in real.note
    emulated = resolve(SpeculationRequest("auto"), target(model, emulated=True))
    assert emulated.options is not None and emulated.options.proposer == "lookup"
    alone = resolve(SpeculationRequest("auto", proposer="draft"), target(model, emulated=True))
    assert alone.table is not None and alone.table.objective == "modelled"
    forced = resolve(SpeculationRequest("auto", objective="modelled"), target(model, emulated=True))
    assert forced.options is not None and forced.options.proposer == "draft"
    assert "of 4 rows from context 1, 1 row from context 64 on" in real.lines()[1]
    (_, off) = resolve(SpeculationRequest("auto"), target(model, boards=2)).lines()
    assert off == "modelled: eagle3 is off, plain decoding is at least as fast"
    told = real.as_dict()["table"]
    assert told["objective"] == "modelled" and told["best_lengths"][0]["rows"] == 4


def test_a_draft_that_does_not_pay_stays_off(model: Path, tmp_path: Path) -> None:
    found = resolve(SpeculationRequest("auto"), target(model, boards=2))
    assert found.options is None and "eagle3" not in found.as_dict()
    assert "does not pay" in found.note
    assert resolve(SpeculationRequest("auto"), target(tmp_path)).options is None  # no table at all
    assert resolve(SpeculationRequest("off"), target(model)).options is None


def test_a_length_takes_the_tables_tree(model: Path) -> None:
    found = resolve(SpeculationRequest("3"), target(model))
    assert found.options is not None and found.options.choose(500) == TreeShape.by_width((2,))
    beyond = resolve(SpeculationRequest("9"), target(model, emulated=True))
    assert beyond.options is not None and beyond.options.choose(1) == TreeShape.chain(9)
    assert resolve(SpeculationRequest("1"), target(model)).options is None
    named = resolve(
        SpeculationRequest("7", proposer="draft"), target(model)
    )  # the table knows its folder
    assert named.options is not None and named.options.folder == model.parent / "small"


def test_a_named_draft_needs_no_table(model: Path) -> None:
    small, head = model.parent / "small", model.parent / "head"
    found = resolve(SpeculationRequest("auto", head), target(model))
    assert found.options is not None and found.table is None
    assert (found.options.proposer, found.options.choose(1)) == ("eagle3", TreeShape.chain(5))
    assert "lora lab spec tune" in found.note
    window = resolve(SpeculationRequest("4", small, "longspec"), target(model))
    assert window.options is not None and window.options.proposer == "longspec"
    tuned = resolve(SpeculationRequest("auto", small), target(model))
    assert tuned.table is not None and tuned.options is not None
    lookup = resolve(SpeculationRequest("6", proposer="lookup"), target(model))
    assert lookup.options is not None and lookup.options.choose(1) == TreeShape.chain(6)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (SpeculationRequest("0"), "1 to 256"),
        (SpeculationRequest("257"), "1 to 256"),
        (SpeculationRequest("on"), "expected auto, off or rows"),
        (SpeculationRequest("off", proposer="lookup"), "a draft is named"),
        (SpeculationRequest("auto", Path("nowhere")), "no such folder"),
        (SpeculationRequest("4", proposer="draft"), "expected a folder"),
        (SpeculationRequest("4", proposer="eagle3"), "expected a folder"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(
    asked: SpeculationRequest, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError, match=message):
        resolve(asked, target(tmp_path))


def test_a_length_without_any_draft_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="name one with --draft"):
        resolve(SpeculationRequest("4"), target(tmp_path))
