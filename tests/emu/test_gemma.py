"""Gemma: residuals beyond FP16's range, text models of multimodal folders, speculation in layers
with windows and capped scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import ModelError, RequestError
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, Result, SamplingParams, demo_model_path
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.quant.arithmetic import F32, head, run_layer
from lora_sdk.quant.dense import DenseOperations
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.reference import embed_windows
from lora_sdk.step.tree_shape import TreeShape
from tests.drive import Driver, Logits, open_runner
from tests.oracle import Oracle, load_weights
from tests.parity.score import BOUND, prompts
from tests.quantized import oracle_of
from tests.variant_tensors import make_tensors
from tests.variants import variant, write_checkpoint, write_weights

LENGTH = 30
LARGE = 30000.0  # of a norm behind a branch: its outputs are up to three times this
LARGE_TOKEN = 7000.0  # times sqrt(160)


def tokens_of(name: str) -> list[int]:
    return prompts(variant(name))[0][:LENGTH].tolist()


def large_residuals(name: str, folder: Path) -> Path:
    """The variant with a branch in its first layer, or embeddings without such a norm, whose values
    FP16 cannot hold."""
    write_checkpoint(variant(name), folder)
    tensors = make_tensors(name, variant(name).config, True, 1.0)
    behind = tensors.get("model.layers.0.post_feedforward_layernorm.weight")
    if behind is None:
        columns = tensors["model.embed_tokens.weight"][:, ::7]
        columns[:] = np.sign(columns) * LARGE_TOKEN
    else:
        behind[::7] = LARGE
    write_weights(folder, tensors, "F16", 1)
    return folder


def plain_pass(folder: Path, tokens: list[int]) -> tuple[float, F32]:
    """The largest value of the stream between layers and the logits, in float32 and not scaled."""
    config = replace(Checkpoint.open(folder).config, stream_scale=1.0)
    operations = DenseOperations(Checkpoint.open(folder, config), rounded=False)
    operations.load(None)
    (x,) = embed_windows(operations, [tokens])
    largest = 0.0
    for layer in range(config.layers):
        operations.load(layer)
        x = run_layer(x, layer, config, operations)
        largest = max(largest, float(np.abs(x).max()))
    operations.load(None)
    return largest, head(x, config, operations)


def on_boards(folder: Path, boards: int, tokens: list[int]) -> Logits:
    with open_runner(folder, boards) as runner:
        return Driver(runner).feed(0, tokens, (16, 1, 7))


@pytest.mark.parametrize("name", ["gemma_gqa_untied", "gemma3"])
def test_residuals_beyond_fp16(name: str, tmp_path: Path) -> None:
    folder, tokens = large_residuals(name, tmp_path), tokens_of(name)[:20]
    largest, wanted = plain_pass(folder, tokens)
    assert largest > 65504
    checkpoint = Checkpoint.open(folder)
    weights = load_weights(checkpoint)
    found = on_boards(folder, 2, tokens)
    assert found.tobytes() == Oracle(checkpoint.config, weights).logits(tokens).tobytes()
    assert np.abs(found - wanted).max() < BOUND["init"] * wanted.std()
    unscaled = Oracle(replace(checkpoint.config, stream_scale=1.0), weights)
    assert not np.isfinite(unscaled.logits(tokens)).all()


SIZES = {
    "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
    "num_hidden_layers": 3, "intermediate_size": 256, "vocab_size": 300,
    "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
FEATURES: dict[str, dict[str, Any]] = {
    "gemma": {},
    "gemma2": {"sliding_window": 13, "attn_logit_softcapping": 0.4, "query_pre_attn_scalar": 32},
    "gemma3_text": {"sliding_window": 13, "sliding_window_pattern": 2},
}
RECIPES = {
    "w8a8": Recipe("w8a8", kv="int8"),
    "w4a8": Recipe("w4a8", group=32, kv="int8-heads"),
    "w4a16": Recipe("w4a16", group=32),
}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", RECIPES)
@pytest.mark.parametrize("kind", FEATURES)
def test_quantized_folders_on_any_boards(kind: str, scheme: str, tmp_path: Path) -> None:
    """Static INT8 attention with windows and caps among them: the oracle's bytes."""
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": kind, **SIZES, **FEATURES[kind]})
    )
    folder = tmp_path / "model"
    synthesize(tmp_path / "config.json", folder, recipe=RECIPES[scheme])
    tokens = [(7 * i * i + 3 * i) % 300 for i in range(LENGTH)]
    wanted = oracle_of(Checkpoint.open(folder)).logits(tokens)
    for boards in (1, 2, 4, 8):
        assert on_boards(folder, boards, tokens).tobytes() == wanted.tobytes()
    with open_runner(folder, 2, kernels="numpy") as runner:
        assert Driver(runner).feed(0, tokens[:20], (16, 3)).tobytes() == wanted[:20].tobytes()


PLACES = [("model.language_model.", "model."), ("language_model.model.", "")]


@pytest.mark.parametrize(("lead", "beside"), PLACES)
def test_a_multimodal_folder(lead: str, beside: str, tmp_path: Path) -> None:
    """The same tensors as the text model's own folder; the vision tower's are passed over, others
    are not."""
    name = "gemma3"
    plain = write_checkpoint(variant(name), tmp_path / "plain")
    config = json.loads((plain / "config.json").read_text())
    tensors = {
        lead + tensor.removeprefix("model."): values
        for tensor, values in make_tensors(name, variant(name).config, True, 1.0).items()
    }
    tensors[f"{beside}vision_tower.vision_model.embeddings.patch_embedding.weight"] = np.ones(
        (2, 2), np.float32
    )
    tensors[f"{beside}multi_modal_projector.mm_soft_emb_norm.weight"] = np.ones(2, np.float32)
    folder = tmp_path / "whole"
    folder.mkdir()
    outer = {"model_type": "gemma3", "text_config": config, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(outer))
    write_weights(folder, tensors, "F16", 1)
    found, wanted = Checkpoint.open(folder), Checkpoint.open(plain)
    assert found.names == wanted.names
    for tensor, values in load_weights(wanted).items():
        assert load_weights(found, [tensor])[tensor].tobytes() == values.tobytes()
    tensors["audio_tower.weight"] = np.ones(2, np.float32)
    write_weights(folder, tensors, "F16", 1)
    with pytest.raises(ModelError, match="audio_tower"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("name", ["gemma2", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_speculation_changes_no_token(name: str, tmp_path: Path) -> None:
    """Trees whose rows lie on both sides of a window's edge."""
    folder, prompt = write_checkpoint(variant(name), tmp_path, "x3"), tokens_of(name)
    params = [
        SamplingParams(max_tokens=24, temperature=t, seed=5, ignore_eos=True) for t in (0.0, 1.0)
    ]

    def outputs(engine: Engine) -> list[object]:
        results = [engine.generate(prompt, param) for param in params]
        return [result.outputs for result in results if isinstance(result, Result)]

    with Engine(folder, 2) as engine:
        expected = outputs(engine)
    assert len(expected) == 2
    request = SpeculationOptions("draft", folder, TreeShape.by_width((3, 2, 1)))
    with Engine(folder, 2, speculation=request) as engine:
        assert outputs(engine) == expected
        assert engine.speculation.mean_emitted > 1.2


def test_an_eagle3_head_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(variant("gemma"), tmp_path)
    head_folder = demo_model_path().parent / "demo_eagle3"
    with pytest.raises(RequestError, match="scaled residual stream"):
        Engine(folder, speculation=SpeculationOptions("eagle3", head_folder))
