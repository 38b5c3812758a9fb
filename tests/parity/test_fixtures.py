"""The arithmetic rules and the loader against transformers' committed results, and proof that the
comparison sees what it must see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.spec import ModelConfig, RopeConfig
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.oracle import Oracle, arithmetic, forward, load_weights, recurrent
from tests.parity.score import BOUND, PROMPTS, SCALES, Score, load_fixture, prompts, score
from tests.parity.selection import every_variant, slow_unless_quick
from tests.position_configs import WINDOW_CONFIGS
from tests.variants import VARIANTS, Scale, Variant, variant, write_checkpoint

Weights = dict[str, NDArray[np.float16]]
Change = Callable[[ModelConfig, Weights], ModelConfig]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Scale], Path]:
    @cache
    def written(name: str, scale: Scale) -> Path:
        return write_checkpoint(variant(name), tmp_path_factory.mktemp(name), scale)

    return written


def judge(
    folder: Path, name: str, scale: Scale, change: Change | None = None, first: int = 0
) -> Score:
    """The oracle's score from prompt `first` on, on a model that `change` has altered."""
    checkpoint = Checkpoint.open(folder)
    config, weights = checkpoint.config, load_weights(checkpoint)
    if change is not None:
        config = change(config, weights)
    oracle = Oracle(config, weights)
    ours = [oracle.logits(tokens) for tokens in prompts(variant(name))[first:]]
    return score(ours, load_fixture(name), scale, first)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("which", every_variant())
def test_the_rules_agree_with_transformers(
    which: Variant, scale: Scale, folder_of: Callable[[str, Scale], Path]
) -> None:
    found = judge(folder_of(which.name, scale), which.name, scale)
    assert found.positions >= 512
    assert found.passes(scale), found


@pytest.mark.slow
@pytest.mark.parametrize("name", HYBRID_CONFIGS)
def test_without_rounding_nothing_is_left(
    name: str, folder_of: Callable[[str, Scale], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where values are not stored as FP16, recurrences are transformers' but for orders of sums."""
    for module in (arithmetic, forward, recurrent):
        monkeypatch.setattr(module, "store", np.float32)
    for scale in SCALES:
        assert judge(folder_of(name, scale), name, scale).worst < 1e-4


@pytest.mark.parametrize("which", VARIANTS, ids=lambda which: which.name)
def test_fixtures_belong_to_the_variants(which: Variant) -> None:
    fixture = load_fixture(which.name)
    for index, tokens in enumerate(prompts(which)):
        assert np.array_equal(fixture[f"tokens{index}"], tokens) and len(tokens) == PROMPTS[index]
        assert tokens.max() < which.config["vocab_size"]


def rope(**fields: object) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert isinstance(config.rope, RopeConfig)
        return replace(config, rope=replace(config.rope, **fields))  # type: ignore[arg-type]

    return change


def setting(**fields: object) -> Change:
    return lambda config, weights: replace(config, **fields)  # type: ignore[arg-type]


def without(name: str) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        del weights[name]
        return config

    return change


def swapped(name: str, axis: int) -> Change:
    """Two neighbouring heads of a matrix change places: columns of q, k, v or rows of o."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        order = np.arange(weights[name].shape[axis]).reshape(-1, config.head_dim)
        order[[0, 1]] = order[[1, 0]]
        weights[name] = weights[name].take(order.reshape(-1), axis)
        return config

    return change


def wider(by: int) -> Change:
    """Windows of as many positions more."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        return replace(config, windows=tuple(window and window + by for window in config.windows))

    return change


def experts(**fields: object) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.experts is not None
        return replace(config, experts=replace(config.experts, **fields))  # type: ignore[arg-type]

    return change


def expert(layer: int, part: str, number: int, taken: int | None) -> Change:
    """A matrix of an expert is another's, or skipped."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        name = f"layer.{layer}.expert.{{}}.{part}".format
        other = weights[name(number)] * np.float16(0) if taken is None else weights[name(taken)]
        weights[name(number)] = other
        return config

    return change


def rolled(name: str) -> Change:
    """Each value is its neighbour's."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        weights[name] = np.roll(weights[name], 1)
        return config

    return change


def halves(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Gate and up are the halves of what has them in turns."""
    assert config.experts is not None
    for number in range(config.experts.count):
        gate, up = (f"layer.1.expert.{number}.{part}" for part in ("gate", "up"))
        both = np.stack([weights[gate], weights[up]], axis=2).reshape(config.hidden, -1)
        weights[gate], weights[up] = np.split(both, 2, axis=1)
    return config


def router_negated(config: ModelConfig, weights: Weights) -> ModelConfig:
    """The lowest logits are chosen."""
    weights["layer.1.router"] = -weights["layer.1.router"]
    return config


def sigmoid(**fields: object) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.experts is not None and config.experts.sigmoid is not None
        changed = replace(config.experts.sigmoid, **fields)  # type: ignore[arg-type]
        return replace(config, experts=replace(config.experts, sigmoid=changed))

    return change


def choice_bias_negated(config: ModelConfig, weights: Weights) -> ModelConfig:
    """Another choice is made."""
    weights["layer.1.choice_bias"] = -weights["layer.1.choice_bias"]
    return config


def scan(**fields: object) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.recurrent is not None
        return replace(config, recurrent=replace(config.recurrent, **fields))  # type: ignore[arg-type]

    return change


def scaled(name: str, factor: float) -> Change:
    """A tensor of a layer times a factor."""

    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        weights[name] = weights[name] * np.float16(factor)
        return config

    return change


def exchanged(one: str, other: str) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        weights[one], weights[other] = weights[other], weights[one]
        return config

    return change


def latent(**fields: object) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        assert config.latent is not None
        return replace(config, latent=replace(config.latent, **fields))  # type: ignore[arg-type]

    return change


def gamma_left_out(part: str) -> Change:
    def change(config: ModelConfig, weights: Weights) -> ModelConfig:
        name = f"layer.1.{part}_norm.gamma"
        weights[name] = np.ones_like(weights[name])
        return config

    return change


def rotated_first(config: ModelConfig, weights: Weights) -> ModelConfig:
    """The files' heads of q are read as if the columns that are rotated were first."""
    assert config.latent is not None
    size, half, pairs = config.head_dim, config.head_dim // 2, config.latent.rope // 2
    rotated = [*range(pairs), *range(half, half + pairs)]  # on boards
    others = [*range(pairs, half), *range(half + pairs, size)]
    order = np.empty(size, int)
    order[[*rotated, *others]] = [*others, *rotated]
    for layer in range(config.layers):
        q = weights[f"layer.{layer}.q"].reshape(-1, config.heads, size)
        weights[f"layer.{layer}.q"] = q[:, :, order].reshape(len(q), -1)
    return config


FALCONS, NEMOTRONS = ("falcon_h1", "falcon_h1_plain"), ("nemotron_h", "nemotron_h_pattern")
GRANITES = ("granitemoehybrid", "granitemoehybrid_dense")
ROPE = (
    "llama",
    "llama_gqa_tied",
    "llama_gqa_bias",
    "llama_linear",
    "llama_llama3",
    "llama_narrow",
    "mistral",
)
MIXTURES = ("mixtral", "qwen3_moe", "olmoe", "granitemoe", "qwen2_moe", "granitemoeshared")
HYBRID_MIXTURES = ("qwen3_5_moe", "qwen3_5_moe_stacked", "lfm2_moe", "lfm2_moe_plain")
LATENT = ("deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_single",
          "glm4_moe_lite", "glm4_moe_lite_mixed")  # fmt: skip
SCALED = ("deepseek_v2", "deepseek_v3")
OSS = ("gpt_oss", "gpt_oss_single")
SHARED = ("qwen2_moe", "qwen2_moe_mixed", "granitemoeshared", "glm4_moe", "glm4_moe_single")
SIGMOID = ("glm4_moe", "glm4_moe_single")
RENORMALIZED = (("mixtral", False), ("qwen3_moe", False), ("olmoe", True), ("olmoe_gqa", False),
                ("qwen2_moe", True))  # fmt: skip
MISTAKES: list[tuple[str, str, Change]] = [
    *((name, "theta", rope(theta=3000.0)) for name in ROPE),
    ("llama_linear", "factor", rope(factor=4.2)),
    ("llama_llama3", "original", rope(original_positions=70)),
    ("llama_llama3", "low", rope(low_freq_factor=1.5)),
    *((name, "q", swapped("layer.0.q", 1)) for name in ROPE),
    *((name, "o", swapped("layer.1.o", 0)) for name in ROPE),
    ("llama_gqa_tied", "k", swapped("layer.1.k", 1)),
    ("gpt2", "q", swapped("layer.0.q", 1)),
    ("gpt2_unscaled", "v", swapped("layer.1.v", 1)),
    ("opt", "k", swapped("layer.0.k", 1)),
    ("opt_post_norm", "v", swapped("layer.0.v", 1)),
    *(
        ("llama_gqa_bias", f"{part} bias", without(f"layer.1.{part}.bias"))
        for part in ("q", "k", "v", "o", "gate", "up", "down")
    ),
    # A bias of k moves all scores of a row alike where nothing rotates: no output depends on it.
    *(
        (name, f"{part} bias", without(f"layer.1.{part}.bias"))
        for name in ("gpt2", "opt", "opt_post_norm")
        for part in ("q", "v", "o", "up", "down")
    ),
    *((name, "norm beta", without("layer.0.mlp_norm.beta")) for name in ("gpt2", "opt")),
    ("gpt2_layer_scale", "layer factor", setting(scale_by_layer=False)),
    ("gpt2_layer_scale", "gelu kind", setting(activation="relu")),
    ("gpt2_unscaled", "scale", setting(scale_scores=True)),
    ("opt", "offset", setting(position_offset=1)),
    ("opt_no_final_norm", "final norm", setting(final_norm=True)),
    ("opt_post_norm", "norm order", setting(norm_first=True)),
    ("llama", "eps", setting(norm_eps=1e-2)),
    ("qwen2_yarn", "factor", rope(factor=5.0)),
    ("qwen2_yarn", "original", rope(original_positions=384)),
    ("qwen2_yarn", "beta", rope(beta_slow=2.0)),
    ("qwen2_yarn", "no ramp", rope(kind="linear")),
    ("qwen2_yarn", "no attention factor", rope(attention_factor=1.0)),
    ("gpt_neox_yarn", "whole ends of the ramp", rope(truncate=True)),
    ("gpt_neox_yarn", "mscale alone", rope(attention_factor=1.2414156868651155)),
    ("phi3_longrope", "short", rope(context=64)),
    (
        "phi3_longrope",
        "attention factor of the scores",
        rope(attention_factor=1.1961718452854198**2),
    ),
    ("llama_longrope_short", "long", rope(context=385)),
    ("llama_longrope_short", "no attention factor", rope(attention_factor=1.0)),
    ("llama_dynamic", "of the prompt", rope(context=118)),
    ("llama_dynamic", "not scaled", rope(kind="default")),
    ("phi_dynamic", "not scaled", rope(kind="default")),
    *((name, f"window {by:+}", wider(by)) for name in WINDOW_CONFIGS for by in (-1, 1)),
    ("qwen2_window", "the other layer", setting(windows=(29, 0))),
    ("qwen3_window", "every layer", setting(windows=(27, 27))),
    ("smollm3_window", "no window", setting(windows=())),
    *((name, "renormalized otherwise", experts(renormalize=on)) for name, on in RENORMALIZED),
    *((name, "the lowest are chosen", router_negated) for name in MIXTURES),
    *((name, "one more chosen", experts(chosen=4)) for name in ("mixtral_tied", "qwen3_moe_mixed")),
    *((name, "another's matrix", expert(1, "gate", 1, 0)) for name in MIXTURES),
    *((name, "an expert skipped", expert(1, "down", 0, None)) for name in MIXTURES),
    *((name, "shared expert left out", experts(shared=0)) for name in SHARED),
    *((name, "its gate left out", experts(shared_gate=False)) for name in SHARED[:2]),
    *((name, "factor left out", sigmoid(factor=1.0)) for name in SIGMOID),
    *((name, "bias of the choice", choice_bias_negated) for name in SIGMOID),
    ("glm4_moe", "group limit left out", sigmoid(groups=1, taken=1)),
    ("glm4_moe", "another group", sigmoid(taken=1)),
    ("glm4_moe", "not renormalized", experts(renormalize=False)),
    ("glm4_moe_single", "renormalized", experts(renormalize=True)),
    ("glm4_moe", "norms of q and k", setting(head_norms="none")),
    ("glm4_moe", "q bias", without("layer.1.q.bias")),
    *((name, "the lowest are chosen", router_negated) for name in HYBRID_MIXTURES),
    *((name, "another's matrix", expert(1, "gate", 1, 0)) for name in HYBRID_MIXTURES),
    ("qwen3_5_moe", "not renormalized", experts(renormalize=False)),
    ("qwen3_5_moe_stacked", "its gate left out", experts(shared_gate=False)),
    ("lfm2_moe", "not renormalized", experts(renormalize=False)),
    ("lfm2_moe_plain", "factor left out", sigmoid(factor=1.0)),
    *((name, "bias of the choice", choice_bias_negated) for name in ("lfm2_moe", "lfm2_moe_plain")),
    *((name, "no norm", scan(normed=False)) for name in GRANITES),
    *((name, "D left out", scaled("layer.1.mix.d", 0.0)) for name in GRANITES),
    *((name, "decay's sign", scaled("layer.1.mix.a_log", -1.0)) for name in GRANITES),
    *((name, "dt's bias", scaled("layer.1.mix.dt_bias", 0.0)) for name in GRANITES),
    *((name, "B for C", exchanged("layer.1.mix.q", "layer.1.mix.k")) for name in GRANITES),
    ("granitemoehybrid", "bias of the convolution", without("layer.1.mix.taps.v.bias")),
    *((name, "another scan's factors", scan(factors=(1, 1, 1, 1, 1.5))) for name in FALCONS),
    *((name, "scan alone", setting(mixer_scales=(1e-3, 1, 1))) for name in FALCONS),
    *((name, "factor of the gate", setting(gate_scale=2.0)) for name in FALCONS),
    *((name, "factor of scores", setting(score_factor=0.05)) for name in FALCONS),
    *((name, "ReLU not squared", setting(activation="relu")) for name in NEMOTRONS),
    *((name, "D left out", scaled("layer.2.mix.d", 0.0)) for name in NEMOTRONS),
    ("falcon_h1", "no norm", scan(normed=False)),
    ("nemotron_h_pattern", "no limit", scan(limits=(0.0, float("inf")))),
    ("granitemoehybrid_dense", "no limits", scan(limits=(0.0, float("inf")))),
    ("granitemoehybrid_dense", "one group", scan(key_heads=1)),
    ("qwen2_moe_mixed", "windows in the other layers", setting(windows=(0, 48, 0, 48))),
    *((name, "mscale left out", setting(score_factor=None)) for name in SCALED),
    *((name, "nothing rotated", setting(rope=None)) for name in LATENT),
    *((name, "rotated columns first", rotated_first) for name in LATENT),
    *((name, "latents not normed", latent(eps=1.0)) for name in LATENT),
    *((name, "gamma of kv's latent", gamma_left_out("kv_a")) for name in LATENT),
    *((name, "gamma of q's latent", gamma_left_out("q_a")) for name in (*SCALED, LATENT[4])),
    *((name, "the lowest are chosen", router_negated) for name in LATENT[:5]),
    *((name, "shared expert left out", experts(shared=0)) for name in LATENT),
    ("deepseek_v2", "group limit left out", experts(groups=1, taken=1)),
    ("deepseek_v2", "factor left out", experts(factor=1.0)),
    ("deepseek_v2", "kv_a bias", without("layer.1.kv_a.bias")),
    ("deepseek_v2", "bias of the shared key", without("layer.1.k_rope.bias")),
    ("deepseek_v3", "q_a bias", without("layer.1.q_a.bias")),
    ("deepseek_v3", "o bias", without("layer.1.o.bias")),
    ("deepseek_v3", "bias of the choice", choice_bias_negated),
    *((name, "the lowest are chosen", router_negated) for name in OSS),
    *((name, "another's matrix", expert(1, "gate", 1, 0)) for name in OSS),
    *((name, "an expert skipped", expert(1, "down", 0, None)) for name in OSS),
    *((name, "sinks left out", without("layer.1.sinks")) for name in OSS),
    *((name, "another head's sink", rolled("layer.1.sinks")) for name in OSS),
    *((name, "plain SwiGLU", experts(limit=0.0)) for name in OSS),
    *((name, "alpha", experts(alpha=1.0)) for name in OSS),
    *((name, "router's bias", without("layer.1.router.bias")) for name in OSS),
    *(
        (name, f"{part} bias of an expert", without(f"layer.1.expert.1.{part}.bias"))
        for name in OSS
        for part in ("gate", "up", "down")
        if part == "down" or name != "gpt_oss"  # whose limit leaves little of the others
    ),
    *((name, "gate and up apart", halves) for name in OSS),
    ("gpt_oss", "limit", experts(limit=0.06)),
    ("gpt_oss", "o bias", without("layer.1.o.bias")),
    ("gpt_oss", "whole ends of the ramp", rope(truncate=True)),
    ("gpt_oss", "windows in the other layers", setting(windows=(0, 24, 0))),
    ("gpt_oss_single", "not renormalized", experts(renormalize=False)),
    ("gpt_oss_single", "windows in the other layers", setting(windows=(0, 40))),
]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param(name, change, id=f"{name}-{what}", marks=slow_unless_quick(name))
        for name, what, change in MISTAKES
    ],
)
def test_a_mistake_is_seen(
    name: str, change: Change, folder_of: Callable[[str, Scale], Path]
) -> None:
    found = judge(folder_of(name, "x3"), name, "x3", change, first=1)
    assert found.wrong or found.worst > BOUND["x3"], found
