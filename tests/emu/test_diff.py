"""`lora diff`: equal set-ups are equal at every operation; a mistake is found where it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, emu
from lora_host.emu.unit_call import UnitCall
from lora_lab.diff.differences import Compared, compare
from lora_lab.diff.outputs import Outputs
from lora_sdk.compile.parts import Lowering
from lora_sdk.opening.opening import OpenedModel, open_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.plan.model_plan import Plan
from tests.commands import LORA, command, one_line_error
from tests.variants import variant, write_checkpoint

PROMPT = [5, 9, 3, 200, 17, 44, 8, 100, 77]
Plant = Callable[[OpenedModel, pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("diff") / "model")


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[OpenedModel]:
    model = open_model(EngineOptions(model=folder, max_sequences=1, **options))
    with model.stack:
        yield model


def quantized(folder: Path) -> Path:
    """A W8A8 model with static scales of activations."""
    plain = write_checkpoint(variant("llama_narrow"), folder / "plain")
    done = command(LORA, "lab", "synth", plain, folder / "model", "--scheme", "w8a8")
    assert done.returncode == 0, done.stderr.decode()
    return folder / "model"


@pytest.mark.parametrize("name", ["gemma3", "opt", "w8a8"])
def test_every_operation_is_read_alike_on_boards(name: str, tmp_path: Path) -> None:
    """Boards hold other columns and read them in parts; NumPy kernels are a second opinion."""
    if name == "w8a8":
        folder = quantized(tmp_path)
    else:
        folder = write_checkpoint(variant(name), tmp_path / "model")
    with (
        opened(folder, boards=1) as one,
        opened(folder, boards=4) as four,
        opened(folder, boards=2, kernels="numpy") as two,
    ):
        outputs = [Outputs(model) for model in (one, four, two)]
        logits = [each.step(PROMPT) for each in outputs]
        read = 0
        for count in range(1, len(outputs[0].operations) + 1):
            values = [each.written(count) for each in outputs]
            if values[0] is None:
                continue
            read += 1
            for other in values[1:]:
                assert other is not None and other.tobytes() == values[0].tobytes(), count
        assert read >= 8 and logits[0].tobytes() == logits[1].tobytes() == logits[2].tobytes()


def flip(model: OpenedModel, bank: int, offset: int, size: int = 2) -> None:
    """A bit of the exponent of a number of `size` bytes in a bank of the last rank's board."""
    board, high = model.plan.boards[-1].board, offset + size - 1
    (byte,) = model.cluster.read(board, bank, high, 1)
    model.cluster.write(board, bank, high, bytes([byte ^ 4]))


def weight(name: str) -> Plant:
    def plant(model: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        matrix = model.plan.boards[-1].matrices[name]
        bank = matrix.bank_first + matrix.first % matrix.bank_count
        flip(model, bank, matrix.weight_line * abi.LINE_BYTES)

    return plant


def table(name: str, row: int) -> Plant:
    def plant(model: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        place = model.plan.boards[-1].tables[name]
        offset = place.offset + row * place.spec.row_bytes
        flip(model, place.bank, offset, place.spec.element_bytes)

    return plant


def kernel(name: str, layer: int, op: int | None = None) -> Plant:
    """A NumPy kernel whose first value is wrong in its last bit, on the board with most columns."""

    def plant(model: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        right = emu.KERNELS[name]

        def wrong(call: UnitCall) -> None:
            right(call)
            command = call.command
            if command.layer == layer and (op is None or command.op == op):
                y = call.rows_view(
                    abi.BANK_ONCHIP, command.y_offset, command.y_stride, 1, np.uint16
                )
                y[0, 0] ^= 1

        monkeypatch.setitem(emu.KERNELS, name, wrong)

    return plant


def listed(what: str, **changes: int) -> Plant:
    """A command of layer 1 with another field, in the lists of two boards."""

    def plant(model: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
        begin = Lowering.__init__

        def begun(self: Lowering, config: Any, plan: Plan, *more: Any) -> None:
            begin(self, config, plan, *more)
            right = self.builder.emit

            def emit(kind: Any, after: Any, **fields: Any) -> Any:
                if fields["what"] == what and self.builder.layer == 1:
                    fields |= changes
                return right(kind, after, **fields)

            if plan.size == 2:
                monkeypatch.setattr(self.builder, "emit", emit)

        monkeypatch.setattr(Lowering, "__init__", begun)
        model.runner.commands.clear()
        model.runner.restore(Counter())

    return plant


MISTAKES: list[tuple[Plant, int | None, str]] = [
    (weight("layer.0.qkv"), 0, "matmul qkv"),
    (weight("layer.1.o"), 1, "matmul o"),
    (weight("layer.2.down"), 2, "matmul down"),
    (weight("lm_head"), None, "matmul lm_head"),
    (table("rope", 2), 0, "rope"),
    (table("embed.token", 9), None, "embed"),
    (table("layer.2.attn_norm.gamma", 0), 2, "norm attn_norm"),
    (kernel("attention", 1), 1, "attend"),
    (kernel("vector", 2, abi.VEC_SWIGLU), 2, "activate"),
    (kernel("vector", 0, abi.VEC_RESIDUAL), 0, "add residual"),
    (listed("attention", scale=0x3F000000), 1, "attend"),
    (listed("rms norm", scalar=0x3F800000), 1, "norm attn_norm"),
]


@pytest.mark.parametrize(("plant", "layer", "operation"), MISTAKES)
def test_a_mistake_is_found_where_it_is(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    layer: int | None,
    operation: str,
) -> None:
    with opened(folder, boards=1) as right, opened(folder, boards=2, kernels="numpy") as wrong:
        plant(wrong, monkeypatch)
        found = compare(Outputs(right), Outputs(wrong), PROMPT, 2).difference
    assert found is not None
    assert (found.step, found.layer, found.operation) == (0, layer, operation)
    assert found.expected_bits != found.found_bits and 0 < found.count <= found.total


def test_the_command_says_what_differs(folder: Path, tmp_path: Path) -> None:
    other = write_checkpoint(variant("llama_narrow"), tmp_path / "other", "x3")
    done = command(LORA, "diff", "-m", f"{folder},{other}", "-p", "abc", "-n", 3)
    text = done.stdout.decode()
    assert done.returncode == 1 and "outside the layers, embed, column 0 of hidden" in text, text
    assert max(map(len, text.splitlines())) <= 200
    done = command(
        LORA, "diff", "-m", folder, "--boards", "1,2", "--kernels", "native,numpy", "-p", "abc",
        "--overlay", "lora_f_u280", "-n", 3, "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert found["reference"] == "--boards 1, --kernels native"
    assert found["compared"][0]["difference"] is None and found["compared"][0]["tokens"] >= 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--boards", "1"], "one set-up; expected two or more, for instance --boards 1,4"),
        (["--boards", "1,2,4", "--kernels", "native,numpy"], "2 values; expected 1 or 3"),
        (["--boards", "1,x"], "--boards: 'x' is no number"),
        (["--overlay", "lora_f_u280,none"], "none"),
        (["--boards", "1,3"], "3 boards were requested"),
        (["--kernels", "native,"], "kernels"),
        (["--boards", "1,2", "-n", "100000"], "tokens to compare; the contexts take"),
    ],
)
def test_what_cannot_be_compared(folder: Path, arguments: list[str], said: str) -> None:
    assert said in one_line_error(command(LORA, "diff", "-m", folder, "-p", "abc", *arguments))


def test_other_models_are_refused(folder: Path, tmp_path: Path) -> None:
    other = write_checkpoint(variant("opt"), tmp_path / "other")
    done = command(LORA, "diff", "-m", f"{folder},{other}", "-p", "abc")
    assert "other operations" in one_line_error(done)


def test_compared_is_equal_without_a_difference(folder: Path) -> None:
    with opened(folder, boards=1) as one, opened(folder, boards=8) as eight:
        found = compare(Outputs(one), Outputs(eight), PROMPT, 5)
    assert found == Compared(found.steps, len(PROMPT) + 5, None) and found.steps >= 6
