"""Models of which some layers have no attention: the oracle's bytes over boards, kernels, cuts,
batches, forks and trees; texts of engines that share, preempt and draft; mistakes that are seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.kv.kv_op import KvOp
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.rows import Row
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import verify_tree
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.oracle import Oracle, load_weights
from tests.oracle.adapted import Adapted
from tests.parity.score import prompts
from tests.variants import variant, write_checkpoint

LENGTH = 105  # three pages are full on the way
LAST_OF_EACH = ("lfm2", "qwen3_5", "qwen3_next_mixed")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def written(name: str) -> Path:
        return write_checkpoint(variant(name), tmp_path_factory.mktemp(name), "x3")

    return written


@pytest.fixture(scope="module")
def expected(folder_of: Callable[[str], Path]) -> Callable[[str], Logits]:
    @cache
    def logits(name: str) -> Logits:
        checkpoint = Checkpoint.open(folder_of(name))
        return Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens_of(name))

    return logits


def tokens_of(name: str) -> list[int]:
    return prompts(variant(name))[0][:LENGTH].tolist()


@pytest.mark.parametrize("name", HYBRID_CONFIGS)
def test_boards_kernels_and_cuts_give_the_oracles_bytes(
    name: str, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, tokens, want = folder_of(name), tokens_of(name), expected(name)
    for boards, cuts in ((1, (16, 1, 7)), (2, (64, 3)), (4, (33,)), (8, (31, 2, 64))):
        with open_runner(folder, boards) as runner:
            assert Driver(runner).feed(0, tokens, cuts).tobytes() == want.tobytes()
    with open_runner(folder, 2, kernels="numpy") as runner:
        got = Driver(runner).feed(0, tokens[:9], (4, 1))
    assert got.tobytes() == want[:9].tobytes()


@pytest.mark.parametrize("name", LAST_OF_EACH)
def test_one_row_a_step_over_the_ends_of_pages(
    name: str, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    with open_runner(folder_of(name), 1) as runner:
        got = Driver(runner).feed(0, tokens_of(name)[:70], (1,))
    assert got.tobytes() == expected(name)[:70].tobytes()


@pytest.mark.parametrize(("name", "boards"), [("lfm2", 1), ("qwen3_5", 2), ("qwen3_next_mixed", 1)])
def test_batches_and_trees_change_nothing(
    name: str, boards: int, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    folder, tokens, want = folder_of(name), tokens_of(name), expected(name)
    with open_runner(folder, boards) as runner:
        starts = {2: tokens[:20], 0: tokens[:13], 1: tokens[:31]}
        driver = Driver(runner)
        for number, got in driver.step(starts, interleave=True).items():
            assert got.tobytes() == want[: len(starts[number])].tobytes()
        one = driver.step({n: [tokens[len(starts[n])]] for n in (1, 0, 2)})
        for number, got in one.items():
            assert got.tobytes() == want[len(starts[number])].tobytes()
    for start in (30, 32, 63):  # the tree's path is committed over a page's end, or from one on
        with open_runner(folder, boards, sequences=1) as runner:
            verify_tree(runner, tokens, want, start)


@pytest.mark.parametrize("name", LAST_OF_EACH)
def test_rows_behind_a_tree_begin_with_the_page_that_it_filled(
    name: str, folder_of: Callable[[str], Path], expected: Callable[[str], Logits]
) -> None:
    """Refused siblings before and behind the accepted ones, a chain on after them, and a fork of
    the full pages in the step that has filled the last."""
    tokens, want = tokens_of(name), expected(name)
    with open_runner(folder_of(name), 1, sequences=2) as runner:
        verify_tree(runner, tokens, want, 60)  # 65 positions are committed, and the row behind
        pages = [4, 5, 6]
        tables = [KvOp.table(1, tile, pages[tile]) for tile in range(2)]
        tables.append(KvOp.table(1, 2, 8))
        ops = [KvOp.length(1, 64), *tables]
        row = Row(1, 64, tokens[64], 50, -1, want_logits=True)
        result = runner.step([row], ops, [])
        assert result.logits is not None
        assert result.logits[0].tobytes() == want[64].tobytes()


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5", "qwen3_next"])
def test_adapters_give_the_oracles_bytes(
    name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, tokens = folder_of(name), tokens_of(name)[:40]
    path = write_adapter(variant(name), Folder("a"), tmp_path / "a")
    checkpoint = Checkpoint.open(folder)
    factors = read_factors(variant(name), path)
    want = Adapted(checkpoint.config, load_weights(checkpoint), factors).logits(tokens)
    for boards, mode in ((1, "auto"), (2, "s")):
        with open_runner(folder, boards, adapters=AdapterOptions(1, 16, mode=mode)) as runner:
            slots, driver = AdapterSlots(runner.cluster, runner.plan), Driver(runner)
            slots.load("a", path)
            slots.attach(1, "a")
            driver.adapters[1] = slots.slot_of(1)
            assert driver.feed(1, tokens, (16, 1, 7)).tobytes() == want.tobytes()
