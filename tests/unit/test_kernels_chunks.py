"""Attention over more than a chunk of 4096 positions: the NumPy model and every native variant
against the rule spelled here, and chunks that lie on different boards (docs/numbers.md, 3.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.emu.attention import CHUNK, add_chunks, attend, chunk_sums, score
from lora_host.numerics import exp32, to_fp16
from tests.oracle.arithmetic import product
from tests.unit import kernel_rig
from tests.unit.kernel_rig import ONCHIP, TABLES, Rig
from tests.unit.test_kernels_attention import STRIDE, Attention, Q, Y, random_kv
from tests.unit.test_kernels_native import EVERY, forced, machine_variants, run_native
from tests.unit.test_kernels_quantized import QuantizedAttention
from tests.unit.test_kernels_shared import positions

SCALE = np.float32(0.3)
HEAD_DIM, COMMITTED = 40, 2 * 4096 + 45
ROOM = 320  # tiles of a table
TREE = {5: -1, 40: 5, 2: 5, 33: 40}  # slot: parent
PATHS = {40: [5, 40], 2: [5, 2], 33: [5, 40, 33], 5: [5]}


def spelled(q: Any, k: Any, v: Any, first: int = 0, chunk: int = 4096) -> np.ndarray:
    """One row and head over k and v [positions, head_dim] from `first` on."""
    scores = product(q[None].astype(np.float32), np.ascontiguousarray(k.T.astype(np.float32)))[0]
    scores = (scores * SCALE)[first:]
    e = exp32(scores - scores.max()).astype(np.float16).astype(np.float32)
    each = np.column_stack([e, e[:, None] * v[first:].astype(np.float32)])
    tiles = added(each, np.arange(first, len(k)) // 32)
    chunks = added(tiles[1], tiles[0] * 32 // chunk)
    below, *above = added(chunks[1], 0 * chunks[0])[1][0]
    return (np.array(above) / below).astype(np.float16)


def added(values: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(numbers, sums) of the rows that share a number, from +0 one after another."""
    sums: dict[int, np.ndarray] = {}
    for number, row in zip(numbers.tolist(), values, strict=True):
        sums[number] = sums.get(number, np.zeros_like(row)) + row
    return np.array(list(sums)), np.array(list(sums.values()))


def long_text(tool: Attention, pages: Sequence[int], sequence: int, length: int) -> None:
    """A sequence of `length` committed positions whose table names `pages` again and again."""
    tool.rig.list.max_tiles = ROOM
    tool.rig.state.lengths[sequence] = length
    table = np.resize(np.array(pages, np.uint16), ROOM)
    tool.rig.place(TABLES, 7 * 64 + sequence * 2 * ROOM, table)


def run_tree(tool: Attention, q: np.ndarray, slots: Sequence[int], window: int = 0) -> Any:
    for i, slot in enumerate(slots):
        tool.row(i, 1, slot)
    tool.rig.rows(len(slots))
    return tool.run(q, float(SCALE), group=2, q_first=0, kv_first=0, window=window)[0]


def tile_pages(pages: Sequence[int]) -> list[int]:
    """The page of each tile. V of the first two is far above 0, that of the next two as far below:
    the sum is small beside what is added, so that the order of additions shows in FP16."""
    above, below = list(pages[:2]), list(pages[2:4])
    signs = above * 25 + below * 25 + [pages[4]] * 4 + above * 38 + below * 38
    return signs + [pages[4]] * (ROOM - len(signs))


def five_pages() -> tuple[np.ndarray, np.ndarray]:
    """K and V [positions, 1, head_dim] of the pages that tile_pages names."""
    k, v = random_kv(1, 5 * 32, 1, HEAD_DIM).reshape(2, 5, 32, 1, HEAD_DIM)
    k[2:4], v[2:4] = k[:2], v[:2] - np.float16(600)
    v[:2] += np.float16(600)
    return k.reshape(-1, 1, HEAD_DIM), v.reshape(-1, 1, HEAD_DIM)


def build(rig: Rig) -> tuple[Attention, Any, Any]:
    """A tree behind COMMITTED positions; K and V as [positions], by slot at the end."""
    tool = Attention(rig, HEAD_DIM, kv_heads=1)
    k, v = five_pages()
    pages = tool.commit(0, k, v)
    long_text(tool, tile_pages(pages), 1, COMMITTED)
    sk, sv = random_kv(3, 64, 1, HEAD_DIM)
    depth = {slot: len(path) - 1 for slot, path in PATHS.items()}
    for slot, parent in TREE.items():
        tool.slot(slot, 1, parent, COMMITTED + depth[slot], sk[slot], sv[slot])
    at = [32 * page + lane for page in tile_pages(range(5)) for lane in range(32)][:COMMITTED]
    return tool, (k[at, 0], sk[:, 0]), (v[at, 0], sv[:, 0])


@cache
def wanted(slots: tuple[int, ...], window: int) -> bytes:
    """What the rule gives the rows of these slots, two heads each."""
    q = random_kv(4, len(slots), 2, HEAD_DIM)[0]
    _, k, v = build(Rig())
    found = []
    for row, slot in zip(q, slots, strict=True):
        keys, values = (np.concatenate([x[0], x[1][PATHS[slot]]]) for x in (k, v))
        first = max(0, len(keys) - window) if window else 0
        found += [spelled(head, keys, values, first) for head in row]
    return np.array(found).tobytes()


@pytest.mark.parametrize("variant", ["numpy", *EVERY])
@pytest.mark.parametrize("window", [0, 5000])
@pytest.mark.parametrize("slots", [(33,), (40, 2, 33, 5)])
def test_a_tree_behind_two_chunks(variant: str, window: int, slots: tuple[int, ...]) -> None:
    """Rows alone and together; a window begins within a tile of the first chunk that it reaches."""
    q = random_kv(4, len(slots), 2, HEAD_DIM)[0]
    with running(variant) as runner:
        got = run_tree(build(Rig(runner=runner))[0], q, slots, window)
    assert got.tobytes() == wanted(slots, window)


@contextmanager
def running(variant: str) -> Iterator[Any]:
    """The runner of a variant; skips what is not on this machine."""
    if variant == "numpy":
        yield kernel_rig.numpy_runner
        return
    if variant not in machine_variants():
        pytest.skip(f"{variant}: not on this machine")
    with forced(variant):
        yield run_native


@pytest.mark.parametrize("window", [0, 5000])
def test_these_texts_tell_chunks_from_tiles_alone(window: int) -> None:
    _, (k, _), (v, _) = build(Rig())
    q, first = random_kv(4, 1, 1, HEAD_DIM)[0, 0, 0], len(k) - window if window else 0
    assert spelled(q, k, v, first).tobytes() != spelled(q, k, v, first, 1 << 30).tobytes()
    assert spelled(q, k, v, first).tobytes() != spelled(q, k, v, first, 2048).tobytes()
    one = q, k[:4096], v[:4096]
    assert spelled(*one).tobytes() == spelled(*one, chunk=1 << 30).tobytes()


@pytest.mark.parametrize("variant", EVERY)
@pytest.mark.parametrize("kind", [abi.KV_FP16, abi.KV_INT8, abi.KV_INT8_HEADS])
@pytest.mark.parametrize("group", [1, 5])
def test_texts_that_part_within_a_chunk(variant: str, kind: int, group: int) -> None:
    """Rows of sequences with the same pages up to some tile, one to three of a sequence, through
    three chunks: the bytes of the NumPy model, for every type of KV."""
    expected = parting_texts(kind, group, kernel_rig.numpy_runner)
    with running(variant) as runner:
        assert parting_texts(kind, group, runner) == expected


@cache
def parting_texts(kind: int, group: int, runner: Any) -> bytes:
    rig, head_dim = Rig(runner=runner), 8
    made = (rig, head_dim, 1)
    tool = Attention(*made) if kind == abi.KV_FP16 else QuantizedAttention(*made, kind)
    pages = tool.commit(0, *swaying(kind, *positions(kind, 1, 5 * 32, 1, head_dim, 0.0)))
    last = {1: 2 * 4096 + 77, 2: 4096 + 1, 3: 2 * 4096 + 31, 4: 2 * 4096 + 9}
    for sequence, length in last.items():
        long_text(tool, tile_pages(pages), sequence, length)
        at = 7 * 64 + sequence * 2 * ROOM + 2 * (123 + sequence)  # each parts from the others here
        rig.banks[TABLES][at : at + 2] = np.array([pages[sequence % 2]], np.uint16).view(np.uint8)
    k, v = positions(kind, 2, 6, 1, head_dim, 0.0)
    for i, sequence in enumerate((1, 2, 3, 4, 4, 4)):
        tool.slot(i, sequence, i - 1 if i > 3 else -1, last[sequence] + max(0, i - 3), k[i], v[i])
        tool.row(i, sequence, i)
    rig.rows(6)
    integer = kind == abi.KV_INT8
    q = np.random.default_rng(5).integers(-127, 128, (6, group * head_dim)).astype(np.int8)
    rig.place_rows(ONCHIP, Q, STRIDE, q if integer else (q / np.float16(40)).astype(np.float16))
    found = rig.run(
        "attention", head_dim=head_dim, kv_layer=tool.layer, q_heads=group, q_first=0, kv_heads=1,
        kv_first=0, group=group, q_offset=Q, q_stride=STRIDE, y_offset=Y, y_stride=STRIDE,
        scale=int(np.float32(1e-4 if integer else 0.21).view(np.uint32)),
        v_scale=int(np.float32(0.02).view(np.uint32)),
    )  # fmt: skip
    assert found.status == 0 and found.nonfinite_count == 0
    return rig.read_rows(ONCHIP, Y, STRIDE, (6, group * head_dim), np.uint16).tobytes()


def swaying(kind: int, k: Any, v: Any) -> tuple[Any, Any]:
    """Positions of five pages as tile_pages wants them."""
    for p in range(64):
        if kind == abi.KV_FP16:
            v[p] = np.abs(v[p]) * np.float16(600)
            k[64 + p], v[64 + p] = k[p], -v[p]
        else:
            values, scales = np.abs(v[p][0]), np.full_like(v[p][1], 8)
            v[p], v[64 + p], k[64 + p] = (values, scales), (-values, scales), k[p]
    return k, v


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
def test_chunks_on_several_boards(boards: int) -> None:
    """Boards hold chunks in turn. They exchange maxima, then sums: the bytes are those of one."""
    heads, rows, head_dim, count = 2, 2, 8, 9 * CHUNK
    draw = np.random.default_rng(1)
    q, k, v = (
        to_fp16(draw.standard_normal(shape).astype(np.float32)).astype(np.float32)
        for shape in ((rows, heads, head_dim), (heads, head_dim, count), (heads, count, head_dim))
    )
    v[:] += np.float32(500) * np.cos(np.arange(9) * 0.7).repeat(CHUNK).astype(np.float32)[:, None]
    entries = np.broadcast_to(np.arange(count), (rows, count))
    whole = attend(q, k, np.concatenate([v, 0 * v[:, :1]], axis=1), entries, SCALE)
    own = {
        board: [slice(c * CHUNK, (c + 1) * CHUNK) for c in range(board, 9, boards)]
        for board in range(boards)
    }
    scores = {b: [score(q, k[:, :, part]) * SCALE for part in own[b]] for b in own}
    maxima = [s.max(axis=2, keepdims=True) for of_board in scores.values() for s in of_board]
    top = np.max(np.array(maxima), axis=0)
    sums = {}
    for board, parts in own.items():
        for i, (part, s) in enumerate(zip(parts, scores[board], strict=True)):
            e = to_fp16(exp32(s - top)).astype(np.float32)
            sums[board + i * boards] = chunk_sums(e, v[:, part], entries[:, :CHUNK])
    joined = add_chunks(sums[c] for c in sorted(sums))
    assert joined.tobytes() == whole.tobytes()
    backwards = add_chunks(sums[c] for c in sorted(sums, reverse=True))
    assert backwards.tobytes() != whole.tobytes()
