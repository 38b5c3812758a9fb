"""Folders in compressed-tensors' format: exact values, slices, one line for whatever is wrong."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.packed_weights import pack_nibbles, unpack_nibbles
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import write_quantized

Tensors = dict[str, NDArray[Any]]
Fields = dict[str, Any]
WEIGHTS = "model.safetensors"
Q = "model.layers.0.self_attn.q_proj"
RECIPES = {
    "w8a8": Recipe("w8a8", method="nearest", smooth=False),
    "w4a8": Recipe("w4a8", group=32, symmetric=False, method="nearest", smooth=False),
    "w4a16": Recipe("w4a16", group=32, symmetric=True, kv="fp16", head="fp16", method="nearest"),
}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder a scheme; tests work on copies."""
    found = {}
    for name, recipe in RECIPES.items():
        folder = tmp_path_factory.mktemp(name)
        write_quantized("llama_linear", folder, recipe)
        found[name] = folder / "quantized"
    return found


def change(folder: Path, tensors: Callable[[Tensors], object] | None = None,
           fields: Callable[[Fields], object] | None = None) -> None:  # fmt: skip
    """Edits the files of a folder in place."""
    if tensors is not None:
        held = {name: array.copy() for name, array in load_file(folder / WEIGHTS).items()}
        tensors(held)
        save_file(held, folder / WEIGHTS)
    if fields is not None:
        values = json.loads((folder / "config.json").read_text())
        fields(values["quantization_config"])
        (folder / "config.json").write_text(json.dumps(values))


@pytest.fixture
def copied(written: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(written[name], tmp_path / name))


def test_nibbles_lie_low_bits_first() -> None:
    values = np.arange(8, dtype=np.uint8)[None]
    assert pack_nibbles(values).tolist() == [[0x76543210]]
    assert pack_nibbles(values[:, ::-1]).view(np.uint32).tolist() == [[0x01234567]]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.randoms(use_true_random=False))
def test_nibbles_come_back(rows: int, count: int, random: Any) -> None:
    drawn = [[random.randrange(16) for _ in range(count)] for _ in range(rows)]
    values = np.array(drawn, np.uint8)
    assert np.array_equal(unpack_nibbles(pack_nibbles(values), count), values)


def test_formats_are_read(written: dict[str, Path]) -> None:
    for name, kind, head, kv in (
        ("w8a8", "int8", "int8", "int8"),
        ("w4a8", "w4a8", "int8", "int8"),
        ("w4a16", "w4a16", "fp16", "fp16"),
    ):
        found = load_config(written[name]).quantization
        assert found is not None
        assert found.format("layer.1.down").kind == kind
        assert found.format("lm_head").kind == head
        assert found.kv == kv


def test_int8_values_are_those_of_the_file(written: dict[str, Path]) -> None:
    checkpoint, raw = Checkpoint.open(written["w8a8"]), load_file(written["w8a8"] / WEIGHTS)
    whole, part = checkpoint.columns("layer.0.q"), checkpoint.columns("layer.0.q", 5, 37)
    assert np.array_equal(whole.values, raw[f"{Q}.weight"])
    assert np.array_equal(part.values, raw[f"{Q}.weight"][5:37])
    assert np.array_equal(part.scales, raw[f"{Q}.weight_scale"][5:37, 0])
    head = checkpoint.columns("lm_head", 3, 11)
    assert np.array_equal(head.scales, raw["lm_head.weight_scale"][3:11, 0])
    assert checkpoint.input_scale("layer.0.q") == raw[f"{Q}.input_scale"][0]
    scales = checkpoint.attention_scales(1)
    assert scales.v == raw["model.layers.1.self_attn.v_scale"][0]
    assert checkpoint.activation_scales().of_layer(1) == scales


def test_int4_values_are_those_of_the_file(written: dict[str, Path]) -> None:
    checkpoint, raw = Checkpoint.open(written["w4a8"]), load_file(written["w4a8"] / WEIGHTS)
    columns = checkpoint.columns("layer.0.q", 5, 37)  # zero points of rows 5..36, eight a word
    for row in (0, 17, 31):
        for k in (0, 9, 127):
            word = int(raw[f"{Q}.weight_packed"].view(np.uint32)[5 + row, k // 8])
            assert columns.values[row, k] == word >> 4 * (k % 8) & 15
        for group in range(4):
            word = int(raw[f"{Q}.weight_zero_point"].view(np.uint32)[(5 + row) // 8, group])
            assert columns.zeros[row, group] == word >> 4 * ((5 + row) % 8) & 15
    assert len(np.unique(columns.zeros)) > 3
    assert np.array_equal(columns.scales, raw[f"{Q}.weight_scale"][5:37])
    assert (Checkpoint.open(written["w4a16"]).columns("layer.0.q").zeros == 8).all()


def test_scales_of_channels_and_of_large_groups_are_repeated(
    copied: Callable[[str], Path],
) -> None:
    folder = copied("w4a16")

    def one_a_channel(tensors: Tensors) -> None:
        for name in tensors:
            if name.endswith(".weight_scale"):
                tensors[name] = np.ascontiguousarray(tensors[name][:, :1])

    def channel(fields: Fields) -> None:
        fields["config_groups"]["group_0"]["weights"] |= {"strategy": "channel", "group_size": -1}

    change(folder, one_a_channel, channel)
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config.quantization is not None
    assert checkpoint.config.quantization.format("layer.0.q").group == 128
    assert checkpoint.config.quantization.format("layer.0.down").group == 32  # K is 352
    scales = checkpoint.columns("layer.0.down").scales
    assert scales.shape == (128, 11) and (scales == scales[:, :1]).all()


def test_inputs_in_an_order_of_their_own(copied: Callable[[str], Path]) -> None:
    folder, order = copied("w4a16"), np.random.default_rng(1).permutation(128)

    def ordered(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith(".weight_shape")]:
            module, k = name.removesuffix(".weight_shape"), int(tensors[name][1])
            places = order if k == 128 else np.arange(k)
            tensors[f"{module}.weight_g_idx"] = (places // 32).astype(np.int32)

    change(
        folder, ordered, lambda f: f["config_groups"]["group_0"]["weights"].update(actorder="group")
    )
    checkpoint = Checkpoint.open(folder)
    found = checkpoint.permutation("layer.0.q")
    assert found is not None and (order[found] // 32 == np.arange(128) // 32).all()
    words = load_file(folder / WEIGHTS)[f"{Q}.weight_packed"]
    plain = unpack_nibbles(words, 128)
    assert np.array_equal(checkpoint.columns("layer.0.q").values, plain[:, found])
    change(folder, lambda t: t[f"{Q}.weight_g_idx"].__setitem__(slice(0, 99), 0))
    with pytest.raises(ModelError, match=rf"{Q}.weight_g_idx: expected each of the groups"):
        Checkpoint.open(folder).permutation("layer.0.q")


def test_ignored_modules_stay_fp16(copied: Callable[[str], Path]) -> None:
    folder = copied("w8a8")

    def plain(tensors: Tensors) -> None:
        for module in (Q, Q.replace("q_", "k_"), Q.replace("q_", "v_"), Q.replace("q_", "o_")):
            for name in [name for name in tensors if name.startswith(f"{module}.")]:
                if name.endswith(".weight"):
                    tensors[name] = tensors[name].astype(np.float16)
                else:
                    del tensors[name]

    ignore = ["re:.*layers\\.0\\.self_attn\\.[qkv]_proj$", "model.layers.0.self_attn.o_proj"]
    change(folder, plain, lambda f: f.update(ignore=ignore))
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config.quantization is not None
    assert checkpoint.config.quantization.format("layer.0.o").kind == "fp16"
    assert checkpoint.config.quantization.format("layer.1.o").kind == "int8"
    assert checkpoint.matrix("layer.0.q").dtype == np.float16
    with pytest.raises(ModelError, match=r"layer\.1\.q: is int8, read as fp16"):
        checkpoint.matrix("layer.1.q")


def setting(*path: str, value: Any) -> Callable[[Fields], None]:
    """Sets one field of quantization_config."""

    def change_one(fields: Fields) -> None:
        for name in path[:-1]:
            fields = fields[name]
        fields[path[-1]] = value

    return change_one


GROUP = ("config_groups", "group_0")
BAD_FIELDS: list[tuple[str, Callable[[Fields], object], str]] = [
    ("w8a8", setting("quant_method", value="bits"), "quant_method is 'bits', expected one of"),
    ("w8a8", setting("quant_method", value=["gptq"]), "quant_method is"),
    ("w8a8", setting("format", value="marlin-24"), "quantization_config: format is 'marlin-24'"),
    ("w8a8", setting("format", value=["dense"]), "quantization_config: format is"),
    ("w8a8", setting("format", value="mixed-precision"), ""),
    ("w8a8", setting(*GROUP, "format", value="marlin-24"), "format is 'marlin-24'"),
    ("w8a8", setting(*GROUP, "format", value="float-quantized"), "type is 'int', expected float"),
    ("w8a8", setting("config_groups", value={}), "config_groups is {}, expected an object"),
    ("w8a8", setting("config_groups", value=[1]), "config_groups is"),
    ("w8a8", setting(*GROUP, value=7), "group_0: found a int, expected an object"),
    ("w8a8", setting(*GROUP, "targets", value="Linear"), "targets is 'Linear', expected a list"),
    ("w8a8", setting(*GROUP, "targets", value=["re:("]), "is no regular expression"),
    ("w8a8", setting(*GROUP, "targets", value=["re:(a+)+$"]), "is too complex"),
    ("w8a8", setting("ignore", value=["re:" + "a*" * 9]), "ignore: pattern .* is too complex"),
    ("w8a8", setting(*GROUP, "weights", "num_bits", value=6), "weights: num_bits is 6, expected 4"),
    (
        "w4a16",
        setting(*GROUP, "weights", "num_bits", value=8),
        "no groups for 8 bits",
    ),
    ("w8a8", setting(*GROUP, "weights", "type", value="float"), "type is 'float', expected int"),
    ("w8a8", setting(*GROUP, "weights", "symmetric", value=False), "symmetric is False"),
    ("w8a8", setting(*GROUP, "weights", "strategy", value="block"), "strategy is 'block'"),
    ("w8a8", setting(*GROUP, "input_activations", value=None), "input_activations is None"),
    (
        "w8a8",
        setting(*GROUP, "input_activations", "dynamic", value=True),
        "strategy is 'tensor', expected",
    ),
    ("w8a8", setting(*GROUP, "input_activations", "dynamic", value="local"), "dynamic is 'local'"),
    (
        "w8a8",
        setting(*GROUP, "input_activations", "strategy", value="token"),
        "strategy is 'token'",
    ),
    ("w8a8", setting(*GROUP, "output_activations", value={"num_bits": 8}), "quantized outputs"),
    ("w8a8", setting("quantization_status", value="initialized"), "quantization_status"),
    ("w8a8", setting("sparsity_config", value={"format": "2:4"}), "a sparse checkpoint"),
    ("w8a8", setting("transform_config", value={"u": {}}), "transformed weights"),
    ("w8a8", setting("kv_cache_scheme", "num_bits", value=4), "kv_cache_scheme: num_bits is 4"),
    ("w8a8", setting("kv_cache_scheme", "strategy", value="channel"), "strategy is 'channel'"),
    ("w4a8", setting(*GROUP, "weights", "group_size", value=48), r"q: K is 128, not a multiple of"),
    ("w4a8", setting(*GROUP, "weights", "group_size", value=16), r"groups of 16 along K"),
    ("w4a8", setting(*GROUP, "weights", "group_size", value=-1), "group_size is -1"),
    ("w4a8", setting(*GROUP, "weights", "actorder", value="random"), "actorder is 'random'"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), BAD_FIELDS)
def test_a_bad_field_is_named(
    copied: Callable[[str], Path], name: str, spoil: Callable[[Fields], object], message: str
) -> None:
    folder = copied(name)
    change(folder, fields=spoil)
    if not message:  # the groups' own format stands above the whole file's
        assert load_config(folder).quantization is not None
        return
    with pytest.raises(ModelError, match=message) as raised:
        load_config(folder)
    assert "\n" not in str(raised.value)


def drop(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.__delitem__(name)


def put(name: str, array: NDArray[Any]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: array})


HEAD, SHAPE = "lm_head.weight_scale", f"{Q}.weight_shape"
BAD_TENSORS: list[tuple[str, Callable[[Tensors], object], str]] = [
    ("w8a8", drop(f"{Q}.weight"), f"{Q}.weight: missing"),
    ("w8a8", drop(f"{Q}.weight_scale"), f"{Q}.weight_scale: missing"),
    ("w8a8", drop(f"{Q}.input_scale"), f"{Q}.input_scale: missing"),
    ("w8a8", drop("model.layers.1.self_attn.q_scale"), "layers.1.self_attn.q_scale: missing"),
    ("w8a8", put(f"{Q}.weight", np.zeros((512, 128), np.float16)), "weight: dtype F16 in .*I8"),
    ("w8a8", put(f"{Q}.weight", np.zeros((128, 512), np.int8)), r"weight: shape \[128, 512\]"),
    ("w8a8", put(f"{Q}.weight_scale", np.ones(3, np.float32)), r"weight_scale: shape \[3\]"),
    ("w8a8", put(HEAD, np.ones((9, 1), np.float32)), r"lm_head.weight_scale: shape \[9, 1\]"),
    ("w8a8", put(f"{Q}.weight_zero_point", np.ones(1, np.int8)), "zero_point: is not zero"),
    ("w8a8", put(f"{Q}.input_scale", np.zeros(1, np.float32)), "the scale is 0.0"),
    ("w8a8", put(f"{Q}.input_scale", np.full(1, np.nan, np.float32)), "a scale is nan"),
    ("w8a8", put(f"{Q}.input_scale", np.full(1, 1e-40, np.float32)), "expected a positive number"),
    ("w8a8", put(f"{Q}.weight_scale", np.full((512, 1), -1, np.float32)), "a scale is -1.0"),
    ("w8a8", put(f"{Q}.weight_g_idx", np.zeros(128, np.int32)), "weight_g_idx: in .* but not in"),
    ("w4a8", drop(f"{Q}.weight_packed"), f"{Q}.weight_packed: missing"),
    ("w4a8", drop(f"{Q}.weight_zero_point"), f"{Q}.weight_zero_point: missing"),
    ("w4a8", drop(SHAPE), f"{SHAPE}: missing"),
    ("w4a8", put(SHAPE, np.array([512, 96])), r"weight_shape: is \[512, 96\]"),
    (
        "w4a8",
        put(f"{Q}.weight_packed", np.zeros((512, 15), np.int32)),
        r"packed: shape \[512, 15\]",
    ),
    ("w4a8", put(f"{Q}.weight_scale", np.full((512, 4), 1e6, np.float32)), "out of FP16's range"),
    ("w4a8", put(f"{Q}.weight_zero_point", np.zeros((512, 4), np.int32)), r"shape \[512, 4\]"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), BAD_TENSORS)
def test_a_bad_tensor_is_named(
    copied: Callable[[str], Path], name: str, spoil: Callable[[Tensors], object], message: str
) -> None:
    folder = copied(name)
    change(folder, spoil)
    with pytest.raises(ModelError, match=message):
        checkpoint = Checkpoint.open(folder)
        checkpoint.activation_scales()
        checkpoint.columns("layer.0.q")


def test_truncated_and_without_tensors(copied: Callable[[str], Path]) -> None:
    folder = copied("w4a8")
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match="truncated or corrupt"):
        Checkpoint.open(folder)


def test_a_tied_head_is_not_quantized(copied: Callable[[str], Path]) -> None:
    folder = copied("w8a8")
    values = json.loads((folder / "config.json").read_text())
    tied = copy.deepcopy(values) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(tied))
    with pytest.raises(ModelError, match="quantizes lm_head, which tie_word_embeddings makes"):
        load_config(folder)


def test_the_kv_cache_by_token_and_head(copied: Callable[[str], Path]) -> None:
    folder = copied("w8a8")
    scheme = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}

    def by_token(fields: Fields) -> None:
        fields["kv_cache_scheme"] = scheme
        del fields["config_groups"]["group_2"]

    change(folder, fields=by_token)
    found = load_config(folder).quantization
    assert found is not None and found.kv == "int8-heads"
