"""Rotations of the residual stream and of heads: the function stays, wide columns are spread."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lora_host.errors import RequestError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.opening.opening import plan_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.quant.arithmetic import head as heads
from lora_sdk.quant.arithmetic import run_layer
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.head import head_parameters
from lora_sdk.quant.layer import Weights, read_parameters
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import recommended
from lora_sdk.quant.reference import bits_of, embed_windows
from lora_sdk.quant.rotate import RotatedCheckpoint, hadamard
from lora_sdk.quant.rounded import exact_operations
from tests.calibrated import random_windows
from tests.variants import variant, write_checkpoint

F32 = NDArray[np.float32]
TURNED = ("llama_linear", "llama_gqa_bias", "mistral", "qwen3", "granite", "smollm3", "mixtral",
          "qwen2_moe", "glm4_moe", "deepseek_v2_lite", "deepseek_v3")  # fmt: skip


def logits(checkpoint: Weights, x: F32) -> F32:
    """Of the first layer's input, in FP32."""
    config = checkpoint.config
    for layer in range(config.layers):
        own = exact_operations(config, read_parameters(checkpoint, f"layer.{layer}."))
        x = run_layer(x, layer, config, own)
    return heads(x, config, exact_operations(config, head_parameters(checkpoint)))


@pytest.mark.parametrize("size", [1, 3, 8, 64, 96, 576, 640])
def test_the_matrix_is_orthogonal_and_spreads_a_column(size: int) -> None:
    found = hadamard(size)
    assert np.allclose(found @ found.T, np.eye(size), atol=1e-5)
    odd = size // (size & -size)
    assert np.abs(found).max() < 1.5 * max(1, odd > 1) / np.sqrt(size) + 1e-6


@pytest.mark.parametrize("name", TURNED)
def test_the_turned_model_is_the_model(name: str, tmp_path: Path) -> None:
    source = Checkpoint.open(write_checkpoint(variant(name), tmp_path, "x3"))
    (tokens,) = random_windows(source.config.vocabulary, 1)
    (x,) = embed_windows(DenseOperations(source, rounded=False), [tokens])
    turned = RotatedCheckpoint(source)
    wanted, found = logits(source, x), logits(turned, turned.turned(x))
    assert np.abs(found - wanted).max() < 1e-3 * wanted.std()
    table = turned.table("embed.token").astype(np.float32)
    exact = turned.turned(source.table("embed.token").astype(np.float32))
    assert np.allclose(table, exact, rtol=1e-3, atol=1e-6)
    for layer in turned.names:
        assert turned.shape(layer) == source.shape(layer) and turned.has(layer)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpt2", "LayerNorm"), ("opt_post_norm", "LayerNorm"), ("gemma3", "norms of branches"),
        ("bloom", "LayerNorm"),
    ],
)  # fmt: skip
def test_models_that_do_not_turn_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    folder = write_checkpoint(variant(name), tmp_path / "plain", "x3")
    recipe = recommended("w8a8", load_config(folder), rotate=True)
    with pytest.raises(RequestError, match=f"^--rotate: {reason}.*leave --rotate out$"):
        quantize(folder, tmp_path / "out", recipe, [[1, 2]])
    assert not (tmp_path / "out").exists()


def widened(folder: Path, out: Path) -> Path:
    """The model with one column of what q, k and v of the first layer read 40 times as large, and
    their weights for it smaller by that: the same function."""
    shutil.copytree(folder, out)
    path = out / "model.safetensors"
    tensors = load_file(path)
    lead = "model.layers.0."
    tensors[f"{lead}input_layernorm.weight"][7] *= 40
    for part in "qkv":
        tensors[f"{lead}self_attn.{part}_proj.weight"][:, 7] /= 40
    save_file(tensors, path)
    return out


def test_a_wide_column_costs_less_turned(tmp_path: Path) -> None:
    """INT8 rows are as coarse as their largest value, until it is spread over all."""
    plain = write_checkpoint(variant("llama_linear"), tmp_path / "plain", "x3")
    folder = widened(plain, tmp_path / "wide")
    windows = random_windows(load_config(folder).vocabulary, 6)
    found = {}
    for rotate in (False, True):
        recipe = recommended("w8a8", load_config(folder), rotate=rotate, smooth=False)
        report = quantize(folder, tmp_path / str(rotate), recipe, windows[:4], held_out=windows[4:])
        found[rotate] = report.errors["model.layers.0.self_attn.q_proj"]
        assert report.bits[1] / report.bits[0] == pytest.approx(1, abs=0.02)
        written = load_config(tmp_path / str(rotate))
        assert not written.tied
    assert found[True] < 0.5 * found[False]
    for given in ({"max_adapters": 1}, {"embeddings": True}, {"hidden_layers": (1,)}):
        plan_model(EngineOptions(tmp_path / "False", **given))  # type: ignore[arg-type]
        options = EngineOptions(tmp_path / "True", **given)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="lora quantize --rotate has made: they belong to"):
            plan_model(options)


@pytest.mark.parametrize("head", ["fp16", "w8"])
def test_a_tied_model_gets_an_lm_head_of_its_own(head: str, tmp_path: Path) -> None:
    plain = write_checkpoint(variant("llama_gqa_tied"), tmp_path / "plain", "x3")
    config = load_config(plain)
    assert config.tied
    windows = random_windows(config.vocabulary, 6)
    recipe = recommended("w8a8", config, rotate=True, head=head)
    report = quantize(plain, tmp_path / "out", recipe, windows[:4], held_out=windows[4:])
    written = Checkpoint.open(tmp_path / "out")
    assert not written.config.tied and report.bits[1] / report.bits[0] == pytest.approx(1, abs=0.02)
    operations = DenseOperations(written, rounded=True)
    found = 0.0
    for window in windows[4:]:
        (x,) = embed_windows(operations, [window[:-1]])
        for layer in range(config.layers):
            operations.load(layer)
            x = run_layer(x, layer, config, operations)
        found += bits_of(heads(x, written.config, operations), window[1:])
    assert found == pytest.approx(report.bits[1], rel=0.01)
