"""Loading: every byte lands where the plan says, on any number of threads, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import ModelError, PlacementError, RequestError
from lora_host.overlay import load_overlay
from lora_host.placing import PackPart, PackTask, Range, Scratch
from lora_sdk.loading.packing import pack_rows
from lora_sdk.loading.weights import Loader
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.half import to_half
from lora_sdk.plan.banks import MatrixPlacement
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.tensors import MatrixSpec
from tests.oracle.blocks import pack_blocks
from tests.variants import variant, write_checkpoint

OVERLAY = load_overlay("lora_f_u280")
BLOCK = abi.BLOCK_BYTES_FP16


def random_part(kind: str, axes: str, k: int, n: int, seed: int = 0) -> PackPart:
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((k, n) if axes == "io" else (n, k)).astype(np.float32)
    if kind == "F16":
        data = data.astype(np.float16)  # type: ignore[assignment]
    return PackPart(f"w{seed}", data, kind, axes, 0, n)


def whole(task: PackTask) -> np.ndarray:
    halves = [to_half(p.data, p.kind, p.name) for p in task.parts]
    columns = [h if p.axes == "io" else h.T for h, p in zip(halves, task.parts, strict=True)]
    return np.concatenate(columns, axis=1)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("axes", ["io", "oi"])
@pytest.mark.parametrize(("banks", "merge", "start"), [(32, 1, 0), (5, 3, 7), (2, 4, 1), (1, 2, 0)])
def test_blocks_lie_where_the_formula_says(
    axes: str, banks: int, merge: int, start: int, threads: int
) -> None:
    """Against MatrixPlacement.address, in two pieces, and the board's own sums agree."""
    k, n = 300, 2500  # several buffers' worth, neither a multiple of the block
    parts = (random_part("F16", axes, k, 1111, 1), random_part("F32", axes, k, 1389, 2))
    tiles = -(-n // abi.BLOCK_N)
    first = PackTask(0, parts, k, n, 0, 50, 0, 4096, banks, merge, start)
    second = replace(first, first=50, count=tiles - 50)
    spec = MatrixSpec("w", None, k, (), None)
    placed = MatrixPlacement(spec, 0, banks, merge, start, 4096 // abi.LINE_BYTES, False)
    expected = pack_blocks(whole(first))
    with Cluster.open(1, overlay=OVERLAY) as cluster:
        for bank in (*range(banks), OVERLAY.control_bank):
            cluster.reserve(0, bank, 16 << 20)
        ranges = cluster.place([first, second], Scratch(threads))
        for number, block in enumerate(expected):
            bank, offset = placed.address(number)
            assert cluster.read(0, bank, offset, BLOCK) == block.tobytes(), number
        padded = -(-len(expected) // merge) * merge
        for number in range(len(expected), padded):
            bank, offset = placed.address(number)
            assert not any(cluster.read(0, bank, offset, BLOCK)), number
        assert sum(r.bytes for r in ranges) == padded * BLOCK
        assert len(ranges) <= banks
        for r in ranges:
            assert cluster.checksum(r.board, r.bank, r.offset, r.bytes) == r.crc


def test_rows_of_a_table_and_a_vector() -> None:
    part = random_part("F32", "io", 70, 45)
    cut = replace(part, first=3, count=40)
    table = PackTask(0, (cut,), 70, 40, 10, 60, 32, 640, row_bytes=128)
    vector = PackPart("b", np.arange(33, dtype=np.float16), "F16", "io", 0, 33)
    line = PackTask(0, (vector, vector), 1, 66, 0, 1, 32, 1 << 16, row_bytes=192)
    with Cluster.open(1, overlay=OVERLAY) as cluster:
        cluster.reserve(0, 32, 1 << 20)
        cluster.write(0, 32, 0, b"\xff" * (1 << 20))
        ranges = cluster.place([table, line], Scratch(2))
        half = to_half(part.data, "F32", "w")[10:, 3:43]
        begin = 640 + 10 * 128
        assert cluster.read(0, 32, begin, 60 * 128) == pack_rows(half, 128).tobytes()
        both = np.concatenate([vector.data, vector.data])[None]
        assert cluster.read(0, 32, 1 << 16, 192) == pack_rows(both, 192).tobytes()
        assert [(r.offset, r.bytes) for r in ranges] == [(begin, 60 * 128), (1 << 16, 192)]
        assert cluster.read(0, 32, begin - 1, 1) == b"\xff"


@pytest.mark.parametrize(("first", "others"), [(3, 250), (250, 3)])
def test_of_several_bad_weights_the_first_is_named_whatever_the_threads(
    first: int, others: int
) -> None:
    """Whether it is found early in its job or after those of later jobs."""
    parts = []
    for index in range(6):
        part = random_part("F16", "io", 256, 512, index)
        if index >= 2:
            part.data[first if index == 2 else others, 31] = np.inf
        parts.append(part)
    tasks = [PackTask(0, (p,), 256, 512, 0, 16, 0, i << 20, 4) for i, p in enumerate(parts)]
    with Cluster.open(1, overlay=OVERLAY) as cluster:
        for bank in range(4):
            cluster.reserve(0, bank, 16 << 20)
        for threads in (1, *[4] * 20):
            with pytest.raises(ModelError, match=rf"^w2: weight \[{first}, 31\] is inf"):
                cluster.place(tasks, Scratch(threads))


def test_a_bad_weight_is_named_though_another_thread_met_a_later_one_before() -> None:
    """Two threads: one has five jobs, the last of them bad, the other one five bad jobs."""
    good = [random_part("F16", "io", 256, 8192, index) for index in range(2)]
    bad = [random_part("F16", "io", 256, 32, index) for index in range(2, 8)]
    for part in bad:
        part.data[7, 31] = np.inf
    parts = [*good, *bad]
    tasks = [
        PackTask(0, (p,), 256, p.count, 0, p.count // 32, 0, i << 22) for i, p in enumerate(parts)
    ]
    with Cluster.open(1, overlay=OVERLAY) as cluster:
        cluster.reserve(0, 0, 48 << 20)
        for _ in range(20):
            with pytest.raises(ModelError, match=r"^w2: weight \[7, 31\] is inf"):
                cluster.place(tasks, Scratch(2))


def test_what_does_not_fit_is_refused() -> None:
    task = PackTask(0, (random_part("F16", "io", 256, 512),), 256, 512, 0, 16, 0, 0, 4)
    with Cluster.open(1, overlay=OVERLAY) as cluster:
        for bank in range(4):
            cluster.reserve(0, bank, 8 * BLOCK)
        cluster.place([task], Scratch(1))
        with pytest.raises(PlacementError, match="asked for"):
            cluster.place([replace(task, offset=BLOCK)], Scratch(2))
        for wrong in ({"count": 17}, {"bank_count": 0}, {"merge": 0}, {"offset": 8}, {"n": 513}):
            with pytest.raises(RequestError):
                cluster.place([replace(task, **wrong)], Scratch(1))
        with pytest.raises(RequestError, match="board 3"):
            cluster.place([replace(task, board=3)], Scratch(1))


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("name", ["gpt2", "opt", "llama_gqa_bias"])
def test_a_whole_model_is_written_without_a_gap(tmp_path: Path, name: str, boards: int) -> None:
    """All of placed_bytes, no byte twice, in pieces of any size."""
    folder = write_checkpoint(variant(name), tmp_path / name)
    config = load_config(folder)
    plan = make_plan(config, OVERLAY, OVERLAY.board, boards, sequences=1)
    with Cluster.open(boards, overlay=OVERLAY) as cluster:
        for board in plan.boards:
            for bank, size in board.arenas.items():
                cluster.reserve(board.board, bank, size)
        loader = Loader(cluster, plan, Checkpoint.open(folder, config))
        loader.load()
        loader.check()
        total = sum(board.placed_bytes for board in plan.boards)
        assert sum(r.bytes for r in loader.ranges) == total
        spans = sorted((r.board, r.bank, r.offset, r.offset + r.bytes) for r in loader.ranges)
        for before, after in pairwise(spans):
            assert before[:2] != after[:2] or before[3] <= after[2]
        _check_damage(cluster, loader, loader.ranges[-1])


def _check_damage(cluster: Cluster, loader: Loader, last: Range) -> None:
    """A flipped bit is found by the board's own sum."""
    at = last.offset + last.bytes // 2
    byte = cluster.read(last.board, last.bank, at, 1)
    cluster.write(last.board, last.bank, at, bytes([byte[0] ^ 4]))
    with pytest.raises(Exception, match="checksum"):
        loader.check()


PEAK = """
import json, resource, sys
from lora_sdk.engine.engine import Engine
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with Engine(sys.argv[1], boards=int(sys.argv[2]), context=64, max_sequences=1) as engine:
    placed = sum(board.placed_bytes for board in engine.plan.boards)
    print(json.dumps([peak(), placed]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "boards"), [("F16", 1), ("F32", 2), ("F16", 4)])
def test_peak_memory_is_little_more_than_what_is_placed(
    tmp_path: Path, dtype: str, boards: int
) -> None:
    from lora_lab.synth.folder import synthesize

    synthesize("gpt2-345m", tmp_path / "model", dtype=dtype)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "model"), str(boards)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    peak, placed = json.loads(said)
    assert peak <= 1.15 * placed, f"{peak / 1e6:.0f} MB resident, {placed / 1e6:.0f} MB placed"
