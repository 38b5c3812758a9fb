"""Two INT8 products from one multiplier: all 2^24 triples, and an accumulator's sums."""

import numpy as np
import pytest

from lora_host.emu import dsp_packing

INT8 = np.arange(-128, 128, dtype=np.int64)


def every_triple():
    """(a0 [256,1], a1 [1,256], w) for each of the 256 weights: together all triples."""
    for w in INT8:
        yield INT8[:, None], INT8[None, :], w


def test_every_triple_gives_both_products():
    triples = 0
    for a0, a1, w in every_triple():
        low, high = dsp_packing.packed_product(a0, a1, w)
        assert (low == a0 * w).all() and (high == a1 * w).all()
        triples += low.size
    assert triples == 256**3


def test_operands_fit_the_multiplier():
    packed = dsp_packing.pack(INT8[:, None], INT8[None, :])
    limit = 1 << dsp_packing.PREADDER_BITS - 1
    assert packed.min() >= -limit and packed.max() < limit


def test_the_subtraction_is_needed():
    """Without it a negative low product takes one from the high one."""
    p = dsp_packing.pack(-1, 5) * np.int64(3)
    assert p >> dsp_packing.LOW_BITS != 15
    assert dsp_packing.unpack(p)[1] == 15


def test_the_printed_assignment_multiplies_the_activations():
    """w in A, a0 in B's high bits, a1 in C: the high field is a0*a1, no product of w with a0."""
    a0, a1, w = 7, -5, 3
    low, high = dsp_packing.unpack(np.int64((w + (a0 << dsp_packing.LOW_BITS)) * a1))
    assert (low, high) == (w * a1, a0 * a1)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 100])
def test_dots_of_extreme_and_random_values(count):
    generator = np.random.default_rng(count)
    for a0, a1, w in [
        (np.full(count, 127), np.full(count, -127), np.full(count, 127)),
        (np.full(count, -127), np.full(count, -127), np.full(count, 127)),
        *generator.integers(-127, 128, (20, 3, count)),
    ]:
        assert dsp_packing.packed_dot(a0, a1, w) == (a0 @ w, a1 @ w)


def test_one_product_more_would_overflow_the_low_field():
    count = dsp_packing.PRODUCTS_PER_PASS + 1
    p = np.sum(dsp_packing.pack(np.full(count, 127), np.zeros(count)) * np.int64(127))
    assert dsp_packing.unpack(p)[0] != count * 127 * 127
