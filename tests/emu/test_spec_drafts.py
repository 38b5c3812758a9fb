"""Drafts against brute force: every node's candidates are those of the draft run plainly over the
tokens on the way to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError, RequestError
from lora_host.logits import top_tokens
from lora_sdk import Engine
from lora_sdk.model.config import load_config
from lora_sdk.spec.draft_model import DraftModel
from lora_sdk.spec.eagle3 import Eagle3
from lora_sdk.spec.eagle3_config import load_head_config
from lora_sdk.spec.longspec import LongSpec, window_start
from lora_sdk.spec.proposer import Drafting
from lora_sdk.step.tree_shape import TreeShape
from tests.draft_folders import write_head
from tests.variants import variant, write_checkpoint

WHICH = variant("llama_narrow")
TEXT = [(7 * i + 11) % 287 + 3 for i in range(100)]
TREE = TreeShape.by_width((3, 2, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(WHICH, tmp_path_factory.mktemp("drafts") / "model")


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    with Engine(folder) as opened:
        yield opened


def candidates(engine: Engine, tokens: Sequence[int], count: int) -> list[int]:
    sequence = engine.open_sequence()
    logits = engine.prefill(sequence, tokens)
    engine.release(sequence)
    return top_tokens(logits, count)


def brute_force(engine: Engine, tokens: Sequence[int], tree: TreeShape) -> list[int]:
    """The tree's tokens, each from a run of its own."""
    paths = {0: list(tokens)}
    found = [tokens[-1]]
    for node in range(1, tree.size):
        before = paths[tree.parents[node]]
        found.append(candidates(engine, before, tree.ranks[node] + 1)[tree.ranks[node]])
        paths[node] = [*before, found[-1]]
    return found


def decode(drafting: Drafting, accepted: Sequence[int]) -> Iterator[tuple[int, list[int | None]]]:
    """Proposals along a text that is accepted in blocks, now and then one that was drafted."""
    known = 0
    text = list(accepted)
    for block in (1, 40, 2, 1, 3, 20, 1):
        drafting.accept(text[known : known + block])
        known += block
        proposed = drafting.propose(text[known], TREE)
        yield known, proposed
        child = TREE.children(0)[block % 3]  # the target goes on as the draft has said
        text[known + 1] = proposed[child] or 0
        if block % 2:
            text[known + 2] = proposed[TREE.children(child)[0]] or 0


def test_a_draft_model_proposes_its_likeliest_tokens(folder: Path, engine: Engine) -> None:
    draft = DraftModel.open_model(folder, 290, context=384, sequences=2)
    drafting, text = draft.open(), list(TEXT)
    for known, proposed in decode(drafting, text):
        history = drafted_text(drafting, known, proposed)
        assert proposed == brute_force(engine, history, TREE)
    forked = drafting.fork()
    for one in (drafting, forked):
        one.accept([5, 6])
        assert one.propose(7, TREE) == forked.propose(7, TREE)
    drafting.close()
    assert forked.propose(7, TreeShape.chain(3))[1] is not None
    draft.close()


def drafted_text(drafting: object, known: int, proposed: Sequence[int | None]) -> list[int]:
    """What the draft's own books hold, and the pending token: the tokens of rows and commits."""
    cache, sequence = drafting._cache, drafting._sequence  # type: ignore[attr-defined]
    chain = drafting._drafted.chain  # type: ignore[attr-defined]
    rows = cache.uncommitted(sequence)
    tokens = [*cache.tokens(sequence), *(rows[slot].token for slot in chain)]
    assert len(tokens) == known
    return [*tokens, proposed[0] or 0]


def test_a_draft_stops_at_its_own_context(folder: Path) -> None:
    draft = DraftModel.open_model(folder, 290, context=40, sequences=1)
    drafting = draft.open()
    drafting.accept(TEXT[:37])
    found = drafting.propose(1, TreeShape.chain(6))
    assert [token is None for token in found] == [False, False, False, False, True, True]
    drafting.accept([1, 2, 3])
    assert drafting.propose(1, TreeShape.chain(3)) == [1, None, None]
    draft.close()


def test_a_window_moves_in_hops_and_forgets(folder: Path, engine: Engine) -> None:
    assert [window_start(length, 8) for length in (0, 7, 8, 11, 12, 16)] == [0, 0, 4, 4, 8, 12]
    draft = LongSpec.open_model(folder, 290, sequences=1, window=16)
    drafting = draft.open()
    for known in range(1, 60, 7):
        drafting.accept(TEXT[known - 7 if known > 1 else 0 : known])
        start = window_start(known, 16)
        seen = TEXT[start : known + 1]
        assert drafting.propose(TEXT[known], TREE) == brute_force(engine, seen, TREE)
        assert len(seen) <= 16 or start == 0
    draft.close()
    with pytest.raises(RequestError, match="window of 500 tokens"):
        LongSpec.open_model(folder, 290, sequences=1, window=500)


@pytest.mark.parametrize("layer", ["midlayer", "layers.0"])
@pytest.mark.parametrize("residual", [False, True])
def test_a_heads_tree_is_that_of_its_chains(
    layer: str, residual: bool, folder: Path, tmp_path: Path
) -> None:
    """A branch of a tree gets the tokens that it gets alone; blocks of accepted tokens do not
    matter; d2t is added."""
    head = write_head(
        WHICH, tmp_path, 130, layer, norm_before_residual=residual,
        eagle_aux_hidden_state_layer_ids=[0, 1, 3],
    )  # fmt: skip
    proposer = Eagle3.open_head(head, folder, load_config(folder), context=384)
    assert proposer.hidden_layers == (0, 1, 3)
    hidden = np.random.default_rng(1).standard_normal((3, 60, 48)).astype(np.float16)
    whole, single = proposer.open(), proposer.open()
    whole.accept(TEXT[:60], hidden)
    for i in range(60):
        single.accept(TEXT[i : i + 1], hidden[:, i : i + 1])
        if i % 7 == 0:
            single.propose(TEXT[i + 1], TREE)
    found = whole.propose(TEXT[60], TREE)
    assert single.propose(TEXT[60], TREE) == found == whole.fork().propose(TEXT[60], TREE)
    assert all(token is not None and token % 2 == 1 for token in found[1:])  # d2t's tokens
    first = whole.propose(TEXT[60], TreeShape.chain(4))
    best = [0, TREE.children(0)[0]]
    best.append(TREE.children(best[1])[0])
    best.append(TREE.children(best[2])[0])
    assert [found[node] for node in best] == first


def spoilt(tensors: dict[str, np.ndarray], config: dict[str, object], what: str) -> None:
    if what == "missing":
        del tensors["midlayer.mlp.up_proj.weight"]
    elif what == "shape":
        tensors["fc.weight"] = tensors["fc.weight"][:, :-1].copy()
    elif what == "infinite":
        tensors["norm.weight"][3] = np.inf
    elif what == "outside":
        tensors["d2t"][5] = 290
    elif what == "twice":
        tensors["d2t"][5] = tensors["d2t"][4] - 1
    elif what == "layers":
        config["num_hidden_layers"] = 2
    elif what == "target":
        config["vocab_size"] = 291
    else:
        config["eagle_aux_hidden_state_layer_ids"] = [0, 1, 9]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing", "up_proj.weight is missing"),
        ("shape", r"fc.weight is F16 \[48, 143\]"),
        ("infinite", "norm.weight holds NaN or infinity"),
        ("outside", "d2t points outside the 290 tokens"),
        ("twice", "the same token"),
        ("layers", "num_hidden_layers is 2"),
        ("target", "291 tokens, the model has 48 and 290"),
        ("beyond", r"layers \[0, 1, 9\], the model has 3"),
    ],
)
def test_a_damaged_head_is_refused(what: str, message: str, folder: Path, tmp_path: Path) -> None:
    head = write_head(WHICH, tmp_path, 130, eagle_aux_hidden_state_layer_ids=[0, 1, 2])
    tensors = load_file(str(head / "model.safetensors"))
    config = json.loads((head / "config.json").read_text())
    spoilt(tensors, config, what)
    save_file(tensors, str(head / "model.safetensors"))
    (head / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=message):
        Eagle3.open_head(head, folder, load_config(folder), context=64)


def test_layers_of_a_head_that_names_none(folder: Path, tmp_path: Path) -> None:
    config = load_head_config(write_head(WHICH, tmp_path, 130))
    assert config.layers_of(32) == (2, 16, 29)
    with pytest.raises(ModelError, match="layers"):
        config.layers_of(1)


def test_the_default_window_fits_a_short_draft(tmp_path: Path) -> None:
    folder = write_checkpoint(WHICH, tmp_path / "short")
    fields = json.loads((folder / "config.json").read_text())
    fields["max_position_embeddings"] = 96
    (folder / "config.json").write_text(json.dumps(fields))
    draft = LongSpec.open_model(folder, 290, sequences=1)
    try:
        drafting = draft.open()
        drafting.accept(TEXT)  # more than the draft's positions
        assert drafting.propose(5, TreeShape.chain(3))[1] is not None
    finally:
        draft.close()
    with pytest.raises(
        RequestError, match="draft window of 97 tokens; expected 2 to the draft's 96"
    ):
        LongSpec.open_model(folder, 290, 1, 97)
