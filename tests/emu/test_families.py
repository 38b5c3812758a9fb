"""Families besides GPT-2, OPT and LLaMA on boards: the oracle's bytes over boards and kernels, near
what transformers computed, and quantized. The mistakes that each family invites are seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.rope import head_order
from lora_sdk.model.spec import ModelConfig, Residual
from lora_sdk.quant.recipe import Recipe
from tests.calibrated import random_windows, write_quantized
from tests.drive import Driver, Logits, open_runner
from tests.family_configs import FAMILY_CONFIGS
from tests.oracle import Oracle, load_weights
from tests.parity.score import BOUND, PROMPTS, first_tokens, kept_positions, load_fixture
from tests.variants import variant

LENGTH = 32
KEPT = [int(p) for p in kept_positions(sum(PROMPTS)) if p < LENGTH]


def tokens_of(name: str) -> list[int]:
    return first_tokens(name, LENGTH)


def on_boards(folder: Path, boards: int, tokens: list[int], kernels: str = "native") -> Logits:
    with open_runner(folder, boards, kernels=kernels) as runner:
        return Driver(runner).feed(0, tokens, (16, 1, 7))


def error(name: str, found: Logits) -> float:
    """The worst error of the rows that the fixture keeps, in parts of the logits' deviation."""
    fixture = load_fixture(name)
    assert len(KEPT) == 2
    wrong = np.abs(found[KEPT] - fixture["x3_logits"][: len(KEPT)]).max()
    return float(wrong / fixture["x3_std"])


@pytest.mark.parametrize("name", FAMILY_CONFIGS)
def test_boards_and_kernels_give_the_oracles_bytes(
    name: str, folder_of: Callable[[str], Path]
) -> None:
    folder, tokens = folder_of(name), tokens_of(name)
    checkpoint = Checkpoint.open(folder)
    wanted = Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens)
    for boards in (1, 2, 4):
        assert on_boards(folder, boards, tokens).tobytes() == wanted.tobytes()
    assert on_boards(folder, 2, tokens[:9], "numpy").tobytes() == wanted[:9].tobytes()
    assert error(name, wanted) < BOUND["x3"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("gemma", "gemma2_gqa", "gemma3")))
        for name in FAMILY_CONFIGS
    ],
)
def test_w8a8_is_the_same_over_boards_and_near_fp16(name: str, tmp_path: Path) -> None:
    write_quantized(name, tmp_path, Recipe("w8a8"))
    tokens = random_windows(variant(name).config["vocab_size"])[0]
    plain = on_boards(tmp_path / "plain", 1, tokens)
    found = [on_boards(tmp_path / "quantized", boards, tokens) for boards in (1, 2, 4)]
    assert {logits.tobytes() for logits in found} == {found[0].tobytes()}
    assert 0 < np.sqrt(np.square(found[0] - plain).mean()) < 0.15 * plain.std()


Weights = dict[str, NDArray[np.float16]]
Mistake = Callable[[ModelConfig, Weights], ModelConfig]


def without(*names: str) -> Mistake:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        for name in names:
            del weights[name]
        return config

    return change


def half_pairs(part: str) -> Mistake:
    """Heads of q or k as the file has them: neighbours where halves are rotated."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.rope is not None
        size, width = config.head_dim, config.rope.width or config.head_dim
        order = np.argsort(head_order(size, width, interleaved=True))
        for layer in range(config.layers):
            name = f"layer.{layer}.{part}"
            heads = weights[name].reshape(config.hidden, -1, size)
            weights[name] = heads[:, :, order].reshape(config.hidden, -1)
        return config

    return change


def residual(kind: Residual) -> Mistake:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        for name in [n for n in weights if ".attn_norm." in n]:
            weights.setdefault(name.replace("attn", "mlp"), weights[name])
        return replace(config, residual=kind)

    return change


def rope(**fields: float) -> Mistake:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.rope is not None
        return replace(config, rope=replace(config.rope, **fields))  # type: ignore[arg-type]

    return change


def swapped(a: str, b: str) -> Mistake:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        weights[a], weights[b] = weights[b], weights[a]
        return config

    return change


def setting(**fields: object) -> Mistake:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        return replace(config, **fields)  # type: ignore[arg-type]

    return change


def rolled(name: str) -> Mistake:
    """Heads one place on."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        weights[name] = np.roll(weights[name], config.head_dim, axis=1)
        return config

    return change


def norms_of_heads(config: ModelConfig, weights: Weights) -> ModelConfig:
    """A norm of each head where the model has one of the row."""
    for name in [n for n in weights if n.endswith(("q_norm.gamma", "k_norm.gamma"))]:
        weights[name] = weights[name][: config.head_dim]
    return replace(config, head_norms="heads")


def norms_before(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Norms of branches' inputs where the model has them of the outputs."""
    for name in [n for n in weights if "_post_norm" in n]:
        weights[name.replace("_post_norm", "_norm")] = weights[name]
    return replace(config, branch_norms="none")


def norms_behind(config: ModelConfig, weights: Weights) -> ModelConfig:
    """The norms of branches' outputs alone where the model has both."""
    return replace(config, branch_norms="alone")


def swapped_ropes(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Rotary positions of layers with a window in those without, and the other way round."""
    return replace(config, rope=config.local_rope, local_rope=config.rope)


def one_more(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Windows that are one position longer."""
    return replace(config, windows=tuple(window and window + 1 for window in config.windows))


def other_layers(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Windows in the layer after the one that has it; rotary positions stay."""
    windows = config.windows[-1:] + config.windows[:-1]
    assert windows != config.windows
    return replace(config, windows=windows)


def moved_heads(config: ModelConfig, weights: Weights) -> ModelConfig:
    """All heads one place on, which nothing but their slopes sees."""
    for layer in range(config.layers):
        for part, axis in (("q", 1), ("k", 1), ("v", 1), ("q.bias", 0), ("k.bias", 0),
                           ("v.bias", 0), ("o", 0)):  # fmt: skip
            name = f"layer.{layer}.{part}"
            if name in weights:
                weights[name] = np.roll(weights[name], config.head_dim, axis=axis)
    return config


MISTAKES: list[tuple[str, str, Mistake]] = [
    ("qwen2", "bias of q", without("layer.0.q.bias")),
    ("qwen2_gqa_tied", "bias of v", without("layer.1.v.bias")),
    ("gptj", "pairing of q and k", lambda c, w: half_pairs("q")(half_pairs("k")(c, w), w)),
    ("gptj_whole_head", "pairing of k", half_pairs("k")),
    ("gptj", "one norm after the other", residual("sequential")),
    ("gptj", "bias of lm_head", without("lm_head.bias")),
    ("gptj", "width", rope(width=12)),
    ("gpt_neox", "one norm for both", residual("parallel")),
    ("gpt_neox", "sequential", residual("sequential")),
    ("gpt_neox_sequential", "parallel", residual("parallel_two_norms")),
    ("gpt_neox", "norms", swapped("layer.0.attn_norm.gamma", "layer.0.mlp_norm.gamma")),
    ("gpt_neox", "theta", rope(theta=1e4)),
    ("gpt_neox", "q and k", swapped("layer.0.q", "layer.0.k")),
    ("gpt_neox", "width", rope(width=16)),
    ("phi", "sequential", residual("sequential")),
    ("phi", "width", rope(width=24)),
    ("phi_gqa", "theta", rope(theta=1e4)),
    ("phi", "bias of lm_head", without("lm_head.bias")),
    ("phi_gqa", "bias of o", without("layer.0.o.bias")),
    ("stablelm", "parallel", residual("parallel_two_norms")),
    ("stablelm", "bias of k and v", without("layer.0.k.bias", "layer.0.v.bias")),
    ("stablelm", "width", rope(width=16)),
    ("stablelm_parallel_gqa", "sequential", residual("sequential")),
    ("starcoder2", "bias of down", without("layer.1.down.bias")),
    ("starcoder2", "theta", rope(theta=1e4)),
    ("starcoder2_plain", "norms", swapped("layer.0.attn_norm.beta", "layer.0.mlp_norm.beta")),
    ("phi3", "q and k", swapped("layer.0.q", "layer.0.k")),
    ("phi3", "gate and up", swapped("layer.0.gate", "layer.0.up")),
    ("phi3_gqa_partial", "k and v", swapped("layer.1.k", "layer.1.v")),
    ("phi3_gqa_partial", "width", rope(width=8)),
    ("gpt_bigcode", "k and v", swapped("layer.0.k", "layer.0.v")),
    ("gpt_bigcode", "bias of v", without("layer.0.v.bias")),
    ("gpt_bigcode_heads", "q and k", swapped("layer.0.q", "layer.0.k")),
    ("qwen3", "no norms of heads", setting(head_norms="none")),
    ("qwen3", "norms", swapped("layer.0.q_norm.gamma", "layer.1.k_norm.gamma")),
    ("qwen3_gqa_tied", "bias of o", without("layer.0.o.bias")),
    ("olmo2", "norms of heads", norms_of_heads),
    ("olmo2", "norms before branches", norms_before),
    ("olmo2", "norms", swapped("layer.0.attn_post_norm.gamma", "layer.0.mlp_post_norm.gamma")),
    ("olmo2_gqa", "no norms of q and k", setting(head_norms="none")),
    ("granite", "embeddings", setting(embed_scale=1.0)),
    ("granite", "scores", setting(score_factor=None)),
    ("granite", "branches", setting(branch_scale=1.0)),
    ("granite_bias_tied", "logits", setting(logit_scale=1 / 8.2)),
    ("granite_bias_tied", "bias of gate", without("layer.0.gate.bias")),
    ("smollm3", "every layer rotated", setting(unrotated=frozenset())),
    ("smollm3", "another layer", setting(unrotated=frozenset([0]))),
    ("smollm3_interval", "interval", setting(unrotated=frozenset([2]))),
    ("smollm3_interval", "theta", rope(theta=1e4)),
    ("bloom", "no slopes", setting(alibi=None)),
    ("bloom", "slopes of other heads", moved_heads),
    ("bloom_untied", "positions in BF16, scaled", setting(alibi="falcon")),
    ("bloom", "no norm of embeddings", setting(embed_norm=False)),
    ("bloom_untied", "norm of embeddings", without("embed_norm.beta")),
    ("bloom", "q and k", swapped("layer.0.q", "layer.0.k")),
    ("mpt", "no slopes", setting(alibi=None)),
    ("mpt", "slopes of other heads", moved_heads),
    ("mpt_power_of_two", "k and v", swapped("layer.1.k", "layer.1.v")),
    ("falcon", "theta", rope(theta=1e4)),
    ("falcon", "sequential", residual("sequential")),
    ("falcon", "k and v", swapped("layer.0.k", "layer.0.v")),
    ("falcon_new", "one norm", residual("parallel")),
    ("falcon_new", "heads' order", rolled("layer.0.q")),
    ("falcon_alibi", "slopes not scaled", setting(alibi="bloom")),
    ("falcon_alibi", "parallel", residual("parallel_two_norms")),
    ("gemma", "norms by w", setting(one_plus=False)),
    ("gemma", "embeddings not scaled", setting(embed_scale=1.0)),
    ("gemma", "SwiGLU", setting(activation="silu")),
    ("gemma", "branches not scaled", setting(branch_scale=2.0**6)),
    ("gemma_gqa_untied", "gate and up", swapped("layer.0.gate", "layer.0.up")),
    ("gemma_gqa_untied", "theta", rope(theta=1e4)),
    ("gemma2", "scores not capped", setting(score_cap=0.0)),
    ("gemma2", "cap of the scores", setting(score_cap=1.6)),
    ("gemma2", "logits not capped", setting(logit_cap=0.0)),
    ("gemma2", "cap of the logits", setting(logit_cap=5.2)),
    ("gemma2", "window by one", one_more),
    ("gemma2", "window in other layers", other_layers),
    ("gemma2", "1/sqrt(head_dim)", setting(score_factor=None)),
    ("gemma2", "norms", swapped("layer.0.attn_post_norm.gamma", "layer.0.mlp_norm.gamma")),
    ("gemma2_gqa", "no norms before branches", norms_behind),
    ("gemma2_gqa", "no norms behind branches", setting(branch_norms="none")),
    ("gemma2_gqa", "window by one", one_more),
    ("gemma3", "norms of heads", setting(head_norms="none")),
    ("gemma3", "norms by w", setting(one_plus=False)),
    ("gemma3", "rotary bases", swapped_ropes),
    ("gemma3", "one rotary base", setting(local_layers=frozenset())),
    ("gemma3", "factor of the rotary base", rope(factor=3.0)),
    ("gemma3", "window by one", one_more),
    ("gemma3_gqa", "rotary bases", swapped_ropes),
    ("gemma3_gqa", "window in other layers", other_layers),
    ("cohere", "pairing of q and k", lambda c, w: half_pairs("q")(half_pairs("k")(c, w), w)),
    ("cohere", "one norm after the other", residual("sequential")),
    ("cohere", "kind of norm", setting(norm="rmsnorm")),
    ("cohere", "factor of logits", setting(logit_scale=1.0)),
    ("cohere", "theta", rope(theta=5e5)),
    ("cohere_gqa_bias", "pairing of k", half_pairs("k")),
    ("cohere_gqa_bias", "bias of q", without("layer.0.q.bias")),
    ("cohere_gqa_bias", "bias of o", without("layer.0.o.bias")),
]


@pytest.mark.parametrize(
    ("name", "change"), [pytest.param(n, c, id=f"{n}-{what}") for n, what, c in MISTAKES]
)
def test_a_mistake_is_seen(name: str, change: Mistake, folder_of: Callable[[str], Path]) -> None:
    checkpoint = Checkpoint.open(folder_of(name))
    weights = load_weights(checkpoint)
    config = change(checkpoint.config, weights)
    assert error(name, Oracle(config, weights).logits(tokens_of(name))) > BOUND["x3"]
