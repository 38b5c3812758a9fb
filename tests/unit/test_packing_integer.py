"""The C packing of INT8 and 4-bit weights equals the NumPy packing bit for bit, from every layout
that checkpoints store them in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.placing import PackPart, pack_parts
from lora_sdk.model.packed_weights import pack_nibbles
from lora_sdk.model.packed_words import AWQ_ORDER
from lora_sdk.model.weight_formats import GROUPS, INT8, W4A8, W4A16
from tests.oracle.blocks import pack_int4, pack_int8

LAYOUTS = ("nibbles", "words oi", "words io", "awq")
U8 = NDArray[np.uint8]


def int8_part(name: str, outputs: int, k: int, first: int, count: int, seed: int) -> PackPart:
    data = np.random.default_rng(seed).integers(-128, 128, (outputs, k), np.int8)
    return PackPart(name, data, "I8", "oi", first, count)


@st.composite
def cuts(draw: st.DrawFn, step: int = 1) -> tuple[int, int, int]:
    """Outputs of a tensor, the first and the number of those that are a part."""
    outputs = step * draw(st.integers(1, 90 // step))
    first = draw(st.integers(0, outputs - 1))
    return outputs, first, draw(st.integers(1, outputs - first))


@settings(deadline=None)
@given(
    k=st.sampled_from([1, 3, 4, 31, 64, 127, 128, 129, 200, 256, 385]),
    shapes=st.lists(cuts(), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
)
def test_int8_equals_numpy(k: int, shapes: list[tuple[int, int, int]], seed: int) -> None:
    parts = [int8_part("w", n, k, first, count, seed + n) for n, first, count in shapes]
    whole = np.concatenate([part.data[part.first : part.first + part.count] for part in parts])
    found = pack_parts(parts, k, INT8.weight_type(None))
    assert np.array_equal(found, pack_int8(np.ascontiguousarray(whole)))


def in_awq_words(values: U8) -> NDArray[np.int32]:
    """[N, K] -> int32 [K, N/8], eight outputs a word in AWQ's order."""
    by_input = values.T.reshape(values.shape[1], -1, 8)[..., AWQ_ORDER]
    return pack_nibbles(np.ascontiguousarray(by_input.reshape(values.shape[1], -1)))


def stored(values: U8, layout: str) -> tuple[NDArray[np.generic], str, str]:
    """Values [N, K] as a file holds them: data, kind, axes."""
    if layout == "nibbles":
        return values, "nibbles", "oi"
    if layout == "awq":
        return in_awq_words(values), "awq", "io"
    words = pack_nibbles(values)
    if layout == "words oi":
        return words, "words", "oi"
    return np.ascontiguousarray(words.T), "words", "io"


def int4_part(
    layout: str, k: int, group: int, cut: tuple[int, int, int], seed: int, order: bool
) -> tuple[PackPart, tuple[U8, NDArray[np.float16], U8]]:
    """A part, and what it holds: values in the order of groups, scales, zero points."""
    rng = np.random.default_rng(seed)
    outputs, first, count = cut
    values = rng.integers(0, 16, (outputs, k), np.uint8)
    scales = rng.integers(0, 1 << 16, (count, k // group), np.uint16).view(np.float16)
    zeros = rng.integers(0, 16, (count, k // group), np.uint8)
    data, kind, axes = stored(values, layout)
    chosen = rng.permutation(k).astype(np.uint32) if order else None
    part = PackPart("w", data, kind, axes, first, count, scales, zeros, chosen)
    held = values[first : first + count]
    return part, (held if chosen is None else held[:, chosen], scales, zeros)


@settings(deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    group=st.sampled_from(GROUPS),
    groups=st.integers(1, 9),
    shapes=st.lists(cuts(step=8), min_size=1, max_size=3),
    order=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_int4_equals_numpy(
    layout: str,
    group: int,
    groups: int,
    shapes: list[tuple[int, int, int]],
    order: bool,
    seed: int,
) -> None:
    k, order = group * groups, order and layout != "nibbles"
    made = [int4_part(layout, k, group, cut, seed + i, order) for i, cut in enumerate(shapes)]
    values, scales, zeros = (
        np.concatenate(held) for held in zip(*(h for _, h in made), strict=True)
    )
    for row in (W4A8, W4A16):
        found = pack_parts([part for part, _ in made], k, row.weight_type(group))
        expected = pack_int4(
            np.ascontiguousarray(values), scales, zeros, group, row.block_bytes(group)
        )
        assert np.array_equal(found, expected)


def good(layout: str = "words oi") -> PackPart:
    return int4_part(layout, 64, 32, (40, 0, 40), 1, order=layout == "words io")[0]


def test_parts_that_do_not_fit_are_refused() -> None:
    part, ordered = good(), good("words io")
    scales, zeros = part.scales, part.zeros
    assert scales is not None and zeros is not None
    eight = int8_part("w", 40, 64, 0, 40, 1)
    four, kind = W4A8.weight_type(32), INT8.weight_type(None)
    beyond = np.arange(64, dtype=np.uint32) + 1
    for wrong, k, weights in (
        (replace(part, scales=scales[:-1]), 64, four),
        (replace(part, zeros=np.zeros((40, 3), np.uint8)), 64, four),
        (replace(part, scales=None), 64, four),
        (part, 64, W4A8.weight_type(64)),
        (part, 128, four),
        (replace(part, first=1), 64, four),
        (replace(ordered, order=beyond), 64, four),
        (replace(ordered, order=beyond[:32]), 64, four),
        (replace(good("nibbles"), order=beyond - 1), 64, four),
        (replace(good("awq"), axes="oi"), 64, four),
        (eight, 64, four),
        (part, 64, kind),
        (replace(eight, axes="io"), 40, kind),
        (replace(eight, order=beyond - 1), 64, kind),
        (replace(eight, kind="F16"), 64, kind),
        (eight, 64, abi.WEIGHT_FP16),
    ):
        with pytest.raises(RequestError, match=r"^w: "):
            pack_parts([wrong], k, weights)
    assert len(pack_parts([part], 64, four)) == len(pack_parts([eight], 64, kind)) == 2


def test_unknown_weight_types_are_named() -> None:
    for weight_type in (7, 2, abi.WEIGHT_W4A8, abi.WEIGHT_W4A8 | 4 << 4, 0x103, 0x13):
        with pytest.raises(RequestError, match=f"weight type {weight_type:#x} is unknown"):
            pack_parts([good()], 64, weight_type)


def test_a_value_beyond_four_bits_is_named() -> None:
    part = good("nibbles")
    part.data[7, 11] = 16  # type: ignore[index]
    with pytest.raises(RequestError, match="w: output 7 has a value beyond 15 among inputs"):
        pack_parts([part], 64, W4A8.weight_type(32))
