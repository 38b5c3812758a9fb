"""Routing of the native and the NumPy kernels against a spelling of the rule, one value after the
other (docs/numbers.md, 3.16)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.numerics import exp32
from tests.unit import kernel_rig
from tests.unit.kernel_rig import ONCHIP, TABLES, Rig
from tests.unit.test_kernels_native import run_native

X, Y, STRIDE, LINE = 64, 1 << 19, 1 << 13, 10
RUNNERS = {"native": run_native, "numpy": kernel_rig.numpy_runner}
CHOSEN = abi.dtype("chosen")
F = np.float32
Fields = dict[str, Any]


def bits(value: float) -> int:
    return int(F(value).view(np.uint32))


def run(kernels: str, logits: np.ndarray, bias: np.ndarray, fields: Fields) -> tuple[int, Any]:
    """The status, and [rows, chosen] of struct lora_chosen."""
    rig = Rig(runner=RUNNERS[kernels], bank_bytes=1 << 20)
    rows, columns = logits.shape
    rig.rows(rows)
    rig.place_rows(ONCHIP, X, STRIDE, logits)
    rig.place(TABLES, LINE * 64, bias)
    wanted = {"op": abi.VEC_ROUTE_SIGMOID, "columns": columns, "x_offset": X, "x_stride": STRIDE,
              "y_bank": ONCHIP, "y_offset": Y, "y_stride": STRIDE, "a_bank": TABLES,
              "a_line": LINE, **fields}  # fmt: skip
    found = rig.run("vector", **wanted)
    if found.status:
        return found.status, None
    return 0, rig.read_rows(ONCHIP, Y, STRIDE, (rows, fields["extra"]), CHOSEN)


def by_rule(
    x: np.ndarray, bias: np.ndarray, groups: int, taken: int, k: int, divided: int, factor: float
) -> list[tuple[np.float32, int]]:
    def largest(values: Any, count: int) -> list[int]:
        known = [-np.inf if np.isnan(v) else v for v in values]
        return sorted(sorted(range(len(known)), key=lambda i: (-known[i], i))[:count])

    s = [F(1) / (F(1) + exp32(-F(one))) for one in x]
    t = [a + b for a, b in zip(s, bias, strict=True)]
    each, inside = len(x) // groups, list(range(len(x)))
    if groups > 1:
        sums = []
        for j in range(groups):
            own = [-np.inf if np.isnan(v) else v for v in t[j * each : (j + 1) * each]]
            a, b = sorted(own)[-1], sorted(own)[-2]
            sums.append(F(a) + F(b))
        open_groups = largest(sums, taken)
        inside = [e for e in inside if e // each in open_groups]
    chosen = [inside[i] for i in largest([t[e] for e in inside], k)]
    total = F(0)
    for e in chosen:
        total = total + s[e]
    total = total + F([0, 1e-20, 1e-6][divided])
    return [((s[e] / total if divided else s[e]) * F(factor), e) for e in chosen]


CASES = [(16, 4, 2, 5), (12, 6, 3, 6), (7, 1, 1, 7), (256, 8, 4, 8), (1024, 16, 16, 32)]


@pytest.mark.parametrize("kernels", RUNNERS)
@pytest.mark.parametrize(("columns", "groups", "taken", "k"), CASES)
@pytest.mark.parametrize("coarse", [False, True])
def test_the_rule(
    columns: int, groups: int, taken: int, k: int, coarse: bool, kernels: str
) -> None:
    """Ties where `coarse`: few different logits and biases, and some that are not finite."""
    draw = np.random.default_rng(columns + coarse)
    logits = draw.normal(0, 3, (8, columns)).astype(F)
    bias = draw.normal(0, 0.3, columns).astype(F)
    if coarse:
        logits = np.rint(logits / 4).astype(F)
        logits[draw.random(logits.shape) < 0.2] = np.nan
        logits[draw.random(logits.shape) < 0.1] = -np.inf
        logits[1] = -200  # every sigmoid is 0
        bias = np.rint(bias * 2).astype(F)
        bias[draw.random(columns) < 0.1] = np.inf
        bias[draw.random(columns) < 0.1] = -np.inf
    for divided, factor in ((1, 2.5), (0, 1.0), (2, 0.5)):
        fields = {"b_line": groups | taken << 16, "extra": k, "first": divided,
                  "scalar": bits(factor)}  # fmt: skip
        with np.errstate(all="ignore"):
            status, found = run(kernels, logits, bias, fields)
            assert status == 0
            for row, own in zip(logits, found, strict=True):
                want = by_rule(row, bias, groups, taken, k, divided, factor)
                assert own["expert"].tolist() == [e for _, e in want]
                weights = np.array([w for w, _ in want], F)
                assert np.array_equal(own["weight"], weights, equal_nan=True)


WRONG = [
    {"b_line": 0}, {"b_line": 5 | 1 << 16}, {"b_line": 12 | 12 << 16}, {"b_line": 4 | 5 << 16},
    {"b_line": 4}, {"b_line": 4 | 1 << 16}, {"b_line": 0xFFFFFFFF}, {"first": 3},
    {"scalar": 0}, {"scalar": bits(np.inf)}, {"scalar": bits(np.nan)}, {"scalar": bits(-1)},
    {"extra": 0}, {"extra": 33}, {"a_bank": abi.NO_BANK}, {"a_line": 1 << 30},
]  # fmt: skip


@pytest.mark.parametrize("fields", WRONG, ids=str)
def test_native_kernels_refuse_what_firmware_should_have(fields: Fields) -> None:
    good = {"b_line": 4 | 2 << 16, "extra": 4, "first": 1, "scalar": bits(1)}
    logits, bias = np.zeros((2, 12), F), np.zeros(12, F)
    assert run("native", logits, bias, good)[0] == 0
    assert run("native", logits, bias, {**good, **fields})[0] != 0


def softmax_by_rule(
    x: np.ndarray, groups: int, taken: int, k: int, over_chosen: bool, factor: float
) -> list[tuple[np.float32, int]]:
    known = [-np.inf if np.isnan(v) else float(v) for v in x]
    each = len(x) // groups
    best = [max(known[j * each : (j + 1) * each]) for j in range(groups)]
    open_groups = sorted(range(groups), key=lambda j: (-best[j], j))[:taken]
    inside = [e for e in range(len(x)) if e // each in open_groups]
    chosen = sorted(sorted(inside, key=lambda e: (-known[e], e))[:k])
    p = [exp32(F(one) - F(max(known))) for one in x]
    total = F(0)
    for e in chosen if over_chosen else range(len(x)):
        total = total + p[e]
    return [(p[e] / total * F(factor), e) for e in chosen]


@pytest.mark.parametrize("kernels", RUNNERS)
@pytest.mark.parametrize(("columns", "groups", "taken", "k"), [*CASES, (8, 8, 3, 2)])
@pytest.mark.parametrize("coarse", [False, True])
def test_softmax_in_groups(
    columns: int, groups: int, taken: int, k: int, coarse: bool, kernels: str
) -> None:
    draw = np.random.default_rng(columns + coarse)
    logits = draw.normal(0, 3, (8, columns)).astype(F)
    if coarse:
        logits = np.rint(logits / 4).astype(F)
        logits[draw.random(logits.shape) < 0.1] = -np.inf
        logits[draw.random(logits.shape) < 0.1] = np.nan
        logits[:, -1] = 1
    for op, factor in ((abi.VEC_ROUTE, 2.5), (abi.VEC_ROUTE_CHOSEN, 16.0)):
        fields = {"op": op, "b_line": groups | taken << 16, "extra": k, "scalar": bits(factor)}
        with np.errstate(all="ignore"):
            status, found = run(kernels, logits, np.zeros(columns, F), fields)
            assert status == 0
            for row, own in zip(logits, found, strict=True):
                want = softmax_by_rule(row, groups, taken, k, op == abi.VEC_ROUTE_CHOSEN, factor)
                assert own["expert"].tolist() == [e for _, e in want]
                weights = np.array([w for w, _ in want], F)
                assert np.array_equal(own["weight"], weights, equal_nan=True)


@pytest.mark.parametrize(
    "fields",
    [{"b_line": 5 | 1 << 16}, {"b_line": 4 | 5 << 16}, {"b_line": 4}, {"b_line": 1 << 16},
     {"b_line": 4 | 1 << 16}, {"scalar": bits(np.inf)}, {"scalar": bits(-1)}],
    ids=str,
)  # fmt: skip
def test_groups_of_a_softmax_that_do_not_fit_are_refused(fields: Fields) -> None:
    good = {"op": abi.VEC_ROUTE, "b_line": 4 | 2 << 16, "extra": 4, "scalar": bits(2)}
    logits, bias = np.zeros((2, 12), F), np.zeros(12, F)
    assert run("native", logits, bias, good)[0] == 0
    assert run("native", logits, bias, {**good, **fields})[0] != 0
