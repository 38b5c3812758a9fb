"""SmoothQuant's export of OPT: what torch-int would compute from a file is what ours computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from lora_host.errors import ModelError
from lora_sdk.model.checkpoint import Checkpoint

HIDDEN, HEADS, FFN, VOCABULARY = 64, 4, 96, 80
SCALES = {"in": 0.031, "q": 0.05, "k": 0.04, "v": 0.02, "out": 0.015, "fc1": 0.027, "fc2": 0.033}
CONFIG = {
    "architectures": ["Int8OPTForCausalLM"],
    "model_type": "opt",
    "hidden_size": HIDDEN,
    "ffn_dim": FFN,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": HIDDEN,
    "do_layer_norm_before": True,
}
LAYER = "model.decoder.layers.0"


def quantized(values: Any) -> tuple[Any, float]:
    """Per tensor, as torch-int does."""
    scale = float(np.abs(values).max()) / 127
    return np.clip(np.rint(values / scale), -128, 127).astype(np.int8), scale


def linear(g: np.random.Generator, n: int, k: int, s_in: float, s_out: float | None) -> Any:
    """One layer's tensors by torch-int's definitions: a and b are quotients of scales."""
    weight, s_w = quantized(g.normal(0, 0.1, (n, k)))
    bias = g.normal(0, 0.2, n)
    if s_out is None:
        return {"weight": weight, "bias": bias.astype(np.float32), "a": np.float32(s_in * s_w)}
    stored, s_b = quantized(bias)
    return {
        "weight": weight,
        "bias": stored[None],
        "a": np.float32(s_in * s_w / s_out),
        "b": np.float32(s_b / s_out),
    }


def export() -> dict[str, Any]:
    """The tensors of a one-layer model."""
    g, s = np.random.default_rng(5), SCALES
    q_out = s["q"] / np.sqrt(HIDDEN // HEADS)
    parts = {
        "self_attn.q_proj": linear(g, HIDDEN, HIDDEN, s["in"], q_out),
        "self_attn.k_proj": linear(g, HIDDEN, HIDDEN, s["in"], s["k"]),
        "self_attn.v_proj": linear(g, HIDDEN, HIDDEN, s["in"], s["v"]),
        "self_attn.out_proj": linear(g, HIDDEN, HIDDEN, s["out"], None),
        "fc1": linear(g, FFN, HIDDEN, s["fc1"], s["fc2"]),
        "fc2": linear(g, HIDDEN, FFN, s["fc2"], None),
        "self_attn.qk_bmm": {"a": np.float32(q_out * s["k"])},
        "self_attn.pv_bmm": {"a": np.float32(s["v"] / 127 / s["out"])},
    }
    tensors = {f"{LAYER}.{m}.{n}": np.asarray(v) for m, t in parts.items() for n, v in t.items()}
    for name in (f"{LAYER}.self_attn_layer_norm", f"{LAYER}.final_layer_norm"):
        tensors[f"{name}.weight"] = g.normal(30, 1, HIDDEN).astype(np.float32)
        tensors[f"{name}.bias"] = g.normal(0, 1, HIDDEN).astype(np.float32)
    for name, shape in {
        "embed_tokens.weight": (VOCABULARY, HIDDEN),
        "embed_positions.weight": (66, HIDDEN),
        "final_layer_norm.weight": (HIDDEN,),
        "final_layer_norm.bias": (HIDDEN,),
    }.items():
        tensors[f"model.decoder.{name}"] = g.normal(0, 0.1, shape).astype(np.float16)
    return tensors


def folder(path: Path, tensors: dict[str, Any]) -> Path:
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(folder(tmp_path, export()))


@pytest.mark.parametrize("letter", ["q", "k", "v"])
def test_a_projection_writes_torch_ints_steps(checkpoint: Checkpoint, letter: str) -> None:
    """acc*a + bias*b in units of an INT8 step = (acc*s_w + bias) / s of ours."""
    tensors, name = export(), f"{LAYER}.self_attn.{letter}_proj"
    x = np.random.default_rng(1).integers(-127, 128, HIDDEN)
    theirs = tensors[f"{name}.weight"].astype(int) @ x * tensors[f"{name}.a"]
    theirs = theirs + tensors[f"{name}.bias"][0] * tensors[f"{name}.b"]
    part = checkpoint.columns(f"layer.0.{letter}")
    assert checkpoint.input_scale(f"layer.0.{letter}") == 1
    ours = part.values.astype(int) @ x * part.scales + checkpoint.vector(f"layer.0.{letter}.bias")
    steps = ours / getattr(checkpoint.attention_scales(0), letter)
    assert np.abs(steps - theirs).max() < 0.02  # FP16 of the bias


def test_scores_and_values_are_torch_ints(checkpoint: Checkpoint) -> None:
    tensors, scales = export(), checkpoint.attention_scales(0)
    head_dim = HIDDEN // HEADS
    score = float(scales.q) * float(scales.k) / np.sqrt(head_dim)
    assert score == pytest.approx(float(tensors[f"{LAYER}.self_attn.qk_bmm.a"]), rel=1e-6)
    # 127 of a probability of 1, times v's step, in steps of out_proj's input
    assert scales.v == pytest.approx(127 * float(tensors[f"{LAYER}.self_attn.pv_bmm.a"]), rel=1e-6)


def test_the_others_read_and_write_units_of_a_step(checkpoint: Checkpoint) -> None:
    tensors = export()
    for letter, module in (("o", "self_attn.out_proj"), ("up", "fc1"), ("down", "fc2")):
        part = checkpoint.columns(f"layer.0.{letter}")
        assert np.array_equal(part.values, tensors[f"{LAYER}.{module}.weight"])
        assert (part.scales == tensors[f"{LAYER}.{module}.a"]).all()
    bias = tensors[f"{LAYER}.fc1.bias"][0].astype(np.float32) * tensors[f"{LAYER}.fc1.b"]
    assert np.array_equal(checkpoint.vector("layer.0.up.bias"), bias.astype(np.float16))
    stored = checkpoint.stored("layer.0.down.bias")
    assert np.array_equal(stored.array, tensors[f"{LAYER}.fc2.bias"]) and stored.kind == "F32"
    assert checkpoint.matrix("lm_head").shape == (HIDDEN, VOCABULARY)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (f"{LAYER}.fc1.b", None, r"fc1\.b: missing"),
        (f"{LAYER}.self_attn.pv_bmm.a", None, r"pv_bmm\.a: missing"),
        (f"{LAYER}.fc2.a", np.float32(-1), r"fc2\.a: a scale is -1"),
        (f"{LAYER}.fc1.weight", np.zeros((FFN, 8), np.int8), r"fc1\.weight: shape \[96, 8\]"),
        (f"{LAYER}.fc1.bias", np.zeros(FFN, np.float32), r"fc1\.bias: dtype F32"),
        (f"{LAYER}.fc1.c", np.zeros(1, np.float32), r"fc1\.c: in "),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    tensors = export()
    tensors.pop(name, None)
    if value is not None:
        tensors[name] = np.asarray(value)
    with pytest.raises(ModelError, match=message):
        checkpoint = Checkpoint.open(folder(tmp_path, tensors))
        checkpoint.columns("layer.0.down")
