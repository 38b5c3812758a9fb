"""A canonical tensor as its file holds it, for packing without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """Outputs first .. first+count-1 of `array`, the file's whole tensor of type `kind` ("F32",
    "BF16" as uint16, "F16"): [inputs, outputs] or a table or vector where `axes` is "io",
    [outputs, inputs] where "oi". `label` is the file's name of it."""

    label: str
    array: NDArray[Any]
    kind: str
    axes: Literal["io", "oi"]
    first: int
    count: int
