"""The table of cosines and sines against the system's float64 functions, and its edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_host.numerics import sincos_64
from lora_host.rotary import rotary_rows
from lora_sdk.model.config import load_config
from lora_sdk.model.rope import at_context, rope_table
from lora_sdk.model.rope_scaling import inverse_frequencies
from lora_sdk.model.spec import RopeConfig
from tests.oracle.forward import angles
from tests.variants import variant, write_checkpoint

LLAMA31 = RopeConfig("llama3", 500000.0, 8.0, 1.0, 4.0, 8192)
YARN = RopeConfig(
    "yarn", 1e6, 4.0, original_positions=32768, beta_fast=32.0, beta_slow=1.0,
    attention_factor=1.138629436111989,
)  # fmt: skip
LONGROPE = RopeConfig(
    "longrope", 1e4, original_positions=512, attention_factor=1.19, context=3000,
    short_factors=tuple(1 + i / 100 for i in range(64)),
    long_factors=tuple(1 + i / 3 for i in range(64)),
)  # fmt: skip
DYNAMIC = RopeConfig("dynamic", 1e4, 2.0, original_positions=2048, context=3000)


@pytest.mark.parametrize(
    "rope",
    [
        RopeConfig("default", 10000.0),
        RopeConfig("linear", 10000.0, 4.0),
        LLAMA31,
        RopeConfig("default", 1.0),
        RopeConfig("default", 1e6),
        YARN,
        replace(YARN, truncate=False, original_positions=100, factor=40.0),
        replace(YARN, original_positions=3),
        LONGROPE,
        replace(LONGROPE, context=512),
        DYNAMIC,
        replace(DYNAMIC, context=2000),
    ],
    ids=lambda rope: f"{rope.kind}-{rope.theta:g}",
)
def test_table_equals_the_systems_functions(rope: RopeConfig, tmp_path: Path) -> None:
    config = replace(load_config(write_checkpoint(variant("llama"), tmp_path)), rope=rope)
    config = replace(config, head_dim=128)
    table = rope_table(config, 3000)
    assert table.shape == (3000, 2, 64) and table.dtype == np.float32
    cos, sin = angles(rope, 3000, 128)
    assert np.array_equal(table[:, 0], cos) and np.array_equal(table[:, 1], sin)


def test_llama3_bends_long_waves_only() -> None:
    bent = inverse_frequencies(LLAMA31, 128)
    plain = inverse_frequencies(RopeConfig("default", 500000.0), 128)
    assert np.array_equal(bent[:20], plain[:20])
    assert np.array_equal(bent[-20:], (plain[-20:] / np.float32(8)))
    between = (bent != plain) & (bent != plain / np.float32(8))
    assert 3 < between.sum() < 20 and np.all(np.diff(bent) < 0)


def test_yarn_divides_slow_pairs_alone() -> None:
    bent, plain = (
        inverse_frequencies(YARN, 128),
        inverse_frequencies(RopeConfig("default", 1e6), 128),
    )
    kept, divided = bent == plain, bent == plain / np.float32(4)
    assert kept[:20].all() and divided[-20:].all() and 5 < (~kept & ~divided).sum() < 25


def test_the_context_chooses_longropes_divisors_and_dynamics_base() -> None:
    short, long = (replace(LONGROPE, context=context) for context in (512, 513))
    plain = inverse_frequencies(RopeConfig("default", 1e4), 128)
    assert np.allclose(inverse_frequencies(short, 128) * short.short_factors, plain)
    assert np.allclose(inverse_frequencies(long, 128) * long.long_factors, plain)
    within = inverse_frequencies(replace(DYNAMIC, context=1), 128)
    assert np.array_equal(within, plain)
    assert np.all(inverse_frequencies(DYNAMIC, 128)[1:] < plain[1:])


def test_an_engines_context_replaces_the_models_where_it_is_read(tmp_path: Path) -> None:
    config = load_config(write_checkpoint(variant("llama"), tmp_path))
    assert at_context(config, 7) is config
    config = replace(config, rope=LONGROPE)
    assert at_context(config, None) is config
    assert at_context(config, 7).rope == replace(LONGROPE, context=7)


def test_far_positions_stay_in_range(tmp_path: Path) -> None:
    config = load_config(write_checkpoint(variant("llama"), tmp_path))
    table = rope_table(config, 2**20)[-1]
    angle = np.float64(2**20 - 1)  # the first frequency is 1
    assert table[0, 0] == np.float32(np.cos(angle)) and table[1, 0] == np.float32(np.sin(angle))


def test_models_without_rope_have_no_table(tmp_path: Path) -> None:
    config = load_config(write_checkpoint(variant("opt"), tmp_path))
    with pytest.raises(ModelError, match="no rotary positions"):
        rope_table(config, 10)


@pytest.mark.parametrize(("rotated", "half"), [(64, 64), (13, 32), (130, 200), (0, 4)])
def test_rows_of_the_library_are_those_of_the_page(rotated: int, half: int) -> None:
    inverse = np.random.default_rng(rotated).random(rotated, np.float32)
    found = rotary_rows(inverse, half, 5000, 1.1386)
    angle = (np.arange(5000, dtype=np.float32)[:, None] * inverse).astype(np.float64)
    sine, cosine = sincos_64(angle)
    wanted = np.stack([np.ones((5000, half)), np.zeros((5000, half))], 1)
    wanted[:, 0, :rotated], wanted[:, 1, :rotated] = cosine * 1.1386, sine * 1.1386
    assert found.tobytes() == wanted.astype(np.float32).tobytes()


def test_angles_out_of_range_are_an_error(tmp_path: Path) -> None:
    config = load_config(write_checkpoint(variant("llama"), tmp_path))
    rope = RopeConfig("longrope", 1e4, short_factors=(1e-6,) * 64, original_positions=2**20)
    with pytest.raises(ValueError, match="2\\^20"):
        rope_table(replace(config, head_dim=128, rope=rope), 2**20)
