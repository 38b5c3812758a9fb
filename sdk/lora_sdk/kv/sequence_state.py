"""What boards hold of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lora_sdk.kv.kv_arrays import KvArrays


@dataclass(frozen=True)
class Uncommitted:
    """A row whose K and V are in a scratch slot. `vector`: its input, if it was no token."""

    token: int
    position: int
    parent: int
    vector: NDArray[np.float16] | None = None


@dataclass(frozen=True)
class SequenceState:
    """What the boards hold of a sequence: its pages in logical order, its committed tokens, by
    position the inputs that were no tokens, and its rows in scratch slots, parents first.
    `imported`: K and V of its first positions, which no row computed."""

    sequence: int
    pages: tuple[int, ...]
    tokens: tuple[int, ...]
    vectors: dict[int, NDArray[np.float16]]
    rows: dict[int, Uncommitted]
    imported: KvArrays | None = None
