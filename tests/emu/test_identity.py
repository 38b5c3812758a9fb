"""The strongest promise: logits are the same bytes over boards, step grouping, kernels, batch order
and verification with siblings, equal to an independent implementation and to committed digests."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.emu import kv_pages
from lora_host.errors import LoraError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.step.runner import KvOp, Row, Runner
from tests.drive import Driver, Logits, open_runner
from tests.oracle.forward import Oracle, load_weights
from tests.transports import Transport
from tests.variants import variant, write_checkpoint

DIGESTS = Path(__file__).parent / "identity.json"
NAMES = ("gpt2", "opt_post_norm", "llama_gqa_bias", "llama_llama3", "llama_narrow")
LENGTH = 331  # beyond ten tiles, no multiple of 32
CUTS = {"long": (64,), "uneven": (1, 37, 5, 64, 2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("identity")

    def write(name: str) -> Path:
        target = root / name
        return target if target.exists() else write_checkpoint(variant(name), target)

    return write


def tokens_of(name: str, length: int = LENGTH, seed: int = 0) -> list[int]:
    """The same tokens on every machine: a digest's bytes modulo the vocabulary."""
    size = int(variant(name).config["vocab_size"])
    data = hashlib.shake_256(f"{name}/{seed}".encode()).digest(4 * length)
    return [int(t) % size for t in np.frombuffer(data, "<u4")]


def digest(logits: Logits) -> str:
    return hashlib.sha256(np.ascontiguousarray(logits, "<f4").tobytes()).hexdigest()


@pytest.fixture(scope="module")
def expected(folder: Callable[[str], Path]) -> Callable[[str], Logits]:
    made: dict[str, Logits] = {}

    def of(name: str) -> Logits:
        if name not in made:
            checkpoint = Checkpoint.open(folder(name))
            oracle = Oracle(checkpoint.config, load_weights(checkpoint))
            made[name] = oracle.logits(tokens_of(name))
        return made[name]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_the_independent_implementation_has_the_committed_digest(
    name: str, expected: Callable[[str], Logits]
) -> None:
    assert digest(expected(name)) == json.loads(DIGESTS.read_text())[name]


@pytest.mark.light(name=("gpt2", "llama_gqa_bias"), boards=(2,))
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_prefill_and_decode(
    name: str,
    boards: int,
    folder: Callable[[str], Path],
    expected: Callable[[str], Logits],
    transport: Transport,
) -> None:
    want = expected(name)
    tokens = tokens_of(name)
    with open_runner(folder(name), boards, sequences=3, transport=transport) as runner:
        driver = Driver(runner)
        for number, cuts in enumerate(CUTS.values()):
            got = driver.feed(number, tokens, cuts)
            assert got.tobytes() == want.tobytes(), f"cuts {cuts}"


@pytest.mark.light(boards=(4,))
@pytest.mark.parametrize("boards", [1, 4])
def test_batch_order_changes_nothing(
    boards: int,
    folder: Callable[[str], Path],
    expected: Callable[[str], Logits],
    transport: Transport,
) -> None:
    """Three sequences of one model, interleaved row by row and in different orders."""
    name = "llama_gqa_bias"
    full, want = tokens_of(name), expected(name)
    starts = {2: full[:40], 0: full[:13], 1: full[:11]}
    with open_runner(folder(name), boards, sequences=3, transport=transport) as runner:
        driver = Driver(runner)
        got = driver.step(starts, interleave=True)
        for number, tokens in starts.items():
            assert got[number].tobytes() == want[: len(tokens)].tobytes()
        for turn, order in enumerate([(0, 1, 2), (2, 1, 0), (1, 0, 2)]):
            at = {n: len(starts[n]) + turn for n in order}
            got = driver.step({n: [full[at[n]]] for n in order})
            for n in order:
                assert got[n].tobytes() == want[at[n] : at[n] + 1].tobytes()


@pytest.mark.light(boards=(2,))
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
def test_siblings_and_commit_of_one_path(
    boards: int,
    folder: Callable[[str], Path],
    expected: Callable[[str], Logits],
    transport: Transport,
) -> None:
    """A verification tree whose right branch is hidden among wrong siblings, over a tile's edge,
    then plain decoding after the commit of that branch."""
    name = "llama_llama3"
    with open_runner(folder(name), boards, sequences=1, transport=transport) as runner:
        verify_tree(runner, tokens_of(name), expected(name))


def verify_tree(runner: Runner, tokens: list[int], want: Logits, start: int = 318) -> None:
    """Rows at `start`..+4 with a wrong sibling each; logits of the right rows, of one wrong
    row (against nothing: it must differ), and of the rows after the commit."""
    driver = Driver(runner)
    driver.feed(0, tokens[:start], (64,))
    path: list[int] = []
    ops = driver._commits([0], path)
    sequence = driver.sequences[0]
    ops += driver._pages(sequence, start + 8)
    slots = [20, 21, 22, 23, 24, 25, 26, 27, 28] if path and path[0] >= 64 else list(range(90, 99))
    rows = [Row(0, start, tokens[start], slots[0], -1, want_logits=True)]
    parent = slots[0]
    for depth in range(1, 5):
        position = start + depth
        wrong = (tokens[position] + 1) % len(want[0])
        rows.append(Row(0, position, wrong, slots[2 * depth - 1], parent, want_logits=True))
        right = slots[2 * depth]
        rows.append(Row(0, position, tokens[position], right, parent, want_logits=True))
        parent = right
    result = runner.step(rows, ops, path)
    assert result.logits is not None
    for depth in range(5):
        row = 2 * depth
        assert result.logits[row].tobytes() == want[start + depth].tobytes(), f"depth {depth}"
    assert result.logits[1].tobytes() != want[start + 1].tobytes()
    chosen = [slots[2 * depth] for depth in range(5)]
    free = 40 if slots[0] >= 64 else 100
    after = Row(0, start + 5, tokens[start + 5], free, -1, want_logits=True)
    commit = KvOp.commit(0, start, 0, len(chosen))
    result = runner.step([after], [commit], chosen)
    assert result.logits is not None
    assert result.logits[0].tobytes() == want[start + 5].tobytes()


@pytest.mark.parametrize("name", ["llama_gqa_bias", "opt_post_norm"])
def test_numpy_and_native_kernels(
    name: str, folder: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    want = expected(name)[:70]
    with open_runner(folder(name), 2, kernels="numpy", sequences=1) as runner:
        got = Driver(runner).feed(0, tokens_of(name)[:70], (64, 3, 1))
    assert got.tobytes() == want.tobytes()


def fails(run: Callable[[], None]) -> bool:
    """Whether an identity check notices: wrong bytes, or an error of ours."""
    try:
        run()
    except (AssertionError, LoraError):
        return True
    return False


@pytest.fixture
def numpy_runner(folder: Callable[[str], Path]) -> Iterator[Runner]:
    with open_runner(folder("llama_llama3"), 2, kernels="numpy", sequences=1) as runner:
        yield runner


def check_tree(runner: Runner, expected: Callable[[str], Logits], start: int = 40) -> None:
    verify_tree(runner, tokens_of("llama_llama3"), expected("llama_llama3"), start)


def test_the_check_passes_unaltered(
    numpy_runner: Runner, expected: Callable[[str], Logits]
) -> None:
    check_tree(numpy_runner, expected)


def test_notices_a_block_filed_under_the_wrong_source(
    folder: Callable[[str], Path], expected: Callable[[str], Logits], transport: Transport
) -> None:
    with open_runner(folder("llama_llama3"), 2, sequences=1, transport=transport) as runner:
        transport.fault(runner.cluster, 1, abi.FAULT_MISFILE)
        assert fails(lambda: check_tree(runner, expected))


def test_notices_an_altered_scratch_slot(
    numpy_runner: Runner,
    expected: Callable[[str], Logits],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K and V of the tree's third row go to another slot than the row says."""
    step = numpy_runner.step

    def altered(rows: list[Row], ops: object = (), path: object = ()) -> object:
        if len(rows) == 9:
            rows = [*rows]
            a, b = rows[1], rows[2]
            rows[1] = Row(a.sequence, a.position, a.token, b.slot, a.parent, want_logits=True)
            rows[2] = Row(b.sequence, b.position, b.token, a.slot, b.parent, want_logits=True)
        return step(rows, ops, path)  # type: ignore[arg-type]

    monkeypatch.setattr(numpy_runner, "step", altered)
    assert fails(lambda: check_tree(numpy_runner, expected))


def test_notices_another_unit_size(
    numpy_runner: Runner,
    expected: Callable[[str], Logits],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sums of q.k and of the norms cut into units of 16 columns instead of 32."""

    def by_16(columns: int) -> tuple[tuple[int, int], ...]:
        units = -(-columns // 16)
        ends = [min(columns, s * units // 8 * 16) for s in range(9)]
        return tuple((ends[s], ends[s + 1]) for s in range(8))

    # by name: the package exports functions of the same names
    attention = importlib.import_module("lora_host.emu.attention")
    norm = importlib.import_module("lora_host.emu.norm")
    monkeypatch.setattr(attention, "segment_bounds", by_16)
    monkeypatch.setattr(norm, "segment_bounds", by_16)
    monkeypatch.setattr(
        attention, "longest_segment", lambda n: max(end - start for start, end in by_16(n))
    )
    assert fails(lambda: check_tree(numpy_runner, expected))


def test_notices_an_altered_sibling_mask(
    numpy_runner: Runner,
    expected: Callable[[str], Logits],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows see the wrong sibling of each ancestor in its place."""
    chain = kv_pages._chain

    def siblings(call: object, chains: dict[int, list[int]], slot: int) -> list[int]:
        path = chain(call, chains, slot)  # type: ignore[arg-type]
        return [max(path[0], s - 1) for s in path[:-1]] + path[-1:]

    monkeypatch.setattr(kv_pages, "_chain", siblings)
    assert fails(lambda: check_tree(numpy_runner, expected))
