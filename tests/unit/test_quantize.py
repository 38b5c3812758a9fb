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
from lora_sdk.cli.quantize import quantize
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.quant.arithmetic import head, run_layer
from lora_sdk.quant.calibrate import LayerCalibration
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.folder_writer import FolderWriter
from lora_sdk.quant.gptq import int4_compensated, int8_compensated
from lora_sdk.quant.layer import file_modules, read_parameters
from lora_sdk.quant.modules import Rounded, half
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.record import record_layer
from lora_sdk.quant.reference import embed_windows
from lora_sdk.quant.rounding import input_scale, int4_weights, int8_weights
from tests.calibrated import random_windows, write_quantized
from tests.oracle import Oracle, load_weights
from tests.variants import variant, write_checkpoint

F32 = NDArray[np.float32]
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


@pytest.mark.parametrize("name", ALL)
def test_the_float_pass_is_the_models(name: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path, "x3")
    checkpoint = Checkpoint.open(folder)
    (tokens,) = random_windows(checkpoint.config.vocabulary, 1)
    exact = Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens)
    for rounded in (False, True):
        off = dense_logits(folder, tokens, rounded) - exact
        assert np.sqrt(np.square(off).mean()) < 0.005 * exact.std()


@pytest.mark.parametrize("name", ALL)
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
    assert any(strength is not None for strength in found.strengths.values())
    gelu = name.startswith("gpt2") or name == "opt_plain"
    assert ("down" in found.strengths) != gelu  # no factor passes GELU
    assert ("qkv" in found.strengths) != (name in ("opt_post_norm", "opt_plain"))
    for role, x in folded.inputs.items():  # what calibration took for the inputs is what they are
        assert np.allclose(x, record.inputs[role], rtol=1e-4, atol=1e-5)
    for a, b in zip(before, after, strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5 * float(np.abs(a).max()))


@pytest.mark.parametrize(("name", "kv"), [*((name, "int8") for name in ALL), ("gpt2", "fp16")])
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


@pytest.mark.parametrize(("scheme", "symmetric"), [("w4a8", False), ("w4a16", True)])
def test_four_bits_are_near_the_model(scheme: str, symmetric: bool, tmp_path: Path) -> None:
    recipe = Recipe(scheme, group=32, symmetric=symmetric)  # type: ignore[arg-type]
    write_quantized("llama_linear", tmp_path, recipe)
    (tokens,) = random_windows(load_config(tmp_path / "plain").vocabulary, 1)
    exact = dense_logits(tmp_path / "plain", tokens, False)
    off = dense_logits(tmp_path / "quantized", tokens, True) - exact
    assert np.sqrt(np.square(off).mean()) < 0.4 * exact.std()


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
    eight = Rounded(int8_compensated(w, False, hessian))
    assert output_error(x, w, eight) < 0.6 * output_error(
        x, w, Rounded(int8_weights(w, False, importance))
    )


def test_values_and_scales_stay_in_range() -> None:
    w = np.random.default_rng(6).standard_normal((16, 64), np.float32)
    w[3], w[5, :32] = 0, 7
    four = int4_weights(w, 32, False, np.ones(64, np.float32))
    assert four.values.max() <= 15 and four.zeros.max() <= 15
    assert np.isfinite(four.scales).all() and (four.scales > 0).all()
    stands = Rounded(four).weights()
    assert (stands[3] == 0).all() and np.abs(stands - w).max() < 0.5
    eight = int8_weights(w, True, np.ones(64, np.float32))
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
    done = CliRunner().invoke(quantize, [str(quantized), *arguments], standalone_mode=False)
    assert isinstance(done.exception, RequestError)
    assert "is quantized already" in str(done.exception)


def test_the_command_writes_a_folder_and_says_what_it_did(tmp_path: Path) -> None:
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain")
    text = tmp_path / "text.txt"
    text.write_text("def one(two):\n    return three\n" * 200)
    out = tmp_path / "out"
    arguments = ["--scheme", "w4a8", "--group", "32", "--calibration", str(text), "--json"]
    done = CliRunner().invoke(
        quantize, [str(plain), str(out), "--windows", "2", *arguments], standalone_mode=False
    )
    assert done.exception is None, done.exception
    report = json.loads(done.stdout)
    assert report["scheme"] == "w4a8" and report["kv"] == "int8" and report["lm_head"] == "w8"
    assert report["worst"] in report["relative_error"]
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
    with pytest.raises(ModelError, match=r"a\.norm: smoothing makes a value of 70000, out of FP16"):
        half("a.norm", np.array([1, -7e4], np.float32))
