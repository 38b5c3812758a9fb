"""The registries of weight formats and of KV types: facts of abi.h, look-ups, refusals by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.model.kv_formats import KV_KINDS, kv_format
from lora_sdk.model.methods import Method, register_method
from lora_sdk.model.quantization import MatrixFormat, Quantization
from lora_sdk.model.weight_formats import (
    GGUF_FORMATS,
    GROUPS,
    INT8,
    W4A8,
    all_formats,
    of_precision,
    of_scheme,
    of_weight_type,
    register,
    weight_format,
)

LINE = 64


def test_every_type_of_the_boards_is_a_format_and_comes_back() -> None:
    types = {abi.WEIGHT_FP16, abi.WEIGHT_INT8, abi.WEIGHT_W4A8, abi.WEIGHT_W4A16, abi.WEIGHT_GGUF}
    assert types == set(abi.names("WEIGHT_")) - {abi.WEIGHT_TYPE_MASK}
    kinds = {row.gguf.kind for row in all_formats() if row.gguf is not None}
    assert {f"LORA_{kind}" for kind in kinds} == set(abi.names("GGUF_").values())
    assert {row.type_number for row in all_formats()} == types
    for name in ("fp16", "int8", "w4a8", "w4a16", *(row.name for row in GGUF_FORMATS)):
        row = weight_format(name)
        for group in row.groups:
            assert of_weight_type(row.weight_type(group)) == (row, group)


def test_a_block_holds_values_then_scales_and_zero_points_in_whole_lines() -> None:
    for row in (row for row in all_formats() if row.gguf is None):
        for group in row.groups:
            groups = 0 if group is None else abi.BLOCK_K // group
            metadata = groups * abi.BLOCK_N * 5 // 2
            assert row.metadata_bytes(group) == -(-metadata // LINE) * LINE
            whole = row.matrix_bytes(group, abi.BLOCK_K, abi.BLOCK_N)
            assert 0 <= row.block_bytes(group) - whole < LINE


def test_unknown_names_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="matrix format 'int5'; expected one of fp16, int8, w4a8"):
        MatrixFormat("int5")
    with pytest.raises(ModelError, match="group 48 of w4a8 weights; expected 32 or 64 or 128"):
        MatrixFormat("w4a8", 48)
    with pytest.raises(ModelError, match="scheme 'w5a5'; expected one of w8a8, w4a8, w4a16"):
        of_scheme("w5a5")
    with pytest.raises(ModelError, match="precision 'fp8'; expected one of fp16, w8a8, w4a8"):
        of_precision("fp8")
    with pytest.raises(ModelError, match="weight type 0x2 is unknown"):
        of_weight_type(2)
    with pytest.raises(ModelError, match="KV cache type 'int2'; expected one of fp16, int8, int8-"):
        Quantization("test", kv="int2")  # type: ignore[arg-type]


def test_a_name_or_a_type_is_described_once() -> None:
    with pytest.raises(ModelError, match="weight format 'int8' is registered already"):
        register(INT8)
    with pytest.raises(ModelError, match="'other': WEIGHT_INT8 is described differently by 'int8'"):
        register(replace(INT8, name="other", integer=False))
    with pytest.raises(ModelError, match="'other': WEIGHT_W4A8 is described differently by 'w4a8'"):
        register(replace(W4A8, name="other", blocks={256: "BLOCK_BYTES_INT4_128"}))
    with pytest.raises(ModelError, match="matrix format 'other'"):
        weight_format("other")
    with pytest.raises(ModelError, match="quant_method 'awq' is registered already"):
        register_method("awq", Method(None, None))  # type: ignore[arg-type]


def test_the_largest_group_that_divides_k() -> None:
    assert [W4A8.fitting_group(k) for k in (256, 192, 96, 100)] == [128, 64, 32, None]
    assert INT8.fitting_group(256) is None and tuple(W4A8.groups) == GROUPS


def test_kv_types_are_those_of_the_boards() -> None:
    rows = [kv_format(name) for name in KV_KINDS]
    assert [row.type_number for row in rows] == [abi.KV_FP16, abi.KV_INT8, abi.KV_INT8_HEADS]
    assert [row.block_lines(64) for row in rows] == [64, 32, 33]
    assert [row.quantized for row in rows] == [False, True, True]
