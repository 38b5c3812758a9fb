"""The last layer works on the rows whose logits are wanted: a step that wants some rows gives the
bytes of one that wants all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.step.runner import Runner
from lora_sdk.step.step import Row, StepResult
from tests.adapter_folders import Folder, write_adapter
from tests.drive import open_runner
from tests.quantized import SCHEMES, QuantizedModel
from tests.variants import Variant, variant, write_checkpoint

TOKENS = [3, 77, 200, 9, 41, 150, 8, 61, 5, 122, 19, 33]
PARENTS = [-1, 0, 1, 2, 2, 3, 4, 5, 5, 6, 8, 9]
POSITIONS = [0, 1, 2, 3, 3, 4, 4, 5, 5, 5, 6, 6]
SELECTED = (1, 4, 5, 8, 11)
FAMILIES = (
    "gptj", "falcon", "falcon_new", "phi_gqa", "stablelm_parallel_gqa", "gpt_neox", "olmo2_gqa",
    "gemma2_gqa", "opt_post_norm", "opt_no_final_norm", "llama_gqa_bias",
)  # fmt: skip
SHARED = ("gptj", "phi_gqa")  # qkv and up read one row
FORMATS = ("w8a8", "w8a8_heads", "w8a8_dynamic", "w4a8_order", "w4a8_dynamic_order")


def rows(selected: tuple[int, ...], adapted: bool = False) -> list[Row]:
    """A tree. Every third row has no adapter."""
    return [
        Row(
            0, position, token, i, parent, 0 if adapted and i % 3 else -1,
            want_logits=i in selected, want_argmax=i in selected,
        )
        for i, (token, parent, position) in enumerate(zip(TOKENS, PARENTS, POSITIONS, strict=True))
    ]  # fmt: skip


def step(runner: Runner, found: list[Row]) -> StepResult:
    return runner.step(found, [KvOp.length(0, 0), KvOp.table(0, 0, runner.plan.scratch_pages)])


def check(runner: Runner, adapted: bool = False) -> None:
    every = tuple(range(len(TOKENS)))
    whole = step(runner, rows(every, adapted))
    some = step(runner, rows(SELECTED, adapted))
    assert (whole.rows, some.rows) == (every, SELECTED)
    assert whole.logits is not None and some.logits is not None
    assert whole.argmax is not None and some.argmax is not None
    chosen = list(SELECTED)
    assert len({row.tobytes() for row in whole.logits}) == len(TOKENS)
    assert some.logits.tobytes() == whole.logits[chosen].tobytes()
    for of_some, of_whole in zip(some.argmax, whole.argmax, strict=True):
        assert of_some.tobytes() == of_whole[chosen].tobytes()
    assert step(runner, rows((), adapted)).logits is None
    again = step(runner, rows(every, adapted))
    assert again.logits is not None and again.logits.tobytes() == whole.logits.tobytes()


@contextmanager
def opened(
    which: Variant,
    folder: Path,
    boards: int,
    scheme: str = "",
    mode: str = "",
    taps: tuple[int, ...] = (),
) -> Iterator[Runner]:
    model = write_checkpoint(which, folder / "model")
    quantized = QuantizedModel(model, SCHEMES[scheme]) if scheme else None
    options = AdapterOptions(1, 8, mode) if mode else None
    with open_runner(
        model, boards, sequences=2, adapters=options, model=quantized, hidden_taps=taps
    ) as runner:
        if mode:
            slots = AdapterSlots(runner.cluster, runner.plan)
            slots.load("one", write_adapter(which, Folder("one", rank=8), folder / "adapter"))
            slots.attach(0, "one")
        yield runner


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("name", FAMILIES)
def test_some_rows_have_the_logits_of_all(name: str, boards: int, tmp_path: Path) -> None:
    with opened(variant(name), tmp_path, boards) as runner:
        check(runner)


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize("name", [*SHARED, "falcon_new", "llama_gqa_bias"])
def test_in_every_format(name: str, scheme: str, tmp_path: Path) -> None:
    with opened(variant(name), tmp_path, 2, scheme) as runner:
        check(runner)


@pytest.mark.parametrize("mode", ["nfs", "s"])
@pytest.mark.parametrize("scheme", ["", "w8a8", "w8a8_dynamic"])
@pytest.mark.parametrize("name", [*SHARED, "llama_gqa_bias"])
def test_with_adapters(name: str, scheme: str, mode: str, tmp_path: Path) -> None:
    with opened(variant(name), tmp_path, 2, scheme, mode) as runner:
        check(runner, adapted=True)


def test_hidden_states_behind_the_last_layer_are_those_of_all_rows(tmp_path: Path) -> None:
    which = variant("llama_gqa_bias")
    layers = which.config["num_hidden_layers"]
    with opened(which, tmp_path, 2, taps=(layers,)) as runner:
        check(runner)
        found = [replace(row, want_hidden=True) for row in rows(SELECTED)]
        hidden = step(runner, found).hidden
        assert hidden is not None and hidden.shape[-2] == len(TOKENS)
        assert len({row.tobytes() for row in hidden.reshape(len(TOKENS), -1)}) == len(TOKENS)
