"""Attention against a scalar spelling: pages, scratch slots, ancestors, tiles, grouped heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lora_host.numerics import exp32
from tests.unit.kernel_rig import KV_BANKS, ONCHIP, TABLES, Rig, refusing_runner
from tests.unit.test_kernels_matrix import scalar_product

Q, Y = 64, 1 << 18
STRIDE = 4096
MAX_TILES, MAX_SCRATCH, PAGES = 5, 64, 24


class Attention:
    """KV pages of a rig: `kv[sequence]` is [positions, kv_heads, head_dim] K and V."""

    def __init__(self, rig: Rig, head_dim: int, kv_heads: int, layers: int = 2) -> None:
        self.rig, self.head_dim, self.kv_heads = rig, head_dim, kv_heads
        header = rig.list
        header.kv_bank_first, header.kv_bank_count = KV_BANKS
        header.kv_layers, header.kv_heads, header.head_dim = layers, kv_heads, head_dim
        header.kv_line, header.table_bank, header.table_line = 3, TABLES, 7
        header.max_tiles, header.max_scratch, header.page_count = MAX_TILES, MAX_SCRATCH, PAGES
        self.layer = layers - 1
        self.next_page = MAX_SCRATCH // 32

    def block_place(self, page: int, head: int, values: int) -> tuple[int, int]:
        header = self.rig.list
        stride = (header.kv_layers * self.kv_heads * 2) | 1
        j = page * stride + (self.layer * self.kv_heads + head) * 2 + values
        bank = KV_BANKS[0] + j % KV_BANKS[1]
        return bank, (3 + j // KV_BANKS[1] * self.head_dim) * 64

    def write(self, page: int, lane: int, k: Any, v: Any) -> None:
        """K and V [kv_heads, head_dim] of one position."""
        for head in range(self.kv_heads):
            bank, offset = self.block_place(page, head, 0)
            block = self.rig.banks[bank][offset : offset + 64 * self.head_dim].view(np.float16)
            block.reshape(self.head_dim, 32)[:, lane] = k[head]
            bank, offset = self.block_place(page, head, 1)
            block = self.rig.banks[bank][offset : offset + 64 * self.head_dim].view(np.float16)
            block.reshape(32, self.head_dim)[lane] = v[head]

    def commit(self, sequence: int, k: Any, v: Any, shared: Sequence[int] = ()) -> list[int]:
        """Places committed positions on fresh pages, after the pages of others. Returns all."""
        self.rig.state.lengths[sequence] = 32 * len(shared) + len(k)
        pages = list(shared)
        for tile in range(-(-len(k) // 32)):
            pages.append(self.next_page)
            for position in range(tile * 32, min(len(k), tile * 32 + 32)):
                self.write(self.next_page, position % 32, k[position], v[position])
            self.next_page += 1
        table = np.full(MAX_TILES, 0xFFFF, np.uint16)
        table[: len(pages)] = pages
        self.rig.place(TABLES, 7 * 64 + sequence * 64, table)
        return pages

    def slot(self, slot: int, sequence: int, parent: int, position: int, k: Any, v: Any) -> None:
        entry = self.rig.state.slots[slot]
        entry.parent, entry.sequence, entry.position, entry.valid = parent, sequence, position, 1
        self.write(slot // 32, slot % 32, k, v)

    def row(self, i: int, sequence: int, slot: int) -> None:
        row, entry = self.rig.state.rows[i], self.rig.state.slots[slot]
        row.sequence, row.slot, row.parent = sequence, slot, entry.parent
        row.position = entry.position

    def slopes(self, table: Any) -> dict[str, int]:
        """Places {slope, factor} of each query head; the command's fields that name it."""
        self.rig.place(TABLES, 1 << 16, np.asarray(table, np.float32))
        return {"slope_bank": TABLES, "slope_line": (1 << 16) // 64}

    def run(
        self, q: np.ndarray, scale: float, group: int, q_first: int, kv_first: int, **more: int
    ) -> Any:
        heads = q.shape[1]
        self.rig.place_rows(ONCHIP, Q, STRIDE, q.reshape(len(q), -1))
        found = self.rig.run(
            "attention", head_dim=self.head_dim, kv_layer=self.layer, q_heads=heads,
            q_first=q_first, kv_heads=self.kv_heads, kv_first=kv_first, group=group, q_offset=Q,
            q_stride=STRIDE, y_offset=Y, y_stride=STRIDE,
            scale=int(np.float32(scale).view(np.uint32)), **more,
        )  # fmt: skip
        assert found.status == (15 if self.rig.runner is refusing_runner else 0)
        y = self.rig.read_rows(ONCHIP, Y, STRIDE, (len(q), heads * self.head_dim), np.float16)
        return y.reshape(q.shape), found


def scalar_attention(
    q: Any, k: Any, v: Any, scale: np.float32, bias: Any = None, first: int = 0
) -> np.ndarray:
    """One row and head; k, v [positions, head_dim] in logical order, seen from `first` on. `bias`
    [positions] is added to the scores."""
    scores = [scalar_product(q, key) * scale for key in k]
    if bias is not None:
        scores = [score + added for score, added in zip(scores, bias, strict=True)]
    largest = max(scores[first:])
    e = [np.float16(exp32(np.array([s - largest], np.float32))[0]) for s in scores]
    sum_e, sum_ev = np.float32(0), np.zeros(len(q), np.float32)
    for start in range(0, len(k), 32):
        tile_e, tile_ev = np.float32(0), np.zeros(len(q), np.float32)
        for p in range(max(start, first), min(start + 32, len(k))):
            tile_e = tile_e + np.float32(e[p])
            tile_ev = tile_ev + np.float32(e[p]) * v[p].astype(np.float32)
        sum_e, sum_ev = sum_e + tile_e, sum_ev + tile_ev
    return (sum_ev / sum_e).astype(np.float16)


def random_kv(seed: int, positions: int, kv_heads: int, head_dim: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((2, positions, kv_heads, head_dim)).astype(np.float16)


@pytest.mark.parametrize("head_dim", [32, 64, 40])
def test_tree_of_uncommitted_rows(head_dim: int) -> None:
    """Two sequences; in the first a tree: siblings do not see each other."""
    tool = Attention(Rig(), head_dim, kv_heads=2)
    (k, v), (k2, v2) = random_kv(1, 62, 2, head_dim), random_kv(2, 5, 2, head_dim)
    tool.commit(1, k, v)
    tool.commit(3, k2, v2)
    sk, sv = random_kv(3, MAX_SCRATCH, 2, head_dim)
    #            slot: (sequence, parent, position)
    tree = {5: (1, -1, 62), 40: (1, 5, 63), 2: (1, 5, 63), 33: (1, 40, 64), 8: (3, -1, 5)}
    for slot, (sequence, parent, position) in tree.items():
        tool.slot(slot, sequence, parent, position, sk[slot], sv[slot])
    order = [40, 2, 8, 33]  # the root, slot 5, is of an earlier step
    for i, slot in enumerate(order):
        tool.row(i, tree[slot][0], slot)
    tool.rig.rows(len(order))
    q = random_kv(4, len(order), 3, head_dim)[0]
    scale = np.float32(head_dim**-0.5)
    got, found = tool.run(q, scale, group=2, q_first=3, kv_first=1)
    assert found.nonfinite_count == 0
    seen = {40: [5, 40], 2: [5, 2], 33: [5, 40, 33], 8: [8]}
    for i, slot in enumerate(order):
        committed = (k, v) if tree[slot][0] == 1 else (k2, v2)
        keys = np.concatenate([committed[0], sk[seen[slot]]])
        values = np.concatenate([committed[1], sv[seen[slot]]])
        for head in range(3):
            kv_head = (3 + head) // 2 - 1
            wanted = scalar_attention(q[i, head], keys[:, kv_head], values[:, kv_head], scale)
            assert got[i, head].tobytes() == wanted.tobytes(), (slot, head)


def test_chunks_equal_one_chain_and_committed_rows() -> None:
    """Row 35 of a chain of 40 gets the same bits when 0, 20 or 35 positions are committed."""
    k, v = random_kv(1, 40, 1, 32)
    q = random_kv(2, 1, 2, 32)[0]
    results = []
    for committed in (0, 20, 35):
        tool = Attention(Rig(), 32, kv_heads=1)
        tool.commit(0, k[:committed], v[:committed])
        for p in range(committed, 36):
            tool.slot(p, 0, p - 1 if p > committed else -1, p, k[p], v[p])
        tool.row(0, 0, 35)
        tool.rig.rows(1)
        results.append(tool.run(q, 0.2, group=2, q_first=0, kv_first=0)[0].tobytes())
    assert len(set(results)) == 1


def test_rows_together_equal_rows_alone() -> None:
    k, v = random_kv(1, 130, 2, 64)
    tool = Attention(Rig(), 64, kv_heads=2)
    tool.commit(0, k[:100], v[:100])
    for p in range(30):
        tool.slot(p, 0, p - 1, 100 + p, k[100 + p], v[100 + p])
        tool.row(p, 0, p)
    tool.rig.rows(30)
    q = random_kv(2, 30, 4, 64)[0]
    together, _ = tool.run(q, 0.125, group=2, q_first=0, kv_first=0)
    for i in (0, 13, 29):
        tool.row(0, 0, i)
        tool.rig.rows(1)
        alone, _ = tool.run(q[i : i + 1], 0.125, group=2, q_first=0, kv_first=0)
        assert alone[0].tobytes() == together[i].tobytes()


def test_nonfinite_scores_reach_the_result() -> None:
    k, v = random_kv(1, 3, 1, 32)
    k[1, 0, 5] = np.inf
    tool = Attention(Rig(), 32, kv_heads=1)
    tool.commit(0, k[:2], v[:2])
    tool.slot(0, 0, -1, 2, k[2], v[2])
    tool.row(0, 0, 0)
    tool.rig.rows(1)
    got, found = tool.run(random_kv(2, 1, 1, 32)[0], 1.0, group=1, q_first=0, kv_first=0)
    assert set(got.view(np.uint16).reshape(-1).tolist()) <= {0x7E00}
    assert found.nonfinite_count == 32 and found.nonfinite_row == 0
    # a key of -infinity only takes its own position out
    k[1, 0, :] = 0
    v[1, 0, 0] = 60000
    tool.commit(0, k[:2], v[:2])
    assert tool.run(random_kv(2, 1, 1, 32)[0], 1.0, 1, 0, 0)[1].nonfinite_count == 0


def test_a_circle_of_parents_is_refused() -> None:
    tool = Attention(Rig(runner=refusing_runner), 32, kv_heads=1)
    k, v = random_kv(1, 2, 1, 32)
    tool.commit(0, k[:0], v[:0])
    tool.slot(0, 0, 1, 0, k[0], v[0])
    tool.slot(1, 0, 0, 1, k[1], v[1])
    tool.row(0, 0, 1)
    tool.rig.rows(1)
    assert tool.run(random_kv(2, 1, 1, 32)[0], 1.0, 1, 0, 0)[1].status == 15
