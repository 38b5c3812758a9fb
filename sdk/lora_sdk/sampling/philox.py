"""Philox4x64-10 (Salmon et al., 2011): the counter-based random numbers of sampling
(docs/numbers.md, 8.1)."""

from __future__ import annotations

_MULTIPLIER_0 = 0xD2E7470EE14C6C93
_MULTIPLIER_1 = 0xCA5A826395121157
_WEYL_0 = 0x9E3779B97F4A7C15
_WEYL_1 = 0xBB67AE8584CAA73B
_ROUNDS = 10
_MASK = (1 << 64) - 1


def block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Four 64-bit words of the counter's block.

    `counter` and `key` are words of 0..2**64-1. NumPy's generator adds one to its counter before
    the first block. This function does not.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0 = _MULTIPLIER_0 * c0
        product_1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> 64) ^ c1 ^ k0,
            product_1 & _MASK,
            (product_0 >> 64) ^ c3 ^ k1,
            product_0 & _MASK,
        )
        k0 = (k0 + _WEYL_0) & _MASK
        k1 = (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, sample: int, position: int) -> float:
    """The float64 in [0, 1) with which sample `sample` draws the token at `position`."""
    word = block((position, 0, 0, 0), (seed, sample))[0]
    return (word >> 11) * 2.0**-53


def uniforms(seed: int, sample: int, position: int, stream: int, count: int) -> list[float]:
    """`count` more random numbers for the same position. Each use has its own `stream`, from 1."""
    words: list[int] = []
    while len(words) < count:
        words += block((position, stream, len(words) // 4, 0), (seed, sample))
    return [(word >> 11) * 2.0**-53 for word in words[:count]]
