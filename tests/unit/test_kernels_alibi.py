"""ALiBi's slopes and windows in attention against a scalar spelling, by the NumPy model and by the
native kernels."""

from __future__ import annotations

import numpy as np
import pytest

from lora_host import abi
from tests.unit.kernel_rig import Rig, Runner, numpy_runner, refusing_runner
from tests.unit.test_kernels_attention import (
    MAX_SCRATCH,
    Attention,
    random_kv,
    scalar_attention,
)
from tests.unit.test_kernels_native import run_native

RUNNERS = pytest.mark.parametrize("runner", [numpy_runner, run_native], ids=["numpy", "native"])
SLOPES = [(0.5, 0.25), (0.03, 0.25)]


def score_bias(kind: int, slope: float, factor: float, seen: int) -> list[np.float32]:
    if kind == abi.SLOPE_DISTANCE:
        return [np.float32(slope) * np.float32(p - (seen - 1)) for p in range(seen)]
    rounded = [nearest_bf16(np.float32(slope) * nearest_bf16(np.float32(p))) for p in range(seen)]
    return [value * np.float32(factor) for value in rounded]


def nearest_bf16(x: np.float32) -> np.float32:
    kept = float(x).hex() if x else "0x0p+0"
    exponent = int(kept.partition("p")[2])
    return np.float32(round(float(x) / 2.0 ** (exponent - 7)) * 2.0 ** (exponent - 7))


@RUNNERS
@pytest.mark.parametrize(
    ("kind", "window"),
    [(abi.SLOPE_DISTANCE, 0), (abi.SLOPE_DISTANCE, 7), (abi.SLOPE_BF16_POSITION, 40)],
)
def test_slopes_and_windows_of_a_tree(runner: Runner, kind: int, window: int) -> None:
    """Positions are the path's, not the slots'; what lies before the window may be anything."""
    head_dim, committed = 8, 70
    tool = Attention(Rig(runner=runner), head_dim, kv_heads=1)
    k, v = random_kv(1, committed, 1, head_dim)
    sk, sv = random_kv(3, MAX_SCRATCH, 1, head_dim)
    if window:  # no row sees these
        k[: committed + 1 - window], v[: committed + 1 - window] = np.nan, np.inf
    tool.commit(1, k, v)
    tree = {5: (-1, 70), 40: (5, 71), 2: (5, 71), 33: (40, 72)}
    for slot, (parent, position) in tree.items():
        tool.slot(slot, 1, parent, position, sk[slot], sv[slot])
    for i, slot in enumerate(tree):
        tool.row(i, 1, slot)
    tool.rig.rows(len(tree))
    q = random_kv(4, len(tree), 2, head_dim)[0]
    fields = {**tool.slopes(SLOPES), "slope_kind": kind, "window": window}
    scale = np.float32(head_dim**-0.5)
    got, found = tool.run(q, scale, group=2, q_first=0, kv_first=0, **fields)
    assert found.nonfinite_count == 0
    paths = {5: [5], 40: [5, 40], 2: [5, 2], 33: [5, 40, 33]}
    for i, slot in enumerate(tree):
        keys = np.concatenate([k[:, 0], sk[paths[slot], 0]])
        values = np.concatenate([v[:, 0], sv[paths[slot], 0]])
        first = max(0, len(keys) - window) if window else 0
        for head, (slope, factor) in enumerate(SLOPES):
            added = score_bias(kind, slope, factor, len(keys))
            with np.errstate(invalid="ignore"):
                wanted = scalar_attention(q[i, head], keys, values, scale, added, first)
            assert got[i, head].tobytes() == wanted.tobytes(), (slot, head)


@pytest.mark.parametrize(
    "fields", [{"slope_kind": 4}, {"slope_kind": 1, "slope_bank": 9}], ids=["kind", "bank"]
)
def test_slopes_that_are_not_there_are_refused(fields: dict[str, int]) -> None:
    tool = Attention(Rig(runner=run_native), 32, kv_heads=1)
    k, v = random_kv(1, 2, 1, 32)
    tool.commit(0, k, v)
    tool.slot(0, 0, -1, 2, k[0], v[0])
    tool.row(0, 0, 0)
    tool.rig.rows(1)
    command = {"head_dim": 32, "kv_layer": 1, "q_heads": 1, "kv_heads": 1, "group": 1,
               "q_stride": 4096, "y_offset": 1 << 18, "y_stride": 4096}  # fmt: skip
    assert tool.rig.run("attention", **command, **fields).status in {2, 4, 5, 9}
    tool.rig.runner = refusing_runner
    assert tool.rig.run("attention", **command, **fields).status
