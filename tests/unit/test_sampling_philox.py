from __future__ import annotations

import numpy as np
import pytest

from lora_sdk.sampling import philox


def numpy_uniforms(seed: int, sample: int, position: int, stream: int, count: int) -> list[float]:
    """NumPy adds one to its counter before it makes a block."""
    found: list[float] = []
    for index in range(-(-count // 4)):
        whole = (position | stream << 64 | index << 128) - 1
        generator = np.random.Philox(counter=whole % 2**256, key=[seed, sample])
        found += [int(word >> 11) * 2.0**-53 for word in generator.random_raw(4)]
    return found[:count]


@pytest.mark.parametrize("count", [1, 3, 4, 9])
@pytest.mark.parametrize("position, stream", [(0, 0), (1, 0), (12345, 3), (2**64 - 1, 2**64 - 1)])
@pytest.mark.parametrize("seed, sample", [(0, 0), (42, 3), (2**64 - 1, 2**64 - 1)])
def test_numbers_equal_numpys_generator(
    seed: int, sample: int, position: int, stream: int, count: int
) -> None:
    arguments = (seed, sample, position, stream, count)
    assert philox.uniforms(*arguments) == numpy_uniforms(*arguments)


def test_numbers_equal_the_authors_known_answer() -> None:
    # Random123, kat_vectors: philox4x64 10, zero counter and key.
    words = (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)
    assert philox.uniforms(0, 0, 0, 0, 4) == [(word >> 11) / 2**53 for word in words]


def test_uniform_is_the_first_of_stream_0() -> None:
    for position in range(20):
        assert philox.uniform(5, 2, position) == philox.uniforms(5, 2, position, 0, 4)[0]
    assert philox.uniform(5, 2, 17) != philox.uniform(5, 2, 18) != philox.uniform(5, 3, 17)


def test_uniform_covers_the_unit_interval() -> None:
    draws = [philox.uniform(1, 0, position) for position in range(4000)]
    counts = np.histogram(draws, bins=10, range=(0, 1))[0]
    assert counts.sum() == 4000 and counts.min() > 330 and counts.max() < 470
