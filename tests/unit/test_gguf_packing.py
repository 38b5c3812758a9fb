"""Blocks of GGUF files as the packer lays them for boards: FP16 of what they mean, to the bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from lora_host import abi
from lora_host.emu.gguf_blocks import _wide
from lora_host.errors import ModelError, RequestError
from lora_host.placing import PackPart, pack_parts
from lora_sdk.gguf.blocks import BlockArray, tensor_type
from lora_sdk.model.columns import BlockColumns
from lora_sdk.model.weight_formats import GGUF_FORMATS, WeightFormat, gguf_format
from tests.gguf_files import packed

KINDS = gguf.GGMLQuantizationType
PAIRS = [(kind, row) for row in GGUF_FORMATS for kind in row.gguf.types]
IDS = [f"{kind}-{row.name}" for kind, row in PAIRS]
ROWS = 77


def blocks_of(kind: str, k: int, seed: int = 0) -> BlockArray:
    data = np.random.default_rng(seed + k).standard_normal((ROWS, k)).astype(np.float32)
    return BlockArray(packed(data, KINDS[kind]), tensor_type(KINDS[kind].value, "x"), (ROWS, k))


def lengths(row: WeightFormat) -> tuple[int, ...]:
    return (256, 768) if row.gguf.weights == 256 else (32, 160, 256)


def unpacked(raw: np.ndarray, row: WeightFormat, k: int, n: int) -> np.ndarray:
    """FP16 [k, n] of boards' blocks, by the NumPy kernels' formula."""
    wide = _wide(row.weight_type(None) >> abi.WEIGHT_GROUP_SHIFT, raw).astype(np.float16)
    tiles = wide.reshape(-(-n // 32), -1, 32)
    return tiles.transpose(1, 0, 2).reshape(tiles.shape[1], -1)[:k, :n]


@pytest.mark.parametrize(("kind", "row"), PAIRS, ids=IDS)
def test_blocks_are_fp16_of_the_files_numbers(kind: str, row: WeightFormat) -> None:
    for k in lengths(row):
        blocks = blocks_of(kind, k)
        wanted = np.ascontiguousarray(blocks[:].astype(np.float16).T)
        assert np.count_nonzero(wanted) > wanted.size // 2
        parts = [
            PackPart("a", blocks.raw, kind, "oi", 5, 40),
            BlockColumns(blocks, "a").take(np.array([3, 70, 1, 1, 9])).part("a"),
        ]
        found = unpacked(pack_parts(parts, k, row.weight_type(None)), row, k, 45)
        chosen = wanted[:, [*range(5, 45), 3, 70, 1, 1, 9]]
        assert np.array_equal(found + np.float16(0), chosen + np.float16(0)), k


@pytest.mark.parametrize("row", GGUF_FORMATS, ids=lambda row: row.name)
def test_whole_lines_as_small_as_the_files(row: WeightFormat) -> None:
    size = row.block_bytes(None)
    in_file = row.matrix_bytes(None, abi.BLOCK_K, abi.BLOCK_N)
    assert size % abi.LINE_BYTES == 0 and in_file <= size <= 1.03 * in_file


def test_the_smallest_block_that_holds_all() -> None:
    names = {
        ("Q8_0",): "q8_0", ("Q5_0", "Q8_0"): "q8_0", ("Q4_0", "Q5_0"): "q5_0", ("Q4_K",): "q4_k",
        ("Q4_K", "Q5_K"): "q5_k", ("Q4_K", "Q6_K"): "k_mixed", ("Q3_K",): "q6_k",
        ("Q2_K", "Q3_K"): "k_mixed", ("Q4_1", "Q5_1"): "q5_1", ("IQ4_NL",): "iq4_nl",
        ("Q4_0",): "q4_0", ("IQ4_NL", "Q8_0"): "q8_0", ("MXFP4",): "mxfp4",
    }  # fmt: skip
    for types, name in names.items():
        found = gguf_format(types)
        assert found is not None and found.name == name
    for types in (("MXFP4", "Q8_0"), ("IQ4_XS",), ("F16",), ("Q8_0", "Q4_K"), ("Q8_0", "F16")):
        assert gguf_format(types) is None


@pytest.mark.parametrize(
    ("kind", "at", "scale"),
    [
        (kind, at, scale)
        for kind, at in (("Q8_0", 0), ("Q4_1", 2), ("Q4_K", 2), ("Q6_K", 208))
        for scale in (np.inf, np.nan, 8192.0)
        if (kind, scale) != ("Q4_1", 8192.0)  # which FP16 holds: a minimum
    ],
)
def test_a_weight_beyond_fp16_is_named(kind: str, at: int, scale: float) -> None:
    blocks = blocks_of(kind, 512, 1)
    size = blocks.type.bytes
    raw = blocks.raw.reshape(ROWS, -1, size)
    raw[40, 1, at : at + 2] = np.array([scale], np.float16).view(np.uint8)
    if kind in ("Q4_K", "Q6_K"):
        raw[40, 1, 4:16] = raw[40, 1, 192:208] = 63
    first = blocks.type.elements
    row = gguf_format((kind,))
    assert row is not None
    with pytest.raises(ModelError, match=rf"a: weight \[40, {first}\d?\] is "):
        pack_parts([PackPart("a", blocks.raw, kind, "oi", 0, ROWS)], 512, row.weight_type(None))


@pytest.mark.parametrize("exponent", [*range(96, 106), 0, 1, 126])
def test_small_exponents_of_mxfp4_keep_their_weights(exponent: int) -> None:
    """Below 104 FP16 rounds them: boards hold what it gives."""
    row = gguf_format(("MXFP4",))
    assert row is not None
    codes = np.arange(16, dtype=np.uint8)
    raw = np.concatenate([[exponent], codes | codes[::-1] << 4]).astype(np.uint8)[None]
    wanted = BlockArray(raw, tensor_type(39, "x"), (1, 32))[:].astype(np.float16)
    blocks = pack_parts([PackPart("a", raw, "MXFP4", "oi", 0, 1)], 32, row.weight_type(None))
    found = unpacked(blocks, row, 32, 1)[:, 0]
    assert np.array_equal(found + np.float16(0), wanted[0] + np.float16(0))
    assert blocks.reshape(-1)[2048:].min() >= 104


def test_exponents_of_mxfp4_beyond_fp16_are_refused() -> None:
    row = gguf_format(("MXFP4",))
    assert row is not None
    for exponent, code, taken in ((140, 7, True), (141, 7, False), (143, 1, True), (144, 1, False),
                                  (254, 0, True), (255, 0, False)):  # fmt: skip
        raw = np.array([[exponent, code, *[0] * 15]], np.uint8)
        part = PackPart("a", raw, "MXFP4", "oi", 0, 1)
        if taken:
            found = unpacked(pack_parts([part], 32, row.weight_type(None)), row, 32, 1)[:, 0]
            value = [0, 0.5, 1, 1.5, 2, 3, 4, 6][code]
            assert found.tolist() == [value * 2.0 ** (exponent - 127), *[0] * 31]
        else:
            with pytest.raises(ModelError, match=r"a: weight \[0.*\] is "):
                pack_parts([part], 32, row.weight_type(None))


def test_what_does_not_fit_is_refused() -> None:
    blocks = blocks_of("Q8_0", 64)
    q8, q5, q4_k = (gguf_format((k,)).weight_type(None) for k in ("Q8_0", "Q5_0", "Q4_K"))
    whole = PackPart("a", blocks.raw, "Q8_0", "oi", 0, ROWS)
    for k, weight_type, part in (
        (64, q5, whole), (64, q4_k, whole), (64, abi.WEIGHT_FP16, whole), (96, q8, whole),
        (63, q8, whole), (32, q8, whole), (64, abi.WEIGHT_GGUF, whole), (64, q8 + 0x80, whole),
        (64, q8, PackPart("a", blocks.raw, "Q8_0", "io", 0, ROWS)),
        (64, q8, PackPart("a", blocks.raw, "Q8_0", "oi", 1, ROWS)),
        (68, q8, PackPart("a", blocks.raw.view(np.int8), "I8", "oi", 0, ROWS)),
        (64, q8, PackPart("a", blocks.raw, "Q5_0", "oi", 0, ROWS)),
    ):  # fmt: skip
        with pytest.raises(RequestError):
            pack_parts([part], k, weight_type)
