"""What one step is made of: rows, KV operations, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lora_host import abi


@dataclass(frozen=True)
class Row:
    """One row of a step. `position` is the parent's + 1, or the first free one of the sequence
    where `parent` is -1 (its last committed position); `slot` and `parent` are scratch slots.
    `vector`, FP16 [embed_columns], takes the place of the embedding of `token`."""

    sequence: int
    position: int
    token: int
    slot: int
    parent: int = -1
    adapter: int = -1
    want_logits: bool = False
    want_argmax: bool = False
    want_hidden: bool = False
    vector: npt.NDArray[np.float16] | None = None

    @property
    def selected(self) -> bool:
        """Whether lm_head works on this row."""
        return self.want_logits or self.want_argmax


@dataclass(frozen=True)
class KvOp:
    """One change of the boards' page tables or cache, done in order before the step's rows."""

    kind: int
    sequence: int
    a: int
    b: int
    c: int

    @classmethod
    def table(cls, sequence: int, tile: int, page: int) -> KvOp:
        """Tile `tile` (32 positions) of the sequence lies in `page` from now on."""
        return cls(abi.KV_TABLE, sequence, tile, page, 0)

    @classmethod
    def length(cls, sequence: int, length: int) -> KvOp:
        """The sequence has `length` committed positions; its uncommitted rows are dropped."""
        return cls(abi.KV_LENGTH, sequence, length, 0, 0)

    @classmethod
    def copy(cls, source_page: int, target_page: int, positions: int) -> KvOp:
        """The first `positions` positions of one page go to another, all layers and heads."""
        return cls(abi.KV_COPY, 0, source_page, target_page, positions)

    @classmethod
    def commit(cls, sequence: int, length: int, path_index: int, count: int) -> KvOp:
        """`count` slots at `path_index` of the step's path become positions from `length` on; the
        sequence's other uncommitted rows are dropped. `count` may be 0."""
        return cls(abi.KV_COMMIT, sequence, length, path_index, count)


@dataclass(frozen=True)
class StepResult:
    """What a step returned. Where V is the vocabulary, d the model's width:

    `step` the step's number; `rows` the selected rows (want_logits or want_argmax) by their index
    in the step; `logits` float32 [len(rows), V] where any row wants them; `argmax` (float32
    values, uint32 ids), one a selected row, where any row wants it; `hidden` float16
    [taps, len(hidden_rows), d] of the rows `hidden_rows` that want it; `completions` one record of
    `struct lora_completion` a board, by board."""

    step: int
    rows: tuple[int, ...]
    logits: npt.NDArray[np.float32] | None
    argmax: tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]] | None
    hidden: npt.NDArray[np.float16] | None
    hidden_rows: tuple[int, ...]
    completions: npt.NDArray[np.void]


def selected_rows(rows: Sequence[Row]) -> tuple[int, ...]:
    """Indices of the rows that lm_head works on, in row order."""
    return tuple(index for index, row in enumerate(rows) if row.selected)
