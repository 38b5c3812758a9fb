"""Folders that `lora quantize` writes, and those of llm-compressor's presets, read by
compressed-tensors' own library through transformers: the same weights, bit for bit, and logits that
differ by rounding alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import family_of
from lora_sdk.quant.arithmetic import head, run_layer
from lora_sdk.quant.dense import DenseOperations, dequantized
from lora_sdk.quant.layer import full_name
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.reference import embed_windows
from tests.calibrated import random_windows, write_quantized
from tests.oracle.integer import quantize_rows
from tests.preset_folders import PRESETS, write_preset
from tests.quantized import oracle_of

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]

RECIPES = {
    "w8a8": Recipe("w8a8"),
    "w8a8_float_head": Recipe("w8a8", head="fp16", kv="fp16"),
    "w8a8_dynamic": Recipe("w8a8", kv="fp16", activations="dynamic"),
    "w4a8": Recipe("w4a8", group=32, symmetric=False, kv="int8-heads"),
    "w4a8_symmetric": Recipe("w4a8", group=32, kv="fp16"),
    "w4a16": Recipe("w4a16", group=32, symmetric=False, kv="fp16", head="fp16"),
    "w4a16_symmetric": Recipe("w4a16", group=32, kv="fp16"),
}


@pytest.fixture
def library(pytestconfig: pytest.Config) -> None:
    """compressed-tensors, or a visible skip, or a failure with --require-parity."""
    try:
        import compressed_tensors  # noqa: F401
    except ImportError:
        if pytestconfig.getoption("--require-parity"):
            pytest.fail("--require-parity, but compressed_tensors is not installed")
        pytest.skip("compressed_tensors is not installed")


def unpacked(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Every quantized module's weights as the library's own decompressors give them."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils.match import match_name
    from safetensors.torch import load_file

    values = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(values)
    modules: dict[str, dict[str, Any]] = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        module, _, part = name.rpartition(".")
        modules.setdefault(module, {})[part] = tensor
    found = {}
    groups = list(config.config_groups.values())
    for module, parts in modules.items():
        if "weight_scale" in parts:
            named = [g for g in groups if any(match_name(module, t) for t in g.targets)]
            scheme = (named or groups)[0]
            parts["weight_scale"] = parts["weight_scale"].to(torch.float32)
            compressor = BaseCompressor.get_value_from_registry(scheme.format)
            found[module] = compressor.decompress(parts, scheme)["weight"].numpy()
    return found


def loaded(folder: Path, tokens: Sequence[int]) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """The weights of a model that transformers loads, FP32 by module, and its logits of `tokens`,
    inputs and attention rounded as the file says."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    assert not report["mismatched_keys"], report
    with torch.no_grad():  # the first pass unpacks the weights
        logits = model.eval()(input_ids=torch.tensor([tokens])).logits[0].numpy()
    weights = {
        name: module.weight.detach().numpy()
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    return weights, logits


def dense_logits(checkpoint: Checkpoint, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Ours, rounded where boards round."""
    operations = DenseOperations(checkpoint, rounded=True)
    operations.load(None)
    (x,) = embed_windows(operations, [tokens])
    for layer in range(checkpoint.config.layers):
        operations.load(layer)
        x = run_layer(x, layer, checkpoint.config, operations)
    operations.load(None)
    return head(x, checkpoint.config, operations)


def same_weights(checkpoint: Checkpoint, theirs: Mapping[str, NDArray[np.float32]]) -> None:
    """Every quantized matrix, bit for bit."""
    found = checkpoint.config.quantization
    assert found is not None and len(found.formats) >= 6 * checkpoint.config.layers
    sources = family_of(checkpoint.config).sources(checkpoint.config)
    for matrix, form in found.formats.items():
        module = full_name(checkpoint.config, sources[matrix]).removesuffix(".weight")
        weight = theirs[module]
        if not form.integer:  # FP16 before the product, by contract
            weight = weight.astype(np.float16).astype(np.float32)
        assert np.array_equal(weight.T, dequantized(checkpoint, matrix)), matrix


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("model", ["llama_linear", "opt"])
@pytest.mark.parametrize("name", RECIPES)
def test_the_library_unpacks_the_same_weights(model: str, name: str, tmp_path: Path) -> None:
    write_quantized(model, tmp_path, RECIPES[name])
    folder = tmp_path / "quantized"
    same_weights(Checkpoint.open(folder), unpacked(folder))


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", PRESETS)
def test_the_library_unpacks_the_presets_to_the_same_weights(name: str, tmp_path: Path) -> None:
    folder = write_preset("llama_linear", PRESETS[name], tmp_path)
    same_weights(Checkpoint.open(folder), unpacked(folder))


@pytest.mark.usefixtures("library")
def test_the_library_rounds_rows_by_the_same_rule() -> None:
    """Integers of a row by its own scale, which the library computes with 127.5 in 127's place:
    with our scale in its `quantize` the integers are equal but for ties, and with its own scale the
    values differ by at most half a step of both."""
    import torch
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import fake_quantize, quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    args = QuantizationArgs(num_bits=8, strategy="token", dynamic=True, symmetric=True)
    x = np.random.default_rng(3).standard_t(3, (1, 40, 384)).astype(np.float16)
    wide = torch.from_numpy(x.astype(np.float32))
    integers, own = quantize_rows(x[0].astype(np.float32))
    scale = torch.from_numpy(own[None])
    zero = torch.zeros_like(scale)
    theirs = quantize(wide, scale, zero, args).numpy()[0]
    assert (theirs != integers).mean() < 1e-3 and np.abs(theirs - integers).max() <= 1
    steps, _ = compute_dynamic_scales_and_zp(wide, args, torch.nn.Identity())
    assert np.allclose(steps.numpy()[0] * 127.5, own * 127, rtol=1e-6)
    faked = fake_quantize(wide, steps, zero, args).numpy()[0]
    assert (np.abs(faked - integers * own) <= 1.01 * own).all()


# The library rounds FP8 inputs, too; boards do not.
ROUNDED = ("w8a8", "w4a8")


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", ROUNDED)
def test_transformers_runs_the_presets(name: str, tmp_path: Path) -> None:
    folder = write_preset("llama_linear", PRESETS[name], tmp_path)
    checkpoint = Checkpoint.open(folder)
    (tokens,) = random_windows(checkpoint.config.vocabulary, 1)
    weights, logits = loaded(folder, tokens)
    same_weights(checkpoint, weights)
    off = dense_logits(checkpoint, tokens) - logits
    assert np.sqrt(np.square(off).mean()) < 0.04 * logits.std()
    boards = oracle_of(checkpoint).logits(tokens) - logits
    assert np.sqrt(np.square(boards).mean()) < 0.04 * logits.std()


# transformers 5.23 misplaces packed zero points, and the library looks for OPT's KV heads in vain.
LOADED = [
    ("llama_linear", "w8a8"),
    ("llama_linear", "w8a8_float_head"),
    ("llama_linear", "w8a8_dynamic"),
    ("llama_linear", "w4a8_symmetric"),
    ("llama_linear", "w4a16_symmetric"),
    ("opt", "w8a8_float_head"),
    ("opt", "w4a8_symmetric"),
]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("model", "name"), LOADED)
def test_transformers_runs_the_same_model(model: str, name: str, tmp_path: Path) -> None:
    write_quantized(model, tmp_path, RECIPES[name])
    checkpoint = Checkpoint.open(tmp_path / "quantized")
    (tokens,) = random_windows(checkpoint.config.vocabulary, 1)
    weights, logits = loaded(tmp_path / "quantized", tokens)
    same_weights(checkpoint, weights)
    off = dense_logits(checkpoint, tokens) - logits
    assert np.sqrt(np.square(off).mean()) < 0.04 * logits.std()
