"""Models of which some layers have no attention: the oracle's bytes over boards, kernels, cuts,
batches, forks and trees; texts of engines that share, preempt and draft; mistakes that are seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_host.emu import recurrent
from lora_host.errors import CommandError, ModelError
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.compile.isa import Command, Recurrence
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.model.block import describe
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.quantization import Quantization
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.runner import Runner
from lora_sdk.step.step import Row
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import verify_tree
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.oracle import load_weights
from tests.oracle.adapted import Adapted
from tests.parity.score import first_tokens
from tests.variants import variant

LENGTH = 105  # three pages are full on the way
LAST_OF_EACH = ("lfm2", "qwen3_5", "qwen3_next_mixed", "lfm2_moe", "qwen3_5_moe_stacked",
                "granitemoehybrid", "falcon_h1", "nemotron_h_pattern")  # fmt: skip


@pytest.fixture(scope="module")
def expected(oracle_logits: Callable[[str, int], Logits]) -> Callable[[str], Logits]:
    return lambda name: oracle_logits(name, LENGTH)


def tokens_of(name: str) -> list[int]:
    return first_tokens(name, LENGTH)


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


TREES = [("lfm2", 1), ("qwen3_5", 2), ("qwen3_next_mixed", 1), ("lfm2_moe_plain", 2),
         ("qwen3_5_moe", 4), ("granitemoehybrid", 4), ("granitemoehybrid_dense", 2),
         ("falcon_h1", 2), ("falcon_h1_plain", 4), ("nemotron_h", 1),
         ("nemotron_h_pattern", 4)]  # fmt: skip


@pytest.mark.parametrize(("name", "boards"), TREES)
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


@pytest.mark.parametrize(
    "name",
    [
        "lfm2",
        "qwen3_5",
        "qwen3_next",
        "lfm2_moe",
        "qwen3_5_moe",
        "granitemoehybrid",
        "falcon_h1",
        "nemotron_h",
    ],
)
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


Mistake = Callable[[pytest.MonkeyPatch], None]


def convolution_by_one(patch: pytest.MonkeyPatch) -> None:
    """Each weight meets the position before its own."""
    own = recurrent._Layer._convolve

    def late(x, taps):  # type: ignore[no-untyped-def]
        return own(np.concatenate([np.zeros_like(x[:1]), x[:-1]]), taps)

    patch.setattr(recurrent._Layer, "_convolve", staticmethod(late))


def no_gate(patch: pytest.MonkeyPatch) -> None:
    """The gate of the output is 1, or its SiLU."""
    own = recurrent._Layer.__init__

    def opened(layer, call):  # type: ignore[no-untyped-def]
        own(layer, call)
        layer.x = layer.x.copy()
        layer.x[:, layer.x.shape[1] - call.command.y_columns :] = 1

    patch.setattr(recurrent._Layer, "__init__", opened)


def siblings(patch: pytest.MonkeyPatch) -> None:
    """Every uncommitted row goes before a row, refused drafts too."""
    path = recurrent.slots_of_path

    def every(call, slot):  # type: ignore[no-untyped-def]
        earlier = [int(row.slot) for row in call.rows() if row.slot < slot]
        return [*earlier, slot] if len(path(call, slot)) > 1 else [slot]

    patch.setattr(recurrent, "slots_of_path", every)


def another_sequence(patch: pytest.MonkeyPatch) -> None:
    """The pages of the sequence before."""
    own = recurrent.page_table
    patch.setattr(recurrent, "page_table", lambda call, number: own(call, max(0, number - 1)))


def growth(patch: pytest.MonkeyPatch) -> None:
    """The sign of the decay."""
    own = recurrent._scan
    patch.setattr(recurrent, "_scan", lambda q, k, v, beta, decay: own(q, k, v, beta, 1 / decay))


def growing_scan(patch: pytest.MonkeyPatch) -> None:
    """The sign of the scan's decay; bounded, or values would overflow."""
    own = recurrent._selective

    def grown(c, b, v, decay):  # type: ignore[no-untyped-def]
        return own(c, b, v, np.minimum(1 / decay, np.float32(2)))

    patch.setattr(recurrent, "_selective", grown)


def no_skip(patch: pytest.MonkeyPatch) -> None:
    """D is 0."""
    own = recurrent._Layer._read_table

    def without(layer):  # type: ignore[no-untyped-def]
        own(layer)
        layer.skip = layer.skip * np.float32(0)

    patch.setattr(recurrent._Layer, "_read_table", without)


def another_group(patch: pytest.MonkeyPatch) -> None:
    """B and C of the next KV head's group."""
    own = recurrent._Layer.keep

    def other(layer, i, slot, head):  # type: ignore[no-untyped-def]
        layer.x = np.roll(layer.x, 1, axis=1) if not hasattr(layer, "rolled") else layer.x
        layer.rolled = True
        own(layer, i, slot, head)

    patch.setattr(recurrent._Layer, "keep", other)


SEEN = [(name, mistake) for name in ("lfm2", "qwen3_5", "granitemoehybrid")
        for mistake in (convolution_by_one, no_gate, another_sequence, siblings)]  # fmt: skip


@pytest.mark.parametrize(("name", "mistake"), [
    *SEEN, ("qwen3_5", growth),
    *(("granitemoehybrid", mistake) for mistake in (growing_scan, no_skip, another_group)),
])  # fmt: skip
def test_a_mistake_of_a_kernel_is_seen(
    name: str, mistake: Mistake, folder_of: Callable[[str], Path],
    expected: Callable[[str], Logits], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Rows of two sequences, then of a tree; without the mistake all are right."""
    tokens, want = tokens_of(name), expected(name)
    with open_runner(folder_of(name), 1, kernels="numpy") as runner:
        assert right(runner, tokens, want)
        mistake(monkeypatch)
        assert not right(runner, tokens, want)


def right(runner: Runner, tokens: list[int], want: Logits) -> bool:
    """Whether rows behind committed ones, in two sequences, and the second branch of a tree have
    the oracle's bytes."""
    driver = Driver(runner)
    driver.step({0: tokens[3:8], 1: tokens[:6]})
    found = driver.step({0: tokens[8:10], 1: tokens[6:8]})[1].tobytes() == want[6:8].tobytes()
    path: list[int] = []
    ops = driver._commits([0, 1], path)
    wrong = (tokens[9] + 1) % want.shape[1]
    rows = [Row(1, 8, tokens[8], 20, -1), Row(1, 9, wrong, 21, 20),
            Row(1, 9, tokens[9], 22, 20, want_logits=True)]  # fmt: skip
    result = runner.step(rows, ops, path)
    assert result.logits is not None
    return found and result.logits[0].tobytes() == want[9].tobytes()


def test_lists_whose_planes_do_not_fit_are_refused(folder_of: Callable[[str], Path]) -> None:
    with open_runner(folder_of("qwen3_5"), 1) as runner:
        commands = lower(runner.config, runner.plan, 0)
        place = next(i for i, one in enumerate(commands) if isinstance(one, Recurrence))
        for fields in ({"planes": 1}, {"kv_layer": 60000}, {"kernel": 9}, {"form": 4},
                       {"key_heads": 2}, {"sharing": 2}, {"sharing_first": 1},
                       {"y_columns": 4096}, {"table_line": 1 << 31}):  # fmt: skip
            spoilt: list[Command] = list(commands)
            spoilt[place] = replace(spoilt[place], **fields)
            with pytest.raises(CommandError, match="RECURRENCE"):
                runner.register(runner.plan.boards[0], spoilt)


def test_what_boards_cannot_share_is_refused(folder_of: Callable[[str], Path]) -> None:
    config = Checkpoint.open(folder_of("qwen3_5")).config
    assert config.recurrent is not None
    eight = replace(config, quantization=Quantization("w8a8", kv="int8-heads"))
    wrong = replace(config, recurrent=replace(config.recurrent, key_heads=4))
    scan = Checkpoint.open(folder_of("granitemoehybrid_dense")).config
    assert scan.recurrent is not None
    uneven = replace(scan, recurrent=replace(scan.recurrent, key_heads=4, value_heads=28))
    for other, match in ((eight, "with an INT8 KV cache"), (wrong, "a multiple of 3 KV heads"),
                         (uneven, "4 groups of a scan's norm"),
                         (replace(config, residual="parallel"), "parallel residual")):  # fmt: skip
        with pytest.raises(ModelError, match=match):
            describe(other)


@pytest.mark.parametrize(("name", "refused"), [("granitemoehybrid", True), ("lfm2", False)])
def test_boards_refuse_a_header_that_would_lose_a_state(
    name: str, refused: bool, folder_of: Callable[[str], Path]
) -> None:
    """A table that changes behind a commit that fills a page; short convolutions have no state."""
    with open_runner(folder_of(name), 1) as runner:
        driver = Driver(runner)
        driver.step({0: tokens_of(name)[:35]})
        path = driver.sequences[0].pending
        ops = [KvOp.commit(0, 0, 0, len(path)), KvOp.table(0, 1, runner.plan.page_count - 1)]
        if refused:
            with pytest.raises(CommandError, match="KV"):
                runner.step([], ops, path)
        else:
            runner.step([], ops, path)
