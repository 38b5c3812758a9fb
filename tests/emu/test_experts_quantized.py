"""Experts in INT8 and 4 bits: committed digests, boards, kernels and batches, what a step reads of
them, and mistakes that must be seen."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lora_host import abi
from lora_host.emu import mixture
from lora_host.emu.vector import OPERATIONS
from lora_host.errors import ModelError, TransportError
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from lora_sdk.quant.quantize import quantize as quantize_folder
from lora_sdk.quant.recipe import Recipe
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_every_family import tokens_of, variant_of
from tests.emu.test_identity import digest
from tests.emu.test_quantized_identity import DIGESTS, _rounds_down
from tests.oracle.integer import AdaptedQuantized
from tests.quantized import SCHEMES, QuantizedModel, oracle_of
from tests.variants import write_checkpoint

LENGTH = 36  # beyond a tile of positions
# One of each family, in each scheme of experts.
CASES = {
    "mixtral": "w8a8",
    "qwen3_moe": "w8a8_dynamic",
    "olmoe": "w4a8",
    "granitemoe": "w4a8_dynamic",
    "qwen2_moe": "w8a8_dynamic",
    "granitemoeshared": "w4a16",
    "glm4_moe": "w4a8",
    "gpt_oss": "w8a8",
    "deepseek_v2": "w8a8",
    "deepseek_v3": "w4a8",
    "glm4_moe_lite": "w8a8_dynamic",
}
Made = tuple[Path, QuantizedModel, Logits]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    @cache
    def of(kind: str) -> Made:
        folder = write_checkpoint(variant_of(kind), tmp_path_factory.mktemp(kind))
        model = QuantizedModel(folder, SCHEMES[CASES[kind]])
        assert {model.config.quantization.format(name).kind for name in model.weights  # type: ignore[union-attr]
                if ".expert." in name and not name.endswith(".bias")} == {
                    SCHEMES[CASES[kind]].kind}  # fmt: skip
        return folder, model, model.oracle().logits(tokens_of(LENGTH))

    return of


def feed(made: Made, boards: int, kernels: str, count: int = LENGTH) -> Logits:
    folder, model, _ = made
    with open_runner(folder, boards, kernels=kernels, sequences=1, model=model) as runner:
        return Driver(runner).feed(0, tokens_of(LENGTH)[:count], (16, 1, 7))


@pytest.mark.parametrize("kind", CASES)
def test_the_oracles_bytes_and_digest(kind: str, made: Callable[[str], Made]) -> None:
    want = made(kind)[2]
    assert digest(want) == json.loads(DIGESTS.read_text())[f"{kind}-{CASES[kind]}"]
    for boards in (1, 4):
        assert feed(made(kind), boards, "native").tobytes() == want.tobytes()
    assert feed(made(kind), 2, "numpy", 9).tobytes() == want[:9].tobytes()


RECIPES = {
    "qwen2_moe": Recipe("w8a8", kv="int8"),
    "granitemoe": Recipe("w4a8", group=32, kv="int8-heads", activations="dynamic"),
    "mixtral": Recipe("w4a16", group=32, head="fp16", kv="fp16", symmetric=False),
    "glm4_moe": Recipe("w8a8", kv="fp16"),
    "gpt_oss": Recipe("w4a8", group=32, kv="int8"),
    "deepseek_v2": Recipe("w8a8", kv="int8"),
    "deepseek_v3": Recipe("w4a8", group=32, kv="fp16"),
    "glm4_moe_lite": Recipe("w8a8", kv="fp16"),
}


@pytest.mark.parametrize("kind", RECIPES)
def test_boards_compute_what_quantize_writes(kind: str, tmp_path: Path) -> None:
    plain = write_checkpoint(variant_of(kind), tmp_path / "plain")
    quantize_folder(plain, tmp_path / "q", RECIPES[kind], [tokens_of(40)])
    want = oracle_of(Checkpoint.open(tmp_path / "q")).logits(tokens_of(20))
    with open_runner(tmp_path / "q", 2, sequences=1) as runner:
        assert Driver(runner).feed(0, tokens_of(20), (16, 1)).tobytes() == want.tobytes()


def words(values: NDArray[np.uint8], axis: int) -> NDArray[np.int32]:
    """Eight 4-bit values of an axis in each INT32, low bits first."""
    eight = np.moveaxis(values, axis, -1).reshape(*np.moveaxis(values, axis, -1).shape[:-1], -1, 8)
    packed = (eight.astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, np.uint32)
    return np.ascontiguousarray(np.moveaxis(packed.view(np.int32), -1, axis))


def test_a_folder_of_gptq_has_its_routers_in_fp16(tmp_path: Path) -> None:
    folder = write_checkpoint(variant_of("qwen2_moe"), tmp_path, "x3")
    (path,) = folder.glob("*.safetensors")
    found: dict[str, Any] = {}
    for name, array in load_file(path).items():
        module = name.removesuffix(".weight")
        if (
            ".layers." not in name
            or array.ndim == 1
            or module.endswith(("mlp.gate", "expert_gate"))
        ):
            found[name] = array
            continue
        groups = array.astype(np.float32).T.reshape(-1, 32, len(array))
        scales = (np.abs(groups).max(axis=1) / 7).astype(np.float16)
        values = np.clip(np.rint(groups / scales[:, None]) + 8, 0, 15).astype(np.uint8)
        zeros = np.full(scales.shape, 7, np.uint8)  # less one
        found[f"{module}.scales"] = scales
        found[f"{module}.qzeros"] = words(zeros, 1)
        found[f"{module}.qweight"] = words(values.reshape(-1, len(array)), 0)
        found[f"{module}.g_idx"] = (np.arange(array.shape[1]) // 32).astype(np.int32)
    save_file(found, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    (folder / "config.json").write_text(json.dumps(config))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config.quantization.format("layer.1.expert.3.up").kind == "w4a16"  # type: ignore[union-attr]
    want = oracle_of(checkpoint).logits(tokens_of(12))
    with open_runner(folder, 2, sequences=1) as runner:
        assert Driver(runner).feed(0, tokens_of(12), (11, 1)).tobytes() == want.tobytes()


@pytest.mark.parametrize(("kind", "boards", "mode"), [("qwen2_moe", 2, "s"),
                                                      ("granitemoeshared", 1, "auto")])  # fmt: skip
def test_adapters_read_the_fp16_activation(
    kind: str, boards: int, mode: str, made: Callable[[str], Made], tmp_path: Path
) -> None:
    """Of attention and of the shared expert; what experts read is then quantized behind its
    gather."""
    folder, model, _ = made(kind)
    path = write_adapter(variant_of(kind), Folder("a"), tmp_path / "a")
    factors = read_factors(variant_of(kind), path)
    want = AdaptedQuantized(model.oracle(), factors).logits(tokens_of(12))
    options = AdapterOptions(1, 16, mode=mode)  # type: ignore[arg-type]
    with open_runner(folder, boards, adapters=options, model=model) as runner:
        slots, driver = AdapterSlots(runner.cluster, runner.plan), Driver(runner)
        slots.load("a", path)
        slots.attach(1, "a")
        driver.adapters[1] = slots.slot_of(1)
        assert driver.feed(1, tokens_of(12), (10, 1)).tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["qwen2_moe", "olmoe"])
def test_batches_change_nothing(kind: str, made: Callable[[str], Made]) -> None:
    folder, model, want = made(kind)
    tokens = tokens_of(LENGTH)
    starts = {2: tokens[:20], 0: tokens[:13], 1: tokens[:11]}
    with open_runner(folder, 2, model=model) as runner:
        driver = Driver(runner)
        for number, got in driver.step(starts, interleave=True).items():
            assert got.tobytes() == want[: len(starts[number])].tobytes()
        for number, got in driver.step({n: [tokens[len(starts[n])]] for n in (1, 0, 2)}).items():
            assert got.tobytes() == want[len(starts[number])].tobytes()


def chosen_of(model: QuantizedModel, tokens: list[int]) -> list[set[int]]:
    """The experts of each row in the first layer, then in the second."""
    oracle, notes = model.oracle(), []
    route = oracle._route

    def noted(logits: Any, experts: Any, bias: Any) -> Any:
        weights = route(logits, experts, bias)
        notes.append(set(weights))
        return weights

    oracle._route = noted  # type: ignore[method-assign]
    oracle.logits(tokens)
    return notes


def test_two_wrong_bits_of_scales_stop_the_rows_that_choose_their_expert(
    made: Callable[[str], Made],
) -> None:
    folder, model, _ = made("mixtral")
    (token,) = tokens_of(1)
    chosen = chosen_of(model, [token])[0]
    other = next(e for e in range(4) if e not in chosen)
    with open_runner(folder, 1, sequences=1, model=model) as runner:
        table = runner.plan.boards[0].tables["layer.0.expert_down.scales"]
        for expert in (other, min(chosen)):
            word = (table.offset + expert * table.spec.row_bytes) // 8
            runner.cluster.emulated.fault(0, abi.FAULT_ECC_DOUBLE, table.bank, word, 3)
            if expert == other:
                Driver(runner).feed(0, [token], (1,))
                continue
            with pytest.raises(TransportError, match="two wrong bits"):
                Driver(runner).feed(0, [token], (1,))


@pytest.mark.parametrize("kind", ["mixtral", "granitemoe", "granitemoeshared"])
def test_a_step_reads_each_chosen_expert_once(kind: str, made: Callable[[str], Made]) -> None:
    """Of 16 rows as of one: the boards count the bytes that their matmuls read."""
    folder, model, _ = made(kind)
    tokens = tokens_of(17)
    notes = chosen_of(model, tokens)
    chosen = [notes[:17], notes[17:]]
    with open_runner(folder, 1, sequences=1, model=model) as runner:
        driver, matrices = Driver(runner), runner.plan.boards[0].matrices.values()
        for rows in (range(16), range(16, 17)):
            before = runner.cluster.emulated.weight_bytes(0)
            driver.feed(0, [tokens[row] for row in rows], (len(rows),))
            wanted = 0
            for placed in matrices:
                each, layer = placed.spec.blocks * placed.spec.block_bytes, placed.spec.layer
                read = {e for row in rows for e in chosen[layer or 0][row]}
                wanted += each * (len(read) if placed.spec.experts else 1)
            assert runner.cluster.emulated.weight_bytes(0) - before == wanted


def test_experts_with_input_scales_of_their_own_are_refused(made: Callable[[str], Made]) -> None:
    folder, model, _ = made("mixtral")
    name, other = "layer.0.expert.1.down", copy.copy(model)
    changed = replace(model.matrices[name], x_scale=np.float32(0.5))
    other.matrices = {**model.matrices, name: changed}
    with (
        pytest.raises(ModelError, match=rf"{name}: scale of its input is 0\.5, that of layer\.0\."),
        open_runner(folder, 1, sequences=1, model=other),
    ):
        pass


def scales_of_the_next(patch: pytest.MonkeyPatch) -> None:
    """The scales of the expert behind."""
    own = mixture._of_expert

    def other(call: Any, expert: int) -> Any:
        found = own(call, expert)
        found.command.bias_line = own(call, (expert + 1) % call.command.experts).command.bias_line
        return found

    patch.setattr(mixture, "_of_expert", other)


def scale_of_another_row(patch: pytest.MonkeyPatch) -> None:
    rows_of = mixture._rows_of

    def rolled(call: Any, rows: Any, slots: Any) -> Any:
        found = rows_of(call, rows, slots)
        behind = slice(-mixture.SCALE_BYTES, None)
        found[:, behind] = np.roll(found[:, behind], 1, axis=0)
        return found

    patch.setattr(mixture, "_rows_of", rolled)


def gate_left_out(patch: pytest.MonkeyPatch) -> None:
    def add(call: Any) -> None:
        c = call.command
        x, y = (
            call.rows_view(abi.BANK_ONCHIP, offset, stride, c.columns, np.float16)
            for offset, stride in ((c.x_offset, c.x_stride), (c.y_offset, c.y_stride))
        )
        call.store_fp16(y, y.astype(np.float32) + x.astype(np.float32))

    patch.setitem(OPERATIONS, abi.VEC_ADD_GATED, add)


def shared_left_out(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(OPERATIONS, abi.VEC_ADD_GATED, lambda call: None)


@pytest.mark.parametrize(
    ("kind", "mistake"),
    [
        ("mixtral", scales_of_the_next),
        ("qwen3_moe", scale_of_another_row),
        ("granitemoe", scale_of_another_row),
        ("qwen2_moe", gate_left_out),
        ("qwen2_moe", shared_left_out),
        ("olmoe", _rounds_down),
    ],
)
def test_a_mistake_of_a_kernel_is_seen(
    kind: str,
    mistake: Callable[[pytest.MonkeyPatch], None],
    made: Callable[[str], Made],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = made(kind)
    mistake(monkeypatch)
    assert feed(found, 1, "numpy", 9).tobytes() != found[2][:9].tobytes()
