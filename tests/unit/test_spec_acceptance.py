"""Rounds simulated from ranks, against decoding written out; measured acceptance in files."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import (
    MISSED,
    Acceptance,
    TextRanks,
    lengths_of,
    node_indices,
    of_single_ranks,
    rounds_of,
)
from lora_lab.spec_tuning.acceptance_file import Measured, load_measured, save_measured
from lora_lab.spec_tuning.comparison import deviation, gain
from lora_lab.spec_tuning.tree_search import maximal_tree
from lora_sdk.step.tree_shape import TreeShape
from tests.bootstrap import bootstrap_gain

DEPTH = 5


def acceptance(seed: int, texts: int = 6, proposed: bool = False) -> Acceptance:
    """Texts of ranks as a draft would have them: mostly 0, some missed."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(texts):
        values = random.choice([0, 1, 2, 3, MISSED], (40 + number, DEPTH), p=[0.6, 0.2, 0.1, 0.05,
                                                                              0.05])  # fmt: skip
        mask = None
        if proposed:
            mask = random.random((len(values), maximal_tree(DEPTH, 6).size)) < 0.7
        found.append(TextRanks(10 + number, values.astype(np.uint8), mask))
    return Acceptance(maximal_tree(DEPTH, 6), tuple(found))


def decoded(tree: TreeShape, found: Acceptance, contexts: range | None) -> list[int]:
    """Tokens of every round, by walking the tree node for node."""
    emitted = []
    for text in found.texts:
        root = 0
        while root < len(text.ranks):
            node, count = 0, 1
            for rank in text.ranks[root]:
                below = [c for c in tree.children(node) if tree.ranks[c] == rank]
                if not below:
                    break
                node, count = below[0], count + 1
            if contexts is None or text.context + root in contexts:
                emitted.append(count)
            root += count
    return emitted


@pytest.mark.parametrize("contexts", [None, range(20, 35)])
def test_rounds_are_those_of_decoding(contexts: range | None) -> None:
    found = acceptance(1)
    for tree in (
        TreeShape(),
        TreeShape.chain(4),
        TreeShape.by_width((3, 2, 1)),
        TreeShape.by_width((2,) * DEPTH),
    ):
        rounds = rounds_of(tree, found, contexts)
        assert rounds.emitted.tolist() == decoded(tree, found, contexts)
        assert rounds.aat == pytest.approx(np.mean(decoded(tree, found, contexts)))
    assert rounds_of(TreeShape(), found).leaf_share == 1.0
    chain = rounds_of(TreeShape.chain(3), found)
    assert chain.leaf_share == pytest.approx(np.mean(chain.emitted == 3))
    with pytest.raises(RequestError, match="no round"):
        _ = rounds_of(TreeShape(), found, range(900, 901)).aat


def test_rows_verified_are_the_proposed_ones() -> None:
    plain, sparse = acceptance(2), acceptance(2, proposed=True)
    tree = TreeShape.by_width((2, 1))
    rounds = rounds_of(tree, plain)
    assert lengths_of(rounds, plain) == Counter({5: len(rounds.roots)})
    nodes = node_indices(tree, sparse.maximal)
    mask = np.concatenate([t.proposed for t in sparse.texts])  # type: ignore[list-item]
    expected = Counter(int(mask[root, nodes].sum()) for root in rounds.roots)
    assert lengths_of(rounds, sparse) == expected
    with pytest.raises(RequestError, match="not in the maximal tree"):
        node_indices(TreeShape.by_width((9,)), sparse.maximal)


def test_ranks_of_a_draft_that_sees_tokens_only_are_windows() -> None:
    text = of_single_ranks(7, [0, 3, 300, 1, 0], 3)
    assert text.ranks.tolist() == [[0, 3, MISSED], [3, MISSED, 1], [MISSED, 1, 0]]
    with pytest.raises(RequestError, match="at least 9"):
        of_single_ranks(7, [0, 1], 9)


def test_shapes_are_checked() -> None:
    ranks = np.zeros((4, DEPTH), np.uint8)
    for arguments, words in (
        ((1, ranks.astype(np.int32)), "uint8"),
        ((1, ranks[0]), "uint8"),
        ((0, ranks), "expected 1 on"),
        ((1, ranks, np.ones((3, 5), bool)), "as many"),
    ):
        with pytest.raises(RequestError, match=words):
            TextRanks(*arguments)  # type: ignore[arg-type]
    whole = TextRanks(1, ranks)
    with pytest.raises(RequestError, match="no text"):
        Acceptance(TreeShape(), ())
    with pytest.raises(RequestError, match="different depth"):
        Acceptance(TreeShape(), (whole, TextRanks(1, ranks[:, :2])))
    with pytest.raises(RequestError, match="expected all"):
        Acceptance(TreeShape(), (whole, TextRanks(1, ranks, np.ones((4, 1), bool))))
    with pytest.raises(RequestError, match="maximal tree has 1"):
        Acceptance(TreeShape(), (TextRanks(1, ranks, np.ones((4, 3), bool)),))


def measured(proposed: bool) -> Measured:
    search, held_out = acceptance(3, proposed=proposed), acceptance(4, 3, proposed=proposed)
    return Measured("demo", "lookup" if proposed else "draft", None, 0.5, "a.txt", search, held_out)


@pytest.mark.parametrize("proposed", [False, True])
def test_files_give_back_what_was_measured(proposed: bool, tmp_path: Path) -> None:
    path, before = tmp_path / "ranks.npz", measured(proposed)
    save_measured(path, before)
    after = load_measured(path)
    assert (after.model, after.proposer, after.temperature) == ("demo", before.proposer, 0.5)
    for one, other in ((before.search, after.search), (before.held_out, after.held_out)):
        assert one.maximal == other.maximal
        assert np.array_equal(one.ranks, other.ranks)
        assert np.array_equal(one.contexts, other.contexts)
        assert (one.proposed is None) == (other.proposed is None)
        if one.proposed is not None and other.proposed is not None:
            assert np.array_equal(one.proposed, other.proposed)


def test_windows_are_kept_as_single_ranks(tmp_path: Path) -> None:
    texts = tuple(of_single_ranks(3, [0, 1, 0, 2, 0, 0, MISSED, 0], DEPTH) for _ in range(2))
    found = Acceptance(maximal_tree(DEPTH, 6), texts)
    path = tmp_path / "ranks.npz"
    save_measured(path, Measured("m", "draft", "d", 0.0, "t", found, found))
    with np.load(path) as file:
        assert file["search_single"].shape == (16,) and "search_ranks" not in file.files
    assert np.array_equal(load_measured(path).search.ranks, found.ranks)


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "ranks.npz"
    save_measured(path, measured(True))
    good = dict(np.load(path))
    facts = json.loads(str(good["facts"]))
    for change in (
        {"facts": np.array(json.dumps({**facts, "version": 99}))},
        {"facts": np.array("[]")},
        {"search_roots": np.array([-4, 8], np.int32)},
        {"search_roots": good["search_roots"] + 1},
        {"search_ranks": good["search_ranks"].astype(np.float64)},
        {"search_tree": np.array([[-1, 5], [0, 0]], np.int16)},
        {"search_proposed": good["search_proposed"][:, :1]},
        {"search_depth": np.array(0)},
    ):
        np.savez(path, **{**good, **change})
        with pytest.raises(RequestError) as caught:
            load_measured(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RequestError):
        load_measured(path)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("facts.npy", b"nothing")
    with pytest.raises(RequestError):
        load_measured(path)
    with pytest.raises(RequestError, match="No such file"):
        load_measured(tmp_path / "absent.npz")


def test_gains_are_paired_over_texts() -> None:
    found = acceptance(5, texts=60)
    count = len(found.texts)
    long, short = rounds_of(TreeShape.chain(5), found), rounds_of(TreeShape.chain(2), found)
    more, error = gain(long, short, count)
    assert more == pytest.approx(long.aat - short.aat) and 0 < error < more / 5
    assert gain(long, long, count) == (0.0, 0.0)
    interval = bootstrap_gain([long], [short], count)
    assert interval.low < more < interval.high and interval.low > 0
    # the bootstrap's spread is about four standard errors of a normal deviate
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.15)
    assert bootstrap_gain([short], [short], count).high == 0.0
    assert deviation(long, long.aat, count) == 0.0 and deviation(long, short.aat, count) > 5
