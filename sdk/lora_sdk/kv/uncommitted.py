"""A row of a sequence that is not committed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Uncommitted:
    """A row whose K and V are in a scratch slot. `vector`: its input, if it was no token."""

    token: int
    position: int
    parent: int
    vector: NDArray[np.float16] | None = None
