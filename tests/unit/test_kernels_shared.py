"""Rows of sequences that share pages: each variant reads those once for all of them, and gives the
bytes of the NumPy model, which reads them for each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lora_host import abi
from tests.unit.kernel_rig import ONCHIP, Rig
from tests.unit.test_kernels_attention import Attention
from tests.unit.test_kernels_native import KINDS, SEEN, both, seen_fields, values
from tests.unit.test_kernels_quantized import QuantizedAttention
from tests.unit.test_kernels_vector import STRIDE, X, Y

KV = {"fp16": abi.KV_FP16, "int8": abi.KV_INT8, "int8-heads": abi.KV_INT8_HEADS}


def positions(
    kind: int, seed: int, count: int, kv_heads: int, head_dim: int, extreme: float
) -> Any:
    """K and V of `count` positions, as a tool of that kind takes them."""
    if kind == abi.KV_FP16:
        return values(seed, (2, count, kv_heads, head_dim), extreme, False)
    generator = np.random.default_rng(seed)
    numbers = generator.integers(-127, 128, (2, count, kv_heads, head_dim)).astype(np.int8)
    scales = np.abs(values(seed + 1, (2, count, kv_heads), extreme, False))
    return [[(numbers[i, p], scales[i, p]) for p in range(count)] for i in (0, 1)]


def write_step(
    tool: Attention, kind: int, seed: int, shared: int, each: Any, extreme: float
) -> int:
    """Sequences with `shared` pages in common and positions of their own, one row each; one of
    three rows on the same pages; one that shares only their first page, one that shares none. Rows
    in random order. Returns their number."""
    generator = np.random.default_rng(seed)

    def some(count: int) -> Any:
        return positions(
            kind, int(generator.integers(2**31)), count, tool.kv_heads, tool.head_dim, extreme
        )

    pages = tool.commit(0, *some(32 * shared))
    common = {i: pages for i in range(1, 1 + len(each))}
    common |= {60: pages, 61: pages[:1], 62: []}
    rows: list[int] = []
    for sequence, length in zip(common, [*each, 7, 20, 9], strict=True):
        tool.commit(sequence, *some(length), common[sequence])
        rows += [sequence] * (3 if sequence == 60 else 1)
    slots = generator.permutation(64)
    for i, sequence in enumerate(generator.permutation(rows).tolist()):
        length = tool.rig.state.lengths[sequence]
        k, v = some(1)
        tool.slot(int(slots[i]), sequence, -1, length, k[0], v[0])
        tool.row(i, sequence, int(slots[i]))
    tool.rig.rows(len(rows))
    return len(rows)


@pytest.mark.parametrize("name", KV)
@example((1, 0.0, False), 64, 1, 3, [33, 40, 50, 60], (0, 0, 0.0))
@example((2, 0.0, False), 40, 2, 2, [0, 31, 7, 32], (0, 1, 0.0))
@settings(max_examples=12, deadline=None)
@given(
    noise=KINDS,
    head_dim=st.sampled_from([8, 40, 64, 128]),
    kv_heads=st.integers(1, 2),
    shared=st.integers(1, 3),
    each=st.tuples(  # some, or all of them, have a whole page of their own
        st.sampled_from([0, 32]), st.lists(st.integers(0, 32), min_size=2, max_size=6)
    ).map(lambda drawn: [drawn[0] + more for more in drawn[1]]),
    seen=SEEN,
)
def test_attention(
    name: str, noise: Any, head_dim: int, kv_heads: int, shared: int, each: list[int], seen: Any
) -> None:
    kind, (seed, extreme, _) = KV[name], noise

    def build(rig: Rig) -> Any:
        fp16 = kind == abi.KV_FP16
        tool = (
            Attention(rig, head_dim, kv_heads)
            if fp16
            else QuantizedAttention(rig, head_dim, kv_heads, kind)
        )
        count = write_step(tool, kind, seed, shared, each, extreme / 50)
        q = values(seed + 1, (count, 2 * kv_heads * head_dim), 0, False)
        if kind == abi.KV_INT8:
            q = np.random.default_rng(seed).integers(-127, 128, q.shape).astype(np.int8)
        rig.place_rows(ONCHIP, X, STRIDE, q)
        scale = 3e-4 if kind == abi.KV_INT8 else 0.21
        found = rig.run(
            "attention", head_dim=head_dim, kv_layer=tool.layer, q_heads=2 * kv_heads, q_first=4,
            kv_heads=kv_heads, kv_first=2, group=2, q_offset=X, q_stride=STRIDE, y_offset=Y,
            y_stride=STRIDE, scale=int(np.float32(scale).view(np.uint32)),
            v_scale=int(np.float32(0.02).view(np.uint32)), **seen_fields(tool, seen, 2 * kv_heads),
        )  # fmt: skip
        assert found.status == 0
        return found

    both(build)
