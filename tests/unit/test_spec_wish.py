"""From flags to a draft and its trees: the model's table decides where nothing is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lora_host.errors import RequestError
from lora_sdk.spec.table import CurveRecord, Measurement, SpeculationTable, put_tables
from lora_sdk.spec.tree import Tree
from lora_sdk.spec.tune import Choice
from lora_sdk.spec.wish import Target, Wish, resolve

CURVE = CurveRecord(1, 1.0, 0.8, 0.2, 0.99, "fit", (2, 3, 4), 3, 90, False, {2: 1.6, 4: 2.4})
TREES = {2: Tree.chain(2), 3: Tree.by_width((2,)), 4: Tree.chain(4)}
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
    real = resolve(Wish("auto"), target(model))
    assert real.options is not None and real.table is not None
    assert (real.options.proposer, real.options.folder) == ("draft", model.parent / "small")
    assert [real.options.choose(context).size for context in (1, 63, 64, 900)] == [4, 4, 1, 1]
    assert "modelled" in real.note
    emulated = resolve(Wish("auto"), target(model, emulated=True))
    assert emulated.options is not None and emulated.options.proposer == "lookup"
    alone = resolve(Wish("auto", proposer="draft"), target(model, emulated=True))
    assert alone.table is not None and alone.table.objective == "modelled"
    forced = resolve(Wish("auto", objective="modelled"), target(model, emulated=True))
    assert forced.options is not None and forced.options.proposer == "draft"
    assert "4 from 1, 1 from 64; mean speed-up x1.30 of draft" in real.lines()[1]
    told = real.as_dict()["table"]
    assert told["objective"] == "modelled" and told["best_lengths"][0]["rows"] == 4


def test_a_draft_that_does_not_pay_stays_off(model: Path, tmp_path: Path) -> None:
    found = resolve(Wish("auto"), target(model, boards=2))
    assert found.options is None and "eagle3" not in found.as_dict()
    assert "does not pay" in found.note
    assert resolve(Wish("auto"), target(tmp_path)).options is None  # no table at all
    assert resolve(Wish("off"), target(model)).options is None


def test_a_length_takes_the_tables_tree(model: Path) -> None:
    found = resolve(Wish("3"), target(model))
    assert found.options is not None and found.options.choose(500) == Tree.by_width((2,))
    beyond = resolve(Wish("9"), target(model, emulated=True))
    assert beyond.options is not None and beyond.options.choose(1) == Tree.chain(9)
    assert resolve(Wish("1"), target(model)).options is None
    named = resolve(Wish("7", proposer="draft"), target(model))  # the table knows its folder
    assert named.options is not None and named.options.folder == model.parent / "small"


def test_a_named_draft_needs_no_table(model: Path) -> None:
    small, head = model.parent / "small", model.parent / "head"
    found = resolve(Wish("auto", head), target(model))
    assert found.options is not None and found.table is None
    assert (found.options.proposer, found.options.choose(1)) == ("eagle3", Tree.chain(5))
    assert "lora spec tune" in found.note
    window = resolve(Wish("4", small, "longspec"), target(model))
    assert window.options is not None and window.options.proposer == "longspec"
    tuned = resolve(Wish("auto", small), target(model))
    assert tuned.table is not None and tuned.options is not None
    lookup = resolve(Wish("6", proposer="lookup"), target(model))
    assert lookup.options is not None and lookup.options.choose(1) == Tree.chain(6)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish("0"), "1 to 256"),
        (Wish("257"), "1 to 256"),
        (Wish("on"), "expected auto, off or rows"),
        (Wish("off", proposer="lookup"), "a draft is named"),
        (Wish("auto", Path("nowhere")), "no such folder"),
        (Wish("4", proposer="draft"), "expected a folder"),
        (Wish("4", proposer="eagle3"), "expected a folder"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(wish: Wish, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message):
        resolve(wish, target(tmp_path))


def test_a_length_without_any_draft_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="name one with --draft"):
        resolve(Wish("4"), target(tmp_path))
