"""The step block's bytes, and tensors packed as boards read them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_host import abi
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.loading.packing import pack_rows
from lora_sdk.plan.control import block_bytes
from lora_sdk.step.step import Row, build_block
from tests.oracle.blocks import pack_blocks


def parse(block: bytearray, name: str, offset: int, count: int) -> np.ndarray:
    return np.frombuffer(block, abi.dtype(name), count, offset)


def test_a_block_holds_what_it_was_given() -> None:
    vector = np.arange(40).astype(np.float16)
    rows = [
        Row(3, 17, 5, 9, want_argmax=True),
        Row(3, 18, 6, 10, parent=9, want_logits=True, want_hidden=True),
        Row(1, 0, 99, 11, adapter=2, vector=vector),
    ]
    ops = [KvOp.length(1, 0), KvOp.table(1, 2, 7), KvOp.copy(4, 5, 30), KvOp.commit(3, 16, 1, 2)]
    block = build_block(rows, ops, [8, 4, 2], 1, 40)
    step = parse(block, "step", 0, 1)[0]
    assert (step["size"], step["abi"], step["list_id"]) == (64, abi.ABI_NUMBER, 1)
    assert step["bytes"] == len(block)
    found = parse(block, "kv_op", step["kv_ops_offset"], step["kv_op_count"])
    assert [tuple(int(v) for v in op) for op in found] == [
        (abi.KV_LENGTH, 1, 0, 0, 0), (abi.KV_TABLE, 1, 2, 7, 0),
        (abi.KV_COPY, 0, 4, 5, 30), (abi.KV_COMMIT, 3, 16, 1, 2),
    ]  # fmt: skip
    path = np.frombuffer(block, np.uint16, step["path_count"], step["path_offset"])
    assert path.tolist() == [8, 4, 2]
    placed = parse(block, "row", step["rows_offset"], step["row_count"])
    assert placed["sequence"].tolist() == [3, 3, 1]
    assert placed["position"].tolist() == [17, 18, 0]
    assert placed["slot"].tolist() == [9, 10, 11]
    assert placed["parent"].tolist() == [-1, 9, -1]
    assert placed["adapter"].tolist() == [-1, -1, 2]
    assert placed["flags"].tolist() == [
        abi.ROW_WANT_ARGMAX, abi.ROW_WANT_LOGITS | abi.ROW_WANT_HIDDEN, abi.ROW_VECTOR
    ]  # fmt: skip
    assert placed["token"].tolist()[:2] == [5, 6]
    stored = np.frombuffer(block, np.float16, 40, placed["token"][2])
    assert stored.tobytes() == vector.tobytes()


def test_an_empty_block_is_a_header() -> None:
    block = build_block([], [], [], 0, 64)
    assert len(block) == abi.dtype("step").itemsize


def test_the_largest_block_fits_its_place() -> None:
    vector = np.zeros(80, np.float16)
    rows = [Row(0, i, 0, i, vector=vector) for i in range(abi.MAX_ROWS)]
    ops = [KvOp.length(0, 0)] * abi.MAX_KV_OPS
    path = [0] * (abi.MAX_ROWS * abi.MAX_SEQUENCES)
    assert len(build_block(rows, ops, path, 0, 80)) == block_bytes(abi.MAX_ROWS, 80)


@given(st.integers(1, 300), st.integers(1, 100))
def test_blocks_hold_each_weight_where_the_formula_says(k: int, n: int) -> None:
    matrix = np.arange(1, k * n + 1).reshape(k, n).astype(np.float16)
    blocks = pack_blocks(matrix)
    k_blocks = -(-k // 128)
    assert blocks.shape == (k_blocks * -(-n // 32), 128, 32)
    for row, column in ((0, 0), (k - 1, n - 1), (k // 2, n // 3), (k - 1, 0)):
        block = column // 32 * k_blocks + row // 128
        assert blocks[block, row % 128, column % 32] == matrix[row, column]
    assert np.count_nonzero(blocks) == k * n


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_table_rows_are_padded_with_zeros(kind: type) -> None:
    values = np.arange(1, 31).reshape(3, 10).astype(kind)
    packed = pack_rows(values, 64)
    assert packed.shape == (3, 64)
    width = 10 * values.itemsize
    assert packed[:, :width].tobytes() == values.tobytes() and not packed[:, width:].any()
