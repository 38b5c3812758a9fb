"""A canonical tensor as its file stores it, for packing without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """Outputs first .. first+count-1 of `array`, the file's whole tensor of type `kind` ("F32",
    "BF16" as uint16, "F16"): [inputs, outputs] or a table or vector where `axes` is "io",
    [outputs, inputs] where "oi"; with `order` the outputs that it names. `label` is the file's name
    of it."""

    label: str
    array: NDArray[Any]
    kind: str
    axes: Literal["io", "oi"]
    first: int
    count: int
    order: NDArray[np.intp] | None = None

    def part(self, start: int, count: int) -> tuple[NDArray[Any], int]:
        """(array, index of the first output in it) of outputs start .. start+count-1: the file's
        own array, or with `order` a copy of these outputs."""
        if self.order is None:
            return self.array, self.first + start
        chosen = self.order[start : start + count]
        return np.take(self.array, chosen, axis=0 if self.axes == "oi" else -1), 0
