"""Cosines and sines of rotary positions, made once per model and placed as bytes: no board
computes them, so float64 costs nothing and every board count reads the same values
(docs/numbers.md, 3.6)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.numerics import sincos_64
from lora_host.rotary import rotary_rows
from lora_sdk.model.rope_scaling import inverse_frequencies
from lora_sdk.model.spec import ModelConfig


def rope_table(config: ModelConfig, positions: int, local: bool = False) -> NDArray[np.float32]:
    """Table [positions, 2, head_dim/2]: cosines at index 0, sines at 1, of position * inv_freq,
    times the attention factor; 1 and 0 for pairs that are not rotated. `local`: that of
    `local_layers`.

    Raises ModelError where the model has no rotary positions.
    """
    rope = config.local_rope if local else config.rope
    if rope is None:
        raise ModelError(f"{config.architecture}: has no rotary positions, so no RoPE table")
    inverse = inverse_frequencies(rope, rope.width or config.head_dim)
    half = config.head_dim // 2
    last = np.float32(max(positions - 1, 0)) * inverse
    sincos_64(last)  # ValueError: angles grow with the position, and this one is out of range
    return rotary_rows(inverse, half, positions, rope.attention_factor)


def at_context(config: ModelConfig, context: int | None) -> ModelConfig:
    """`config` for an engine that opens with `context` positions; None: the model's positions.
    Longrope and dynamic NTK depend on them, and on nothing that runs later."""
    if context is None or config.rope is None or config.rope.context == 0:
        return config
    return replace(config, rope=replace(config.rope, context=context))


def head_order(head_dim: int, width: int, interleaved: bool) -> tuple[int, ...]:
    """The order of a head's columns in which boards rotate it: column c is the file's column
    order[c]. The file rotates its first `width` columns, in pairs 2j and 2j + 1 where
    `interleaved`, else j and j + width/2; here pairs are c and c + head_dim/2, the rotated ones
    first. The order does not change dot products of q and k."""
    pairs = [(2 * j, 2 * j + 1) if interleaved else (j, j + width // 2) for j in range(width // 2)]
    rest = (head_dim - width) // 2
    pairs += [(width + j, width + rest + j) for j in range(rest)]
    return tuple(left for left, _ in pairs) + tuple(right for _, right in pairs)
