"""Quantizing: folding changes nothing but what is rounded, error compensation pays, folders of
every architecture come out whole and near the model they were made of."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from lora_host.errors import ModelError, RequestError
from lora_sdk.cli.quantize import quantize as command
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.columns import Int8Columns
from lora_sdk.model.config import load_config
from lora_sdk.quant.arithmetic import head, run_layer
from lora_sdk.quant.calibrate import LayerCalibration
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.folder_writer import FolderWriter
from lora_sdk.quant.gptq import int4_compensated, int8_compensated
from lora_sdk.quant.layer import file_modules, read_parameters
from lora_sdk.quant.modules import Rounded, half
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe, fitting_group, recommended
from lora_sdk.quant.record import PRIOR, Inputs, record_layer, with_prior
from lora_sdk.quant.reference import bits_of, embed_windows
from lora_sdk.quant.rounding import input_scale, int4_weights, int8_weights
from lora_sdk.quant.text import windows_of
from lora_sdk.text.tokenizer import Tokenizer
from tests.calibrated import random_windows, write_quantized
from tests.oracle import Oracle, load_weights
from tests.variants import variant, write_checkpoint

F32 = NDArray[np.float32]
MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe_mixed", "olmoe", "granitemoe", "granitemoeshared",
            "glm4_moe", "glm4_moe_single", "deepseek_v2_lite", "deepseek_v3",
            "glm4_moe_lite")  # fmt: skip
MOVED = "deepseek_v2"
"""Of which rounding moves an early row to another expert, and with it those behind it."""
LATENT = {"deepseek_v2": ("kv", "o", "q"), "deepseek_v2_lite": ("kv", "o")}
"""Roles into which a factor can be folded."""
ALL = ["gpt2", "gpt2_unscaled", "opt", "opt_post_norm", "opt_plain", "llama_gqa_bias", "mistral"]


def dense_logits(folder: Path, tokens: list[int], rounded: bool) -> F32:
    checkpoint = Checkpoint.open(folder)
    operations = DenseOperations(checkpoint, rounded)
    operations.load(None)
    (x,) = embed_windows(operations, [tokens])
    for layer in range(checkpoint.config.layers):
        operations.load(layer)
        x = run_layer(x, layer, checkpoint.config, operations)
    operations.load(None)
    return head(x, checkpoint.config, operations)


@pytest.mark.parametrize("name", [*ALL, *MIXTURES, MOVED])
def test_the_float_pass_is_the_models(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    checkpoint = Checkpoint.open(folder)
    (tokens,) = random_windows(checkpoint.config.vocabulary, 1)
    exact = Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens)
    for rounded in (False, True)[: 1 if name == MOVED else 2]:
        off = dense_logits(folder, tokens, rounded) - exact
        by_row = np.sort(np.sqrt(np.square(off).mean(axis=1)))
        if name == "glm4_moe":  # a row's last expert is as near to the next one as rounding is
            by_row = by_row[:-1]
        assert np.sqrt(np.square(by_row).mean()) < 0.005 * exact.std()


@pytest.mark.parametrize("name", [*ALL, *LATENT])
def test_folding_keeps_the_function(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    checkpoint = Checkpoint.open(folder)
    config = checkpoint.config
    operations = DenseOperations(checkpoint, rounded=False)
    operations.load(None)
    streams = embed_windows(operations, random_windows(config.vocabulary))
    parameters = read_parameters(checkpoint, "layer.1.")
    before, record = record_layer(streams, 1, config, parameters)
    calibration = LayerCalibration(1, config, Recipe("w8a8"), parameters, record)
    found = calibration.run(file_modules(config, "layer.1."))
    after, folded = record_layer(streams, 1, config, parameters)
    gelu = name.startswith("gpt2") or name == "opt_plain"
    if name in LATENT:
        assert set(LATENT[name]) <= set(found.strengths)
    else:
        assert ("down" in found.strengths) != gelu  # no factor passes GELU
        assert ("qkv" in found.strengths) != (name in ("opt_post_norm", "opt_plain"))
    for role, x in folded.inputs.items():  # what calibration took for the inputs is what they are
        top = float(np.abs(x.hessian).max())
        assert np.allclose(x.hessian, record.inputs[role].hessian, rtol=1e-3, atol=1e-5 * top)
    for a, b in zip(before, after, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))


@pytest.mark.parametrize(
    ("name", "kv"), [*((name, "int8") for name in (*ALL, *MIXTURES)), ("gpt2", "fp16")]
)
def test_eight_bits_are_near_the_model(name: str, kv: str, tmp_path: Path) -> None:
    report = write_quantized(name, tmp_path, Recipe("w8a8", kv=kv))  # type: ignore[arg-type]
    assert report.worst in report.errors and max(report.errors.values()) < 0.05
    (tokens,) = random_windows(load_config(tmp_path / "plain").vocabulary, 1)
    exact = dense_logits(tmp_path / "plain", tokens, False)
    whole = dense_logits(tmp_path / "quantized", tokens, True)
    weights = dense_logits(tmp_path / "quantized", tokens, False)
    assert np.sqrt(np.square(weights - exact).mean()) < 0.08 * exact.std()
    assert np.sqrt(np.square(whole - exact).mean()) < 0.15 * exact.std()
    assert not np.array_equal(whole, weights)


@pytest.mark.parametrize(
    ("name", "scheme", "symmetric"),
    [("llama_linear", "w4a8", False), ("llama_linear", "w4a16", True), ("olmoe", "w4a8", False)],
)
def test_four_bits_are_near_the_model(
    name: str, scheme: str, symmetric: bool, tmp_path: Path
) -> None:
    recipe = Recipe(scheme, group=32, symmetric=symmetric)  # type: ignore[arg-type]
    write_quantized(name, tmp_path, recipe)
    (tokens,) = random_windows(load_config(tmp_path / "plain").vocabulary, 1)
    exact = dense_logits(tmp_path / "plain", tokens, False)
    off = dense_logits(tmp_path / "quantized", tokens, True) - exact
    assert np.sqrt(np.square(off).mean()) < 0.4 * exact.std()


def test_an_expert_that_no_row_chose_is_rounded_to_nearest() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((50, 64)).astype(np.float32)
    seen = Inputs(np.zeros((64, 64), np.float32))
    seen.add(x, 1)
    none, few = with_prior([seen], None), with_prior([seen], seen)
    w = random.standard_normal((16, 64)).astype(np.float32)
    square = float(np.square(x).mean())
    assert np.allclose(none.hessian, np.eye(64) * square, rtol=1e-5) and len(none.rows) == 0
    nearest = int8_weights(w, np.ones(64, np.float32))
    assert np.array_equal(int8_compensated(w, none.hessian).values, nearest.values)
    assert not np.array_equal(int8_compensated(w, few.hessian).values, nearest.values)
    assert np.allclose(few.hessian, (PRIOR * none.hessian + x.T @ x) / (PRIOR + 50), rtol=1e-4)


def test_routers_stay_as_they_are_and_experts_share_a_scale(tmp_path: Path) -> None:
    """A text of one token, which leaves experts that no row chose."""
    plain = write_checkpoint(variant("qwen2_moe"), tmp_path / "plain", "x3")
    report = quantize(plain, tmp_path / "q", Recipe("w8a8"), [[5, 5]])
    checkpoint, before = Checkpoint.open(tmp_path / "q"), Checkpoint.open(plain)
    for name in ("router", "shared_gate"):
        assert np.array_equal(
            checkpoint.matrix(f"layer.1.{name}"), before.matrix(f"layer.1.{name}")
        )
    found = {checkpoint.input_scale(f"layer.0.expert.{e}.down") for e in range(7)}
    assert len(found) == 1 and found != {checkpoint.input_scale("layer.0.expert.0.up")}
    errors = {name for name in report.errors if "experts" in name and "down" in name}
    assert len(errors) == 14 and sum(report.errors[name] == 0 for name in errors) >= 10
    off = checkpoint.columns("layer.0.expert.0.down").dense().T - before.matrix(
        "layer.0.expert.0.down"
    )
    assert np.abs(off).max() < 0.02 * np.abs(before.matrix("layer.0.expert.0.down")).max()


def correlated(rows: int, k: int) -> F32:
    """Inputs that depend on one another, two columns far larger than the others."""
    random = np.random.default_rng(3)
    x = random.standard_normal((rows, k)) @ (np.eye(k) + random.standard_normal((k, k)) / k**0.5)
    x[:, 5] *= 20
    x[:, 60] *= 9
    return x.astype(np.float32)


def output_error(x: F32, w: F32, rounded: Rounded) -> float:
    off = x @ (rounded.weights() - w).T
    return float(np.square(off).sum() / np.square(x @ w.T).sum())


def test_error_compensation_pays() -> None:
    x, w = correlated(600, 96), np.random.default_rng(4).standard_normal((40, 96), np.float32)
    hessian = x.T @ x / np.float32(len(x))
    importance = np.diagonal(hessian)
    for symmetric in (False, True):
        nearest = Rounded(int4_weights(w, 32, symmetric, importance), symmetric=symmetric)
        better = Rounded(int4_compensated(w, 32, symmetric, hessian), symmetric=symmetric)
        assert output_error(x, w, better) < 0.6 * output_error(x, w, nearest)
        assert np.abs(better.weights() - w).max() < 2.0
    eight = Rounded(int8_compensated(w, hessian))
    assert output_error(x, w, eight) < 0.6 * output_error(
        x, w, Rounded(int8_weights(w, importance))
    )


def test_values_and_scales_stay_in_range() -> None:
    w = np.random.default_rng(6).standard_normal((16, 64), np.float32)
    w[3], w[5, :32] = 0, 7
    four = int4_weights(w, 32, False, np.ones(64, np.float32))
    assert four.values.max() <= 15 and four.zeros.max() <= 15
    assert np.isfinite(four.scales).all() and (four.scales > 0).all()
    stands = Rounded(four).weights()
    assert (stands[3] == 0).all() and np.abs(stands - w).max() < 0.5
    eight = int8_weights(w, np.ones(64, np.float32))
    assert np.abs(eight.values.astype(int)).max() <= 127
    assert (eight.scales == eight.scales.astype(np.float16)).all()  # readers may keep them in FP16


def test_the_scale_of_inputs_weighs_range_against_steps() -> None:
    x = np.random.default_rng(7).standard_normal((20000, 8)).astype(np.float32)
    x[77, 0] = 10
    ones = np.ones(8, np.float32)
    assert 4 / 127 < input_scale(x, ones) < 7 / 127  # one outlier does not set all steps
    x[77, 0] = 60
    assert input_scale(x, ones) > 25 / 127  # but a large one counts


def test_what_cannot_be_done_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="group 48; expected one of 32, 64, 128"):
        Recipe("w4a8", group=48)
    with pytest.raises(
        RequestError, match=r"layer\.0\.down: K is 352, not a multiple .* --group 32"
    ):
        write_quantized("llama_linear", tmp_path, Recipe("w4a8"))
    assert not (tmp_path / "quantized").exists()
    write_quantized("llama_narrow", tmp_path / "a", Recipe("w8a8"))
    quantized = tmp_path / "a" / "quantized"
    text = tmp_path / "text.txt"
    text.write_text("def one(two):\n    return three\n" * 40)
    arguments = [str(tmp_path / "b"), "--scheme", "w8a8", "--calibration", str(text)]
    done = CliRunner().invoke(command, [str(quantized), *arguments], standalone_mode=False)
    assert isinstance(done.exception, RequestError)
    assert "is quantized already" in str(done.exception)


def test_the_command_writes_a_folder_and_says_what_it_did(tmp_path: Path) -> None:
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain")
    text = tmp_path / "text.txt"
    text.write_text("def one(two):\n    return three\n" * 200)
    out = tmp_path / "out"
    arguments = ["--scheme", "w4a8", "--group", "32", "--calibration", str(text), "--json"]
    done = CliRunner().invoke(
        command, [str(plain), str(out), "--windows", "2", *arguments], standalone_mode=False
    )
    assert done.exception is None, done.exception
    report = json.loads(done.stdout)
    assert report["scheme"] == "w4a8" and report["kv"] == "int8-heads" and report["lm_head"] == "w8"
    assert report["worst"] in report["relative_error"]
    assert report["activations"] == "dynamic" and report["zero_points"]
    assert 0 < report["held_out_bytes"] < len(text.read_bytes())
    assert report["bits_per_byte_after"] != report["bits_per_byte_before"]
    assert len(report["migration_strength"]) == 2
    found = load_config(out).quantization
    assert found is not None and found.format("layer.1.up").group == 32
    assert not list(tmp_path.glob(".out.*"))
    assert (out / "tokenizer.json").read_bytes() == (plain / "tokenizer.json").read_bytes()


def test_shards_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lora_sdk.quant.folder_writer.SHARD_BYTES", 100_000)
    write_quantized("llama_linear", tmp_path, Recipe("w8a8"))
    out = tmp_path / "quantized"
    assert len(list(out.glob("model-*-of-*.safetensors"))) > 2
    Checkpoint.open(out)
    with pytest.raises(ZeroDivisionError), FolderWriter(tmp_path / "other") as writer:
        writer.add({"a": np.zeros(3, np.float32)})
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "quantized"]
    with pytest.raises(RequestError, match="exists already"):
        FolderWriter(out)


def test_what_smoothing_takes_out_of_range_is_named() -> None:
    assert half("norm", np.ones(3, np.float32)).dtype == np.float16
    with pytest.raises(ModelError, match=r"a\.norm: scaling makes a value of 70000, out of FP16"):
        half("a.norm", np.array([1, -7e4], np.float32))


def test_the_largest_group_that_divides_is_chosen(tmp_path: Path) -> None:
    config = load_config(write_checkpoint(variant("llama_linear"), tmp_path))
    assert fitting_group(config, 128) == 32  # K of down is 352
    assert recommended("w4a16", config).group == 32
    assert recommended("w4a16", config, group=64).group == 32
    chosen = recommended("w8a8", config, kv=None, symmetric=True)
    assert (chosen.activations, chosen.kv, chosen.head) == ("dynamic", "int8-heads", "w8")
    with pytest.raises(RequestError, match="group 48; expected one of 32, 64, 128"):
        recommended("w4a8", config, group=48)
    odd = load_config(write_checkpoint(variant("mixtral_tied"), tmp_path / "odd"))
    with pytest.raises(RequestError, match="no group divides every K; use --scheme w8a8"):
        recommended("w4a8", odd).check(odd)  # K of down is 136


def test_outputs_have_scales_of_their_own(tmp_path: Path) -> None:
    """A large output does not coarsen the others."""
    write_quantized("llama_linear", tmp_path, Recipe("w8a8", kv="fp16"))
    columns = Checkpoint.open(tmp_path / "quantized").columns("layer.0.q")
    assert isinstance(columns, Int8Columns) and len(np.unique(columns.scales)) > 50
    w = np.random.default_rng(9).standard_normal((8, 64), np.float32)
    w[2] *= 1000
    off = np.abs(Rounded(int8_weights(w, np.ones(64, np.float32))).weights() - w)
    assert off[[0, 1, 3, 4, 5, 6, 7]].max() < 0.02


@pytest.mark.parametrize(
    ("name", "scheme"), [("llama_linear", "w4a8"), ("opt_post_norm", "w8a8")]
)  # the second with project_out
def test_what_was_lost_is_measured_on_text_held_out(name: str, scheme: str, tmp_path: Path) -> None:
    """The bits by the model and by the integers are those of the folders themselves."""
    plain = write_checkpoint(variant(name), tmp_path / "plain", "x3")
    windows = random_windows(load_config(plain).vocabulary, 5)
    recipe = recommended(scheme, load_config(plain))
    report = quantize(plain, tmp_path / "out", recipe, windows[:3], held_out=windows[3:])
    for folder, rounded, found in (
        (plain, False, report.bits[0]), (tmp_path / "out", True, report.bits[1]),
    ):  # fmt: skip
        bits = sum(
            bits_of(dense_logits(folder, window[:-1], rounded), window[1:])
            for window in windows[3:]
        )
        assert found == pytest.approx(bits, rel=0.01 if rounded else 1e-5)
    assert report.bits[0] != report.bits[1]


def test_the_end_of_the_text_is_held_out(tmp_path: Path) -> None:
    plain = write_checkpoint(variant("llama_linear"), tmp_path)
    config = load_config(plain)
    tokenizer = Tokenizer(plain, config.vocabulary)
    text = "def one(two):\n    return three\n" * 60
    found, held = windows_of(text, tokenizer, config, 4)
    tokens, begin = tokenizer.encode(text, special=False), len(tokenizer.begins_with)
    last = [token for window in held for token in window[begin:]]
    assert (
        last == tokens[-len(last) :]
        and found[-1][begin:] == tokens[: -len(last)][-len(found[-1]) + begin :]
    )


def test_scaling_is_chosen_where_it_measures_better(tmp_path: Path) -> None:
    """Two columns of an input are 30 times as large as the others: divided, INT8 loses less."""
    folder = write_checkpoint(variant("llama_linear"), tmp_path, "x3")
    checkpoint = Checkpoint.open(folder)
    config = checkpoint.config
    operations = DenseOperations(checkpoint, rounded=False)
    operations.load(None)
    streams = embed_windows(operations, random_windows(config.vocabulary))
    found = {}
    for smooth in (True, False):
        parameters = read_parameters(checkpoint, "layer.0.")
        parameters.vectors["layer.0.attn_norm.gamma"][[3, 40]] *= 30
        recipe = recommended("w8a8", config, smooth=smooth)
        record = record_layer(streams, 0, config, parameters)[1]
        calibration = LayerCalibration(0, config, recipe, parameters, record)
        found[smooth] = calibration.run(file_modules(config, "layer.0."))
    name = "model.layers.0.self_attn.q_proj"
    assert found[True].errors[name] < 0.7 * found[False].errors[name]
    assert found[True].strengths["qkv"] is not None and found[False].strengths == {}


def test_lm_head_and_the_cache_are_judged_by_what_they_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stays FP16 where it costs too much, unless it was asked for."""
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain", "x3")
    config = load_config(plain)
    windows = random_windows(config.vocabulary, 5)
    found = {}
    for name, most, given in (
        ("cheap", 1.0, {}), ("dear", -1.0, {}), ("asked", -1.0, {"head": "w8", "kv": "int8-heads"}),
    ):  # fmt: skip
        monkeypatch.setattr("lora_sdk.quant.held_out.MOST", most)
        recipe = recommended("w8a8", config, **given)
        report = quantize(plain, tmp_path / name, recipe, windows[:3], held_out=windows[3:])
        assert report.recipe is not None and set(report.costs) == {"head", "kv"}
        read = load_config(tmp_path / name).quantization
        assert read is not None and read.kv == report.recipe.kv
        found[name] = report.recipe.head, report.recipe.kv, read.format("lm_head").integer
        tokens = windows[4]
        bits = bits_of(dense_logits(tmp_path / name, tokens[:-1], True), tokens[1:])
        bits += bits_of(dense_logits(tmp_path / name, windows[3][:-1], True), windows[3][1:])
        assert report.bits[1] == pytest.approx(bits, rel=0.01)
    assert found["cheap"] == found["asked"] == ("w8", "int8-heads", True)
    assert found["dear"] == ("fp16", "fp16", False)


def test_what_lm_head_costs_is_that_of_its_rounding(tmp_path: Path) -> None:
    """It is the difference to the same folder with lm_head in FP16."""
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain", "x3")
    config = load_config(plain)
    windows = random_windows(config.vocabulary, 6)
    recipe = recommended("w8a8", config, head="w8", kv="fp16")
    report = quantize(plain, tmp_path / "out", recipe, windows[:3], held_out=windows[3:])
    wide = recommended("w8a8", config, head="fp16", kv="fp16")
    other = quantize(plain, tmp_path / "wide", wide, windows[:3], held_out=windows[3:])
    assert set(report.costs) == {"head"} and other.costs == {}
    assert report.costs["head"] == pytest.approx(report.bits[1] / other.bits[1] - 1, abs=1e-9)
