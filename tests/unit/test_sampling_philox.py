from __future__ import annotations

import numpy as np
import pytest

from lora_sdk.sampling import philox


def numpy_words(counter: tuple[int, int, int, int], key: tuple[int, int], count: int) -> list[int]:
    """NumPy adds one to its counter before it makes a block."""
    whole = sum(word << (64 * i) for i, word in enumerate(counter)) - 1
    generator = np.random.Philox(counter=whole % 2**256, key=list(key))
    return [int(w) for w in generator.random_raw(count)]


@pytest.mark.parametrize(
    "counter", [(1, 0, 0, 0), (12345, 0, 0, 0), (0, 0, 0, 0), (7, 8, 9, 2**64 - 1)]
)
@pytest.mark.parametrize("key", [(0, 0), (42, 3), (2**64 - 1, 2**64 - 1)])
def test_block_equals_numpys_generator(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> None:
    assert list(philox.block(counter, key)) == numpy_words(counter, key, 4)


def test_block_equals_the_authors_known_answer() -> None:
    # Random123, kat_vectors: philox4x64 10, zero counter and key.
    assert philox.block((0, 0, 0, 0), (0, 0)) == (
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    )


def test_uniform_takes_53_bits_of_the_first_word() -> None:
    for position in range(20):
        word = philox.block((position, 0, 0, 0), (5, 2))[0]
        assert philox.uniform(5, 2, position) == (word >> 11) / 2**53
    assert philox.uniform(5, 2, 17) != philox.uniform(5, 2, 18) != philox.uniform(5, 3, 17)


def test_uniform_covers_the_unit_interval() -> None:
    draws = [philox.uniform(1, 0, position) for position in range(4000)]
    counts = np.histogram(draws, bins=10, range=(0, 1))[0]
    assert counts.sum() == 4000 and counts.min() > 330 and counts.max() < 470
