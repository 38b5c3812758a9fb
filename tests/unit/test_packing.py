"""The C packing equals the NumPy packing bit for bit, on every type, axis order and edge."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lora_host import native
from lora_host.errors import ModelError, RequestError
from lora_host.placing import PackPart, Range, pack_parts
from lora_sdk.model.half import to_half
from tests.oracle.blocks import pack_blocks

KINDS = ("F16", "BF16", "F32")
TYPES = {"F16": np.uint16, "BF16": np.uint16, "F32": np.uint32}
VIEWS = {"F16": np.float16, "BF16": np.uint16, "F32": np.float32}
# Bits with all that rounding can meet: ties to even both ways, subnormals, the last that fits.
EDGES = {
    "F16": [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00],
    "BF16": [0, 0x8000, 1, 0x477F, 0xC77F, 0x3380, 0x3381, 0xB3C0, 0x3300, 0x3F80, 0x387F],
    "F32": [
        0, 0x80000000, 1, 0x477FEFFF, 0xC77FEFFF, 0x33000000, 0x33000001, 0x33800000, 0x33C00000,
        0x387FE000, 0x387FF000, 0x387FEFFF, 0x38800000, 0x3F801000, 0x3F803000, 0x3F800FFF,
        0x3F801001, 0x007FFFFF, 0x32FFFFFF,
    ],
}  # fmt: skip


@pytest.fixture(params=["plain", "f16c"])
def variant(request: pytest.FixtureRequest) -> Iterator[str]:
    if native.lib().lora_pack_force(request.param.encode()):
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    native.lib().lora_pack_force(native.ffi().NULL)


def values(kind: str, rows: int, columns: int, seed: int) -> NDArray[np.generic]:
    """Random bits and edges in a type's own representation, all of them finite as FP16."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, np.iinfo(TYPES[kind]).max, (rows, columns), TYPES[kind], endpoint=True)
    raw = bits.view(VIEWS[kind])
    wide = (bits.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else raw
    with np.errstate(over="ignore", invalid="ignore"):
        bad = ~np.isfinite(wide.astype(np.float16))
    edges = np.array(EDGES[kind], TYPES[kind])
    edge = rng.choice(edges, (rows, columns))
    return np.where(bad | (rng.random((rows, columns)) < 0.3), edge, bits).view(VIEWS[kind])


def reference(parts: list[PackPart]) -> NDArray[np.float16]:
    columns = []
    for part in parts:
        half = to_half(part.data, part.kind, part.name)
        half = half if part.axes == "io" else half.T
        columns.append(half[:, part.first : part.first + part.count])
    return pack_blocks(np.concatenate(columns, axis=1))


@st.composite
def matrices(draw: st.DrawFn) -> tuple[int, list[PackPart]]:
    k = draw(st.sampled_from([1, 7, 8, 31, 64, 127, 128, 129, 200, 256, 300]))
    axes = draw(st.sampled_from(["io", "oi"]))
    parts = []
    for index in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        outputs = draw(st.integers(1, 90))
        first = draw(st.integers(0, outputs - 1))
        count = draw(st.integers(1, outputs - first))
        shape = (k, outputs) if axes == "io" else (outputs, k)
        data = values(kind, *shape, draw(st.integers(0, 2**32)))
        parts.append(PackPart(f"part{index}", data, kind, axes, first, count))
    return k, parts


@pytest.mark.parametrize("name", ["plain", "f16c"])
@given(matrix=matrices())
def test_packing_equals_numpy(name: str, matrix: tuple[int, list[PackPart]]) -> None:
    if native.lib().lora_pack_force(name.encode()):
        pytest.skip(f"this machine has no {name}")
    k, parts = matrix
    found = pack_parts(parts, k)
    native.lib().lora_pack_force(native.ffi().NULL)
    assert found.tobytes() == reference(parts).tobytes()


def test_every_sixteen_bit_value(variant: str) -> None:
    for kind in ("F16", "BF16"):
        bits = np.arange(1 << 16, dtype=np.uint32)
        wide = bits.astype(np.uint16).view(np.float16).astype(np.float32)
        if kind == "BF16":
            wide = (bits << 16).view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.isfinite(wide.astype(np.float16))
        data = bits[fits].astype(np.uint16).view(VIEWS[kind])[None]
        part = PackPart("all", data, kind, "io", 0, data.size)
        assert pack_parts([part], 1).tobytes() == reference([part]).tobytes()


def test_every_rounding_of_a_binade_boundary(variant: str) -> None:
    """FP32 around each FP16 value and each middle between two."""
    halves = np.arange(0, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    centre = np.concatenate([halves, middles])
    up, down = (np.nextafter(centre, np.float32(to)) for to in (np.inf, -1))
    around = (centre, up, down)
    data = np.concatenate([*around, *(-a for a in around)])[None]
    data = data[:, np.abs(data[0]) < 65520]
    part = PackPart("all", np.ascontiguousarray(data), "F32", "io", 0, data.size)
    assert pack_parts([part], 1).tobytes() == reference([part]).tobytes()


@pytest.mark.parametrize("axes", ["io", "oi"])
@pytest.mark.parametrize(
    ("kind", "bits", "said"),
    [
        ("F16", 0x7C00, "is inf, expected a finite number"),
        ("F16", 0xFE01, "is nan, expected a finite number"),
        ("BF16", 0x4780, "is 65536, out of FP16's range: expected magnitudes below 65520"),
        ("BF16", 0xFF80, "is -inf, expected a finite number"),
        ("F32", 0x477FF000, "is 65520, out of FP16's range: expected magnitudes below 65520"),
        ("F32", 0xC77FF000, "is -65520, out of FP16's range: expected magnitudes below 65520"),
        ("F32", 0x7F800001, "is nan, expected a finite number"),
    ],
)
def test_what_fp16_cannot_hold_is_named(
    variant: str, axes: str, kind: str, bits: int, said: str
) -> None:
    rows, columns = (40, 170) if axes == "oi" else (140, 70)
    for row, column in ((0, 0), (5, 13), (39, 69), (rows - 1, columns - 1)):
        data = np.zeros((rows, columns), TYPES[kind])
        data[row, column] = bits
        first = 3 * (axes == "io" and column >= 3)
        count = (columns if axes == "io" else rows) - first
        part = PackPart("h.0.w", data.view(VIEWS[kind]), kind, axes, first, count)
        message = re.escape(f"h.0.w: weight [{row}, {column}] {said}")
        with pytest.raises(ModelError, match=message):
            pack_parts([part], rows if axes == "io" else columns)


def test_a_value_of_a_vector_is_named_by_one_index() -> None:
    data = np.zeros((1, 70), np.float16)
    data[0, 2] = np.nan
    with pytest.raises(ModelError, match=re.escape("norm: weight [2] is nan")):
        pack_parts([PackPart("norm", data, "F16", "io", 0, 70)], 1)


def test_what_is_not_asked_for_is_not_judged() -> None:
    data = np.zeros((4, 70), np.float16)
    data[2, 50] = np.nan
    part = PackPart("w", data, "F16", "io", 0, 50)
    assert not pack_parts([part], 4).any()


def test_parts_that_do_not_fit_are_refused() -> None:
    data = np.zeros((8, 40), np.float16)
    good = PackPart("w", data, "F16", "io", 0, 40)
    for parts, k in (
        ([PackPart("w", data, "F16", "io", 1, 40)], 8),
        ([good], 9),
        ([good, PackPart("v", data.T.copy(), "F16", "oi", 0, 40)], 8),
        ([PackPart("w", data, "F32", "io", 0, 40)], 8),
    ):
        with pytest.raises(RequestError, match=r"^[wv]: "):
            pack_parts(parts, k)
    with pytest.raises(RequestError, match="C order"):
        pack_parts([PackPart("w", data.T, "F16", "io", 0, 8)], 40)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_joined_ranges_have_the_checksum_of_the_whole(one: bytes, two: bytes) -> None:
    first = Range(0, 1, 64, len(one), zlib.crc32(one))
    assert first.join(Range(0, 1, 64 + len(one), len(two), zlib.crc32(two)))
    assert (first.bytes, first.crc) == (len(one) + len(two), zlib.crc32(one + two))
    assert not first.join(Range(0, 2, first.offset + first.bytes, 1, 0))
