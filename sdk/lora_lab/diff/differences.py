"""Where two set-ups of boards first differ: step, row, operation, column, and both values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_host.errors import RequestError
from lora_lab.diff.outputs import Outputs
from lora_sdk.model.operations import Matmul, Norm, NormHeads, Operation, target, width

Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """The first operation, in the order of the step's data, whose values differ. `row`: of the
    step; `position`: of the sequence. `axis`: what its columns consist of, `column` among them.
    `count` of `total` values of the operation differ in this step. Values as FP16 or FP32."""

    step: int
    row: int
    position: int
    layer: int | None
    operation: str
    axis: str
    column: int
    expected: float
    found: float
    expected_bits: str
    found_bits: str
    count: int
    total: int


@dataclass(frozen=True)
class Compared:
    """What was run: `tokens` in `steps` steps, and the first difference, None without one."""

    steps: int
    tokens: int
    difference: Difference | None


def compare(
    expected: Outputs,
    found: Outputs,
    prompt: Sequence[int],
    more: int = 0,
    tolerance: float = 0.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compared:
    """Run a prompt and `more` tokens, which are the most likely ones of `expected`, on both. Values
    are equal if their bits are, or differ by at most `tolerance` times the row's largest one.
    RequestError: other operations, or a context that the tokens exceed."""
    _check_alike(expected, found)
    total = len(prompt) + more
    context = min(expected.context, found.context)
    if total > context:
        raise RequestError(f"{total} tokens to compare; the contexts take {context}")
    size = min(expected.row_limit, found.row_limit)
    tokens, done, steps = list(prompt), 0, 0
    while done < total:
        rows = tokens[done : done + size]
        wanted, got = expected.step(rows), found.step(rows)
        if _unequal(wanted, got, tolerance).any():
            first = _first(expected, found, steps, done, tolerance)
            return Compared(steps + 1, done + len(rows), first)
        done, steps = done + len(rows), steps + 1
        progress(done, total)
        if done == len(tokens):
            tokens.append(int(np.argmax(wanted[-1])))
    return Compared(steps, done, None)


def _check_alike(expected: Outputs, found: Outputs) -> None:
    ours, theirs = ([_name(one) for one in each.operations] for each in (expected, found))
    if ours != theirs or expected.config.vocabulary != found.config.vocabulary:
        raise RequestError(
            f"the models have other operations ({len(ours)} and {len(theirs)}) or vocabularies; "
            "expected two forms of one model"
        )


def _first(
    expected: Outputs, found: Outputs, step: int, position: int, tolerance: float
) -> Difference:
    """The operation of the last step. The residual stream is compared behind each layer, then what
    the operations of the first layer that differs have written."""
    begin = 0
    for end in _ends(expected.operations):
        if _differs(expected, found, end, tolerance) is not None:
            break
        begin = end
    for count in range(begin + 1, len(expected.operations) + 1):
        values = _differs(expected, found, count, tolerance)
        if values is not None:
            return _described(expected, count, *values, tolerance, step, position)
    raise RequestError(
        f"step {step}: logits differ, but no operation does when the step is run again: the boards "
        "are not deterministic; see lora validate"
    )


def _ends(operations: Sequence[Operation]) -> Iterator[int]:
    """Operations before the layers, up to each layer's end, and all that write a buffer."""
    for index, (one, following) in enumerate(pairwise(operations)):
        if one.layer != following.layer:
            yield index + 1
    yield max(i for i, one in enumerate(operations) if target(one) is not None) + 1


def _differs(
    expected: Outputs, found: Outputs, count: int, tolerance: float
) -> tuple[Values, Values] | None:
    """Both values of what an operation writes, if they differ."""
    wanted = expected.written(count)
    got = found.written(count)
    if wanted is None or got is None or not _unequal(wanted, got, tolerance).any():
        return None
    return wanted, got


def _unequal(wanted: Values, got: Values, tolerance: float) -> npt.NDArray[np.bool_]:
    bits = f"u{wanted.dtype.itemsize}"
    unequal: npt.NDArray[np.bool_] = wanted.view(bits) != got.view(bits)
    if not tolerance or not unequal.any():
        return unequal
    largest = np.abs(wanted.astype(np.float64)).max(axis=1, keepdims=True)
    near: npt.NDArray[np.bool_] = np.abs(wanted.astype(np.float64) - got) <= tolerance * largest
    return unequal & ~near


def _described(
    expected: Outputs,
    count: int,
    wanted: Values,
    got: Values,
    tolerance: float,
    step: int,
    position: int,
) -> Difference:
    operation = expected.operations[count - 1]
    unequal = _unequal(wanted, got, tolerance)
    row, column = (int(one[0]) for one in np.nonzero(unequal))
    buffer = target(operation)
    assert buffer is not None
    axis, within = buffer.axes[0], column
    for axis in buffer.axes:
        if within < width(expected.config, axis):
            break
        within -= width(expected.config, axis)
    both = wanted[row, column], got[row, column]
    return Difference(
        step=step,
        row=row,
        position=position + row,
        layer=operation.layer,
        operation=_name(operation),
        axis=axis,
        column=within,
        expected=float(both[0]),
        found=float(both[1]),
        expected_bits=_bits(both[0]),
        found_bits=_bits(both[1]),
        count=int(unequal.sum()),
        total=unequal.size,
    )


def _bits(value: Any) -> str:
    """Of an FP16 or FP32 number, as 0x1234."""
    digits = 2 * value.itemsize
    return f"0x{int(value.view(f'u{value.itemsize}')):0{digits}x}"


def _name(operation: Operation) -> str:
    """Its kind, and within a layer which of that kind."""
    kind = "".join(f" {c.lower()}" if c.isupper() else c for c in type(operation).__name__).strip()
    if isinstance(operation, (Matmul, Norm, NormHeads)):
        return f"{kind} {operation.name.rpartition('.')[2]}"
    return kind
