"""The token level: steps, commits, forks and verification against plain decoding."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import LinkError, LoraError, RequestError
from lora_sdk import Engine, SamplingParams, Tree
from tests.transports import Transport
from tests.variants import variant, write_checkpoint

PROMPT = [(7 * i + 11) % 287 + 3 for i in range(45)]
COUNT = 40
SAMPLED = SamplingParams(
    temperature=0.8, top_k=40, seed=3, repetition_penalty=1.2, frequency_penalty=0.3,
    max_tokens=COUNT, ignore_eos=True,
)  # fmt: skip
GREEDY = SamplingParams(max_tokens=COUNT, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("tokens") / "model")


@pytest.fixture(scope="module")
def engine(folder: Path, transport: Transport) -> Iterator[Engine]:
    with Engine(folder, **transport.named(2), max_sequences=4) as opened:
        yield opened


@pytest.fixture
def sequence(engine: Engine) -> Iterator[int]:
    number = engine.open_sequence()
    yield number
    engine.release(number)


@pytest.fixture(scope="module", params=[GREEDY, SAMPLED], ids=["greedy", "sampled"])
def params(request: pytest.FixtureRequest) -> SamplingParams:
    value = request.param
    assert isinstance(value, SamplingParams)
    return value


@pytest.fixture(scope="module")
def plain(engine: Engine, params: SamplingParams) -> list[int]:
    """What plain decoding emits."""
    return list(engine.generate(PROMPT, params).token_ids)  # type: ignore[union-attr]


def first_token(engine: Engine, sequence: int, params: SamplingParams) -> int:
    logits = engine.prefill(sequence, PROMPT)
    return engine.sampler(params).choose(logits, len(PROMPT), PROMPT, [])[0]


def test_verification_of_one_row_is_plain_decoding(
    engine: Engine, sequence: int, params: SamplingParams, plain: list[int]
) -> None:
    tokens = [first_token(engine, sequence, params)]
    while len(tokens) < COUNT:
        tree = Tree.chain(tokens[-1])
        found = engine.verify(sequence, tree, params, prompt_tokens=len(PROMPT))
        assert len(found.tokens) == 1 and found.accepted == (0,)  # AAT(1) = 1
        tokens += found.tokens
    assert tokens == plain


@pytest.mark.parametrize("siblings", [False, True])
@pytest.mark.parametrize("right", [0, 1, 3, 6])
def test_trees_emit_the_tokens_of_plain_decoding(
    siblings: bool,
    right: int,
    engine: Engine,
    sequence: int,
    params: SamplingParams,
    plain: list[int],
) -> None:
    """Drafts that are right for `right` tokens and wrong after; wrong siblings stand first."""
    tokens = [first_token(engine, sequence, params)]
    while len(tokens) < COUNT:
        good = plain[len(tokens) : len(tokens) + right]
        nodes, parents, last = [tokens[-1]], [-1], 0
        for token in good:
            if siblings:
                nodes.append((token + 1) % 290)
                parents.append(last)
            nodes.append(token)
            parents.append(last)
            last = len(nodes) - 1
        following = plain[len(tokens) + right : len(tokens) + right + 1]
        wrong = (following[0] + 5) % 290 if following else 3
        nodes.append(wrong)
        parents.append(last)
        before = engine.steps
        found = engine.verify(sequence, Tree(nodes, parents), params, prompt_tokens=len(PROMPT))
        assert engine.steps == before + 1  # one step whatever the tree
        assert len(found.tokens) == len(found.accepted)  # accepted drafts + 1, root + drafts
        if len(tokens) + right < COUNT:
            assert len(found.tokens) == right + 1
        tokens += found.tokens
    assert tokens[:COUNT] == plain
    assert engine.length(sequence) == len(PROMPT) + len(tokens) - 1


def test_the_cache_after_verification_is_that_of_plain_decoding(
    engine: Engine, plain: list[int], params: SamplingParams
) -> None:
    """Logits of later rows as bytes, after trees and after plain steps."""
    logits = []
    for drafts in ([], plain[1:5]):
        number = engine.open_sequence()
        tokens = [first_token(engine, number, params)]
        while len(tokens) < 5:
            tree = Tree.chain(tokens[-1], [*drafts[len(tokens) - 1 :], 9])
            tokens += engine.verify(number, tree, params, prompt_tokens=len(PROMPT)).tokens
        rest = plain[engine.length(number) - len(PROMPT) : 12]
        logits.append(engine.prefill(number, rest).tobytes())
        engine.release(number)
    assert logits[0] == logits[1]


def test_without_commit_nothing_moves_until_commit(
    engine: Engine, sequence: int, params: SamplingParams, plain: list[int]
) -> None:
    pending = first_token(engine, sequence, params)
    tree = Tree.chain(pending, plain[1:4])
    found = engine.verify(sequence, tree, params, prompt_tokens=len(PROMPT), commit=False)
    assert engine.length(sequence) == len(PROMPT) and list(found.tokens) == plain[1:5]
    engine.commit(sequence, found.slots[:2])
    assert engine.length(sequence) == len(PROMPT) + 2
    again = engine.verify(sequence, Tree.chain(plain[2]), params, prompt_tokens=len(PROMPT))
    assert list(again.tokens) == [plain[3]]


def test_rows_may_hang_on_uncommitted_ones_of_earlier_steps(engine: Engine, sequence: int) -> None:
    whole = engine.open_sequence()
    expected = engine.prefill(whole, [*PROMPT, 5, 6, 7])
    engine.release(whole)
    engine.prefill(sequence, PROMPT)
    first = engine.rows(sequence, [5, 9], [-1, -1], logits=False)
    engine.step(first)
    second = engine.rows(sequence, [6, 7], after=first[0].slot)
    result = engine.step(second)
    assert result.logits is not None
    assert result.logits[1].tobytes() == expected.tobytes()
    engine.commit(sequence, [first[0].slot, second[0].slot, second[1].slot])
    assert engine.length(sequence) == len(PROMPT) + 3


def test_forks_go_their_own_ways(engine: Engine, sequence: int) -> None:
    engine.prefill(sequence, PROMPT)
    child = engine.fork(sequence)
    mine, its = engine.prefill(sequence, [5, 6]), engine.prefill(child, [8, 9])
    engine.release(child)
    for tail, found in (([5, 6], mine), ([8, 9], its)):
        other = engine.open_sequence()
        assert engine.prefill(other, [*PROMPT, *tail]).tobytes() == found.tobytes()
        engine.release(other)


def test_dropped_rows_leave_no_trace(engine: Engine, sequence: int) -> None:
    expected = engine.prefill(sequence, PROMPT)
    rows = engine.rows(sequence, [1, 2, 3], [-1, -1, 0])
    engine.step(rows)
    engine.drop(sequence)
    other = engine.open_sequence()
    engine.prefill(other, PROMPT)
    assert engine.prefill(sequence, [4]).tobytes() == engine.prefill(other, [4]).tobytes()
    engine.release(other)
    assert expected.dtype == np.float32 and expected.shape == (engine.config.vocabulary,)


def test_hidden_states_come_from_rows_that_want_them(folder: Path) -> None:
    with Engine(folder, boards=4, hidden_layers=[0, 2]) as engine:
        number = engine.open_sequence()
        rows = engine.rows(number, [5, 6, 7], logits=False, hidden=[0, 2])
        result = engine.step(rows)
        assert result.hidden is not None and result.hidden_rows == (0, 2)
        assert result.hidden.shape == (2, 2, engine.config.hidden)
        assert result.hidden.dtype == np.float16


@pytest.mark.parametrize(
    "nodes, parents", [([], []), ([1, 2], [-1, -1]), ([1, 2], [0, -1]), ([1, 2], [-1])]
)
def test_a_tree_has_one_root(
    nodes: list[int], parents: list[int], engine: Engine, sequence: int
) -> None:
    with pytest.raises(RequestError):
        engine.verify(sequence, Tree(nodes, parents))


def test_refusals_at_the_token_level(engine: Engine, sequence: int) -> None:
    engine.prefill(sequence, [5])
    with pytest.raises(RequestError, match=r"set it"):
        engine.verify(sequence, Tree.chain(5), SamplingParams(temperature=1.0))
    with pytest.raises(RequestError, match="rows"):
        engine.verify(sequence, Tree.chain(5, [1] * 64))
    with pytest.raises(RequestError, match="parent of node 1"):
        engine.rows(sequence, [1, 2], [-1, 1])
    with pytest.raises(RequestError, match="not open"):
        engine.rows(63, [1])
    rows = engine.rows(sequence, [1, 290], [-1, 0])
    with pytest.raises(RequestError, match="token 290"):
        engine.step(rows)
    with pytest.raises(RequestError, match="slot"):
        engine.step([rows[0], rows[0]])
    engine.discard(rows)
    with pytest.raises(RequestError, match="slot"):
        engine.step(rows[:1])
    with pytest.raises(RequestError, match="no uncommitted row"):
        engine.commit(sequence, [rows[0].slot])


def test_a_dead_link_fails_the_step_with_its_ends_and_the_request_with_it(folder: Path) -> None:
    from lora_host import abi

    with Engine(folder, boards=4, recovery="off") as engine:
        engine.generate([5, 6], SamplingParams(max_tokens=2))
        emulated = engine.cluster.emulated
        if emulated is None:
            pytest.skip("faults are set on emulated boards")
        emulated.fault(1, abi.FAULT_LINK_DOWN, 1)
        with pytest.raises(LinkError, match="board") as caught:
            engine.generate([5, 6], SamplingParams(max_tokens=2))
        assert isinstance(caught.value, LoraError) and "\n" not in str(caught.value)


def test_check_weights_finds_a_flipped_bit(folder: Path) -> None:
    with Engine(folder, boards=2) as engine:
        engine.check_weights()
        board = engine.plan.boards[1]
        placed = board.matrices["layer.0.qkv"]
        data = engine.cluster.read(board.board, placed.bank_first, 0, 64)
        data[0] ^= 1
        engine.cluster.write(board.board, placed.bank_first, 0, data)
        with pytest.raises(LoraError, match="board"):
            engine.check_weights()
