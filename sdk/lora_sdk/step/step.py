"""Parts of a step: rows, KV operations and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Row:
    """One row of a step. `slot` and `parent` are scratch slots; `parent` -1 is the last committed
    position. `position` is the parent's + 1. `vector`, FP16 [embed_columns], replaces the embedding
    of `token`. `want_final`: the input of lm_head."""

    sequence: int
    position: int
    token: int
    slot: int
    parent: int = -1
    adapter: int = -1
    want_logits: bool = False
    want_argmax: bool = False
    want_hidden: bool = False
    want_final: bool = False
    vector: npt.NDArray[np.float16] | None = None

    @property
    def selected(self) -> bool:
        """Whether lm_head works on this row."""
        return self.want_logits or self.want_argmax or self.want_final


@dataclass(frozen=True)
class StepResult:
    """Results of a step. V is the vocabulary, d the model's width.

    `step`: the step's number. `rows`: indices in the step of the selected rows (want_logits,
    want_argmax or want_final). `logits`: float32 [len(rows), V], if any row requests them.
    `argmax`: (float32 values, uint32 ids), one per selected row, if any row requests it. `hidden`:
    float16 [taps, len(hidden_rows), d] of the rows `hidden_rows` that request it. `final`: float16
    [len(rows), embed_dim], the inputs of lm_head, if any row requests them. `completions`: one
    `struct lora_completion` per board."""

    step: int
    rows: tuple[int, ...]
    logits: npt.NDArray[np.float32] | None
    argmax: tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]] | None
    hidden: npt.NDArray[np.float16] | None
    hidden_rows: tuple[int, ...]
    completions: npt.NDArray[np.void]
    final: npt.NDArray[np.float16] | None = None


def selected_rows(rows: Sequence[Row]) -> tuple[int, ...]:
    """Indices of the rows that lm_head works on, in row order."""
    return tuple([index for index, row in enumerate(rows) if row.selected])


def joined(results: Sequence[StepResult], sizes: Sequence[int]) -> StepResult:
    """The result of one step whose rows ran as several, of `sizes` rows each. Logits, argmax and
    final states of rows that did not request them are 0 if others did."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    each = list(zip(starts, results, strict=True))
    hidden = [one.hidden for one in results if one.hidden is not None]
    values = _joined([(None if r.argmax is None else r.argmax[0], len(r.rows)) for r in results])
    tokens = _joined([(None if r.argmax is None else r.argmax[1], len(r.rows)) for r in results])
    return StepResult(
        step=results[-1].step,
        rows=tuple(start + row for start, one in each for row in one.rows),
        logits=_joined([(one.logits, len(one.rows)) for one in results]),
        argmax=None if values is None or tokens is None else (values, tokens),
        hidden=np.concatenate(hidden, axis=1) if hidden else None,
        hidden_rows=tuple(start + row for start, one in each for row in one.hidden_rows),
        completions=results[-1].completions,
        final=_joined([(one.final, len(one.rows)) for one in results]),
    )


def _joined(parts: Sequence[tuple[npt.NDArray[Any] | None, int]]) -> npt.NDArray[Any] | None:
    """Arrays of these numbers of rows one after another; None if all are."""
    known = next((array for array, _ in parts if array is not None), None)
    if known is None:
        return None
    return np.concatenate(
        [
            np.zeros((count, *known.shape[1:]), known.dtype) if array is None else array
            for array, count in parts
        ]
    )
