"""What fast prefill rests on, without torch: cache types, dequantized weights, refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from lora_host.errors import ModelError, RequestError
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, KvArrays
from lora_sdk.kv.kv_store import stored
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.dequantized import dequantized, in_file_order
from lora_sdk.opening.options import EngineOptions
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import write_quantized
from tests.quantized import SCHEMES, QuantizedModel
from tests.unit.test_synth import TINY
from tests.variants import variant, write_checkpoint

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(40)]


@pytest.mark.parametrize("kind", ["int8", "int8-heads"])
def test_values_are_stored_as_boards_store_them(kind: str, tmp_path: Path) -> None:
    """Layer 0 has the same inputs whatever the cache's type."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "llama", **TINY["llama"]}))
    synthesize(config, tmp_path / "model", recipe=Recipe("w8a8", kv="int8"))
    found: dict[str, KvArrays] = {}
    for kv in ("fp16", kind):
        with Engine(tmp_path / "model", kv=kv, threads=1, max_sequences=1) as engine:
            sequence = engine.open_sequence()
            engine.prefill(sequence, TOKENS)
            found[kv] = engine.export_kv(sequence)
            scales = engine._loaded.runner.attention_scales
    half, want = found["fp16"], found[kind]
    made = stored(want.kind, half.k.astype(np.float32), half.v.astype(np.float32), scales)
    assert made.k.dtype == np.int8 and np.abs(made.k).max() > 9
    assert made.k[0].tobytes() == want.k[0].tobytes()
    assert made.v[0].tobytes() == want.v[0].tobytes()
    if kind == "int8-heads":
        assert made.k_scales is not None and want.k_scales is not None
        assert made.k_scales[0].tobytes() == want.k_scales[0].tobytes()
    with pytest.raises(ModelError, match="FP16 cannot"):
        stored(want.kind, half.k.astype(np.float32) * 1e9, half.v.astype(np.float32), scales)


@pytest.mark.parametrize(
    ("name", "recipe", "bound"),
    [
        ("gptj", Recipe("w8a8", smooth=False), 0.02),
        ("gpt2", Recipe("w4a8", group=32, method="nearest", smooth=False), 0.2),
        ("llama_linear", Recipe("w4a16", group=32, method="nearest", smooth=False), 0.2),
    ],
)
def test_dequantized_tensors_are_near_the_unquantized_files(
    name: str, recipe: Recipe, bound: float, tmp_path: Path
) -> None:
    """Under the same names and in the same shapes and orders."""
    write_quantized(name, tmp_path, recipe)
    plain: dict[str, np.ndarray] = {}
    for path in (tmp_path / "plain").glob("*.safetensors"):
        plain |= load_file(path)
    found = dequantized(Checkpoint.open(tmp_path / "quantized"))
    if name == "gpt2":  # its head is no longer tied, since it has a format of its own
        plain["lm_head.weight"] = plain["transformer.wte.weight"]
    assert set(found) == {key for key in plain if not key.endswith(".attn.bias")}
    for key, tensor in found.items():
        want = plain[key].astype(np.float32)
        assert tensor.shape == want.shape
        error = float(np.sqrt(np.square(tensor - want).mean()))
        assert error <= bound * max(float(want.std()), 1e-3), key


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_checkpoint(variant("llama_narrow"), tmp_path / "model")
    for given, message in (
        ({"prefill": "cuda:0x"}, "expected .* 'cuda:N' or 'torch:DEVICE'"),
        ({"prefill": "boards:1", "prefill_mode": "fast"}, "'cpu', 'cuda:N' or 'vllm:SOCKET'"),
        ({"prefill_mode": "fast"}, "prefill_mode is 'fast'; expected 'exact' while no worker"),
        ({"prefill": "cpu", "prefill_model": model}, "; expected none in the exact mode"),
        ({"prefill": "cpu", "prefill_mode": "near"}, "prefill_mode is 'near'"),
    ):
        with pytest.raises(RequestError, match=message):
            EngineOptions(model, **given)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="expected the folder of a Hugging Face model"):
        EngineOptions(model, prefill="cpu", prefill_mode="fast", prefill_model=tmp_path / "none")
    monkeypatch.setitem(sys.modules, "torch", None)  # as where it is not installed
    with pytest.raises(RequestError, match="torch is not installed"):  # before the overlay is read
        Engine(model, prefill="cpu", prefill_mode="fast", overlay="nowhere")


def test_inputs_in_an_order_of_their_own_return_to_the_files(tmp_path: Path) -> None:
    """A product is the same with the inputs permuted and the weights as they are grouped (6.5)."""
    folder = write_checkpoint(variant("llama_linear"), tmp_path / "model")
    model = QuantizedModel(folder, SCHEMES["w4a8_order"])
    name = next(one for one in model.matrices if model.permutation(one) is not None)
    order = model.permutation(name)
    grouped = model.columns(name, 0, 16).dense()
    x = np.random.default_rng(3).standard_normal(grouped.shape[1]).astype(np.float32)
    assert order is not None and (order != np.arange(len(order))).any()
    found = in_file_order(grouped, order) @ x
    assert np.allclose(found, grouped @ x[order], atol=1e-5)
    assert not np.allclose(found, grouped @ x, atol=1e-2)
