"""Adapters through the engine: admission, slots, pins, errors; tokens are those of a run alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import AdapterError, TransportError
from lora_sdk import Engine, SamplingParams
from lora_sdk.step.results import Result
from lora_sdk.step.verify import Tree
from tests.adapter_folders import Folder, write_adapter
from tests.variants import variant, write_checkpoint

NAME = "llama_narrow"
RANKS = (4, 8, 16, 24)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant(NAME), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Adapter i, of mixed ranks, every second one BD-LoRA."""
    root = tmp_path_factory.mktemp("adapters")

    def of(i: int, rank: int | None = None) -> Path:
        size = rank or RANKS[i % len(RANKS)]
        path = root / f"{i}-{size}"
        folder = Folder(f"{i}", rank=size, blocks=4 * (i % 2))
        return path if path.exists() else write_adapter(variant(NAME), folder, path)

    return of


@pytest.fixture
def engine(model: Path) -> Iterator[Engine]:
    with Engine(model, boards=2, max_adapters=2, max_adapter_rank=24, max_sequences=6) as opened:
        yield opened


def params(name: str | None, tokens: int = 6) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, adapter=name, ignore_eos=True)


def tokens_of(results: Result | list[Result]) -> list[tuple[int, ...]]:
    several = results if isinstance(results, list) else [results]
    return [result.outputs[0].token_ids for result in several]


def test_a_mixed_batch_gives_each_what_it_gives_alone(
    engine: Engine, adapter: Callable[[int], Path]
) -> None:
    """More adapters than slots: the others wait for a slot, in order."""
    names: list[str | None] = [None]
    for i in range(5):
        engine.load_adapter(f"a{i}", adapter(i))
        names.append(f"a{i}")
    prompt = [5, 9, 17, 33]
    alone = {name: tokens_of(engine.generate(prompt, params(name)))[0] for name in names}
    assert len(set(alone.values())) > 3  # adapters do change the tokens
    order = [names[i % len(names)] for i in range(18)]
    together = engine.generate([prompt] * len(order), [params(name) for name in order])
    assert tokens_of(together) == [alone[name] for name in order]
    assert sum(info.slot is not None for info in engine.adapters()) == 2
    assert all(info.users == 0 for info in engine.adapters())


def test_the_least_recently_used_goes_and_only_its_own_bytes_move(
    engine: Engine, adapter: Callable[[int], Path]
) -> None:
    infos = {i: engine.load_adapter(f"a{i}", adapter(i)) for i in range(3)}
    slots = engine._adapters
    assert slots.swap_bytes == 0
    for i in (0, 1, 0, 2):
        engine.generate([3, 4], params(f"a{i}", 1))
    assert {a.name for a in engine.adapters() if a.slot is not None} == {"a0", "a2"}
    assert slots.swaps == 3 and slots.swap_bytes == sum(info.bytes for info in infos.values())


def test_a_slot_is_pinned_while_a_sequence_uses_it(
    engine: Engine, adapter: Callable[[int], Path]
) -> None:
    for i in range(3):
        engine.load_adapter(f"a{i}", adapter(i))
    first, second = engine.open_sequence("a0"), engine.open_sequence("a1")
    with pytest.raises(AdapterError, match="all 2 slots are in use"):
        engine.open_sequence("a2")
    with pytest.raises(AdapterError, match="is used by 1 sequences"):
        engine.unload_adapter("a0")
    child = engine.fork(first)
    engine.release(first)
    with pytest.raises(AdapterError, match="is used by 1 sequences"):  # by the fork
        engine.unload_adapter("a0")
    engine.release(child)
    engine.unload_adapter("a0")
    engine.open_sequence("a2")
    engine.release(second)
    assert [info.name for info in engine.adapters()] == ["a1", "a2"]


def test_verification_is_lossless_with_respect_to_the_adapted_model(
    engine: Engine, adapter: Callable[[int], Path]
) -> None:
    engine.load_adapter("a", adapter(1))
    prompt = [7, 8, 9]
    want = tokens_of(engine.generate(prompt, params("a", 8)))[0]
    plain = tokens_of(engine.generate(prompt, params(None, 8)))[0]
    assert want != plain
    sequence = engine.open_sequence("a")
    logits = engine.prefill(sequence, prompt)
    got = [int(np.argmax(logits))]
    while len(got) < 8:
        tree = Tree((got[-1], plain[len(got)], want[len(got)]), (-1, 0, 0))
        got += engine.verify(sequence, tree).tokens
    assert tuple(got[:8]) == want


@pytest.mark.parametrize("mode", ["auto", "nfs", "s"])
@pytest.mark.parametrize("boards", [1, 2, 4])
def test_tokens_are_the_same_over_modes_and_boards(
    mode: str, boards: int, model: Path, adapter: Callable[[int], Path], engine: Engine
) -> None:
    engine.load_adapter("a", adapter(3))
    want = tokens_of(engine.generate([1, 2, 3], params("a", 12)))
    with Engine(
        model, boards=boards, max_adapters=1, max_adapter_rank=32, adapter_mode=mode
    ) as other:
        other.load_adapter("a", adapter(3))
        assert tokens_of(other.generate([1, 2, 3], params("a", 12))) == want


def test_clear_errors(engine: Engine, adapter: Callable[[int], Path], model: Path) -> None:
    engine.load_adapter("first", adapter(0))
    with pytest.raises(AdapterError, match="'first' is loaded already"):
        engine.load_adapter("first", adapter(1))
    with pytest.raises(AdapterError, match="'fist' is not loaded; did you mean 'first'"):
        engine.generate([1], params("fist"))
    with pytest.raises(AdapterError, match="rank 40, the slots take at most 24"):
        engine.load_adapter("big", adapter(6, rank=40))
    with pytest.raises(AdapterError, match="'none' is not loaded"):
        engine.unload_adapter("none")
    with Engine(model) as without, pytest.raises(AdapterError, match="without adapter slots"):
        without.load_adapter("a", adapter(0))
    with Engine(model, boards=2, max_adapters=1, adapter_mode="bd") as sharded:
        sharded.load_adapter("b", adapter(1))
        with pytest.raises(AdapterError, match="is not a BD-LoRA adapter"):
            sharded.load_adapter("a", adapter(0))


def test_an_interrupted_swap_leaves_the_others_in_their_slots(
    engine: Engine, adapter: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        engine.load_adapter(f"a{i}", adapter(i))
    want = {i: tokens_of(engine.generate([2, 3], params(f"a{i}"))) for i in range(3)}
    write, left = engine.cluster.write, [3]

    def failing(*arguments: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise TransportError("the transport went away")
        write(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(engine.cluster, "write", failing)
        with pytest.raises(TransportError):
            engine.generate([2, 3], params("a0"))
    slots = {info.name: info.slot for info in engine.adapters()}
    assert slots["a0"] is None and sum(slot is not None for slot in slots.values()) == 1
    assert engine._cache.free_sequences == 6
    for i in (2, 1, 0):
        assert tokens_of(engine.generate([2, 3], params(f"a{i}"))) == want[i]


def test_64_adapters_8_slots_200_requests(model: Path, tmp_path: Path) -> None:
    """Ranks 4 to 256 in one batch; each output is that of a run of its own."""
    rng = random.Random(9)
    ranks = [rng.choice((4, 8, 12, 16, 32, 64, 128, 256)) for _ in range(64)]
    with Engine(model, boards=4, max_adapters=8, max_adapter_rank=256, max_sequences=24) as engine:
        for i, rank in enumerate(ranks):
            folder = Folder(f"m{i}", rank=rank, blocks=4 * (i % 2), config={"lora_alpha": 8})
            engine.load_adapter(f"m{i}", write_adapter(variant(NAME), folder, tmp_path / f"{i}"))
        prompts = [[rng.randrange(3, 290) for _ in range(rng.randrange(1, 9))] for _ in range(200)]
        chosen = [params(f"m{rng.randrange(64)}", rng.randrange(1, 9)) for _ in prompts]
        together = tokens_of(engine.generate(prompts, chosen))  # type: ignore[arg-type]
        for prompt, one, got in zip(prompts, chosen, together, strict=True):
            assert tokens_of(engine.generate(prompt, one)) == [got]
