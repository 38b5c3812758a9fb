"""Adapters on emulated boards: the same bytes over boards, modes and kernels, equal to an
independent implementation; rows of several adapters and of none in one step; no collective beyond
the model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, native
from lora_host.errors import CommandError
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.runner import Runner
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import tokens_of
from tests.oracle.adapted import Adapted, merged
from tests.oracle.forward import Oracle, load_weights
from tests.variants import variant, write_checkpoint

NAMES = ("gpt2", "opt_post_norm", "llama_gqa_bias", "llama_narrow")
LENGTH = 37
FOLDERS = {
    "plain": Folder("plain", rank=12, config={"use_rslora": True, "lora_alpha": 8}),
    "some": Folder("some", rank=40, targets=("q_proj", "down_proj", "c_fc", "fc1")),
    "blocked": Folder("blocked", rank=16, blocks=4),
    "eighths": Folder("eighths", rank=8, blocks=8),
}
ORDER = ("plain", "blocked", None, "some", "eighths")

Made = tuple[Path, dict[str, Path], dict[str | None, Logits]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A model's folder, its adapters' and the logits that each must give."""
    root = tmp_path_factory.mktemp("adapters")
    known: dict[str, Made] = {}

    def of(name: str) -> Made:
        if name not in known:
            which = variant(name)
            folder = write_checkpoint(which, root / name)
            paths = {n: write_adapter(which, f, root / f"{name}-{n}") for n, f in FOLDERS.items()}
            checkpoint = Checkpoint.open(folder)
            weights, tokens = load_weights(checkpoint), tokens_of(name, LENGTH)
            expected: dict[str | None, Logits] = {
                None: Oracle(checkpoint.config, weights).logits(tokens)
            }
            for adapter, path in paths.items():
                factors = read_factors(which, path)
                expected[adapter] = Adapted(checkpoint.config, weights, factors).logits(tokens)
            known[name] = (folder, paths, expected)
        return known[name]

    return of


@contextmanager
def adapted(
    found: Made, boards: int, mode: str = "auto", slots: int = 4, **options: Any
) -> Iterator[tuple[Runner, AdapterSlots]]:
    folder, paths, _ = found
    wanted = AdapterOptions(slots, 40, mode)
    with open_runner(folder, boards, sequences=5, adapters=wanted, **options) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        for name, path in paths.items():
            held.load(name, path)
        yield runner, held


def drive(runner: Runner, held: AdapterSlots, order: tuple[str | None, ...]) -> Driver:
    driver = Driver(runner)
    for number, name in enumerate(order):
        if name is not None:
            held.attach(number, name)
            driver.adapters[number] = held.slot_of(number)
    return driver


@pytest.mark.parametrize("mode", ["auto", "nfs", "s"])
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_rows_of_all_adapters_in_one_step(
    name: str, boards: int, mode: str, made: Callable[[str], Made]
) -> None:
    """Prefill mixes four adapters and none, row by row; then decode, a row of each a step."""
    found = made(name)
    tokens = tokens_of(name, LENGTH)
    with adapted(found, boards, mode) as (runner, held):
        driver = drive(runner, held, ORDER)
        start = driver.step(dict.fromkeys(range(5), tokens[:7]), interleave=True)
        rest = [driver.step({key: [token] for key in range(5)}) for token in tokens[7:12]]
        for number, adapter in enumerate(ORDER):
            got = np.concatenate([start[number], *(step[number] for step in rest)])
            assert got.tobytes() == found[2][adapter][:12].tobytes(), adapter


@pytest.mark.parametrize("mode", ["auto", "s"])
def test_the_numpy_kernels_give_the_same_bytes(mode: str, made: Callable[[str], Made]) -> None:
    found = made("gpt2")
    tokens = tokens_of("gpt2", LENGTH)
    with adapted(found, 2, mode, kernels="numpy") as (runner, held):
        driver = drive(runner, held, ORDER)
        got = driver.step(dict.fromkeys(range(5), tokens[:12]))
        for number, adapter in enumerate(ORDER):
            assert got[number].tobytes() == found[2][adapter][:12].tobytes(), adapter


@pytest.mark.parametrize("inner", [b"plain", b"avx2"])
def test_every_native_inner_loop_gives_the_same_bytes(
    inner: bytes, made: Callable[[str], Made]
) -> None:
    found, tokens = made("llama_gqa_bias"), tokens_of("llama_gqa_bias", LENGTH)
    ffi, lib = native.ffi(), native.lib()
    if lib.lora_native_force(inner):
        pytest.skip(f"this machine has no {inner.decode()}")
    try:
        with adapted(found, 2) as (runner, held):
            driver = drive(runner, held, ORDER)
            got = driver.step(dict.fromkeys(range(5), tokens[:9]))
    finally:
        lib.lora_native_force(ffi.NULL)
    for number, adapter in enumerate(ORDER):
        assert got[number].tobytes() == found[2][adapter][:9].tobytes(), adapter


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_merged_weights(name: str, made: Callable[[str], Made]) -> None:
    """Against the same weights merged in float64, within the FP16 path's bound."""
    which, (folder, paths, expected) = variant(name), made(name)
    checkpoint = Checkpoint.open(folder)
    weights, tokens = load_weights(checkpoint), tokens_of(name, LENGTH)
    for adapter, path in paths.items():
        oracle = Oracle(checkpoint.config, weights)
        oracle.weights = {
            n: w.astype(np.float32) for n, w in merged(weights, read_factors(which, path)).items()
        }
        want = oracle.logits(tokens)
        error = np.abs(want - expected[adapter]).max() / want.std()
        moved = np.abs(expected[None] - expected[adapter]).max() / want.std()
        assert error < 0.006 and moved > 50 * error, (adapter, error, moved)


def collectives(runner: Runner) -> list[int]:
    """GATHER commands that each board ran since the last call."""
    emulated = runner.cluster.emulated
    assert emulated is not None
    return [
        int((emulated.trace(board)["opcode"] == abi.CMD_GATHER).sum())
        for board in range(runner.cluster.size)
    ]


@pytest.mark.parametrize(("mode", "more"), [("auto", 0), ("bd", 0), ("nfs", 0), ("s", 4)])
def test_the_trace_proves_the_number_of_collectives(
    mode: str, more: int, made: Callable[[str], Made]
) -> None:
    """None beyond the base model's but for S-LoRA's, one before each product."""
    folder, paths, _ = made("gpt2")
    tokens = tokens_of("gpt2", 3)
    with open_runner(folder, 4, trace=True) as runner:
        Driver(runner).step({0: tokens})
        base = collectives(runner)
        layers = runner.config.layers
    wanted = AdapterOptions(1, 40, mode)
    with open_runner(folder, 4, trace=True, adapters=wanted) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        held.load("blocked", paths["blocked"])
        drive(runner, held, ("blocked",)).step({0: tokens})
        assert collectives(runner) == [count + more * layers for count in base]
        emulated = runner.cluster.emulated
        assert emulated is not None
        sent = runner.plan.link_bytes(3, 3)
        for (board, port), planned in sent.items():
            assert emulated.link_bytes(board, port)[1] >= planned.payload


def test_a_row_may_name_only_a_slot_that_holds_an_adapter(made: Callable[[str], Made]) -> None:
    found = made("llama_narrow")
    tokens = tokens_of("llama_narrow", 3)
    with adapted(found, 2, slots=2) as (runner, held):
        driver = drive(runner, held, ("plain",))
        for wrong in (1, 2, -2):  # empty, beyond the last, below none
            driver.adapters[0] = wrong
            with pytest.raises(CommandError):
                driver.step({0: tokens})
            driver.sequences.clear()
        driver.adapters[0] = held.slot_of(0)
        assert driver.step({0: tokens})[0].tobytes() == found[2]["plain"][:3].tobytes()


def test_a_damaged_directory_fails_the_step_and_nothing_else(made: Callable[[str], Made]) -> None:
    """Kernels check what stands in board memory: offsets, counts and ranks."""
    found = made("llama_narrow")
    for kernels in ("native", "numpy"):
        with adapted(found, 1, kernels=kernels) as (runner, held):
            driver = drive(runner, held, ("plain",))
            layout = runner.plan.boards[0].adapters
            assert layout is not None
            bank, offset, _, _ = next(layout.runs(held.slot_of(0), 64, 128))
            runner.cluster.write(0, bank, offset, b"\xf0\xff\xff\x7f\xff\xff\xff\xff" * 8)
            with pytest.raises(CommandError):
                driver.step({0: tokens_of("llama_narrow", 3)})
