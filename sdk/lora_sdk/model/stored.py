"""A canonical tensor as its file stores it, for packing without a copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lora_host.placing import BLOCK_SOURCES, PackPart
from lora_sdk.gguf.blocks import BlockArray
from lora_sdk.model.container import Elements


@dataclass(frozen=True)
class Stored:
    """Outputs first .. first+count-1 of `array`, the file's whole tensor of type `kind` ("F32",
    "BF16" as uint16, "F16"): [inputs, outputs] or a table or vector where `axes` is "io",
    [outputs, inputs] where "oi"; with `order` the outputs that it names. `label` is the file's name
    of it."""

    label: str
    array: Elements
    kind: str
    axes: Literal["io", "oi"]
    first: int
    count: int
    order: NDArray[np.intp] | None = None

    @property
    def copied(self) -> bool:
        """Whether `part` makes a copy."""
        return self.order is not None or not isinstance(self.array, np.ndarray)

    @property
    def in_blocks(self) -> bool:
        """Whether it is a table in blocks that the packer reads as the file has them."""
        found = self.array
        return (
            self.axes == "io" and isinstance(found, BlockArray) and found.type.name in BLOCK_SOURCES
        )

    def block_part(self, start: int, count: int) -> PackPart:
        """Columns start .. start+count-1 of a table in blocks, for the packer."""
        assert isinstance(self.array, BlockArray)
        raw, kind = self.array.raw, self.array.type.name
        return PackPart(self.label, raw, kind, self.axes, self.first + start, count)

    def block_rows(self, columns: range, start: int, stop: int) -> PackPart:
        """Rows start .. stop-1 of a table in blocks as outputs of a matrix, for the packer: the
        file's own, or of some columns, which are whole blocks, a copy."""
        assert isinstance(self.array, BlockArray)
        raw, kind = self.array.raw, self.array.type
        if columns == range(self.array.shape[1]):
            return PackPart(self.label, raw, kind.name, "oi", start, stop - start)
        first, last = (at // kind.elements * kind.bytes for at in (columns.start, columns.stop))
        some = np.ascontiguousarray(raw[start:stop, first:last])
        return PackPart(self.label, some, kind.name, "oi", 0, stop - start)

    def part(self, start: int, count: int) -> tuple[NDArray[Any], int]:
        """(array, index of the first output in it) of outputs start .. start+count-1: the file's
        own array, or of blocks or with `order` a copy of these outputs."""
        if self.order is None and isinstance(self.array, np.ndarray):
            return self.array, self.first + start
        chosen = slice(self.first + start, self.first + start + count)
        index = chosen if self.order is None else self.order[start : start + count]
        if self.axes == "oi" or self.array.ndim == 1:
            return np.ascontiguousarray(self.array[index]), 0
        return np.ascontiguousarray(self.array[:, index]), 0

    def rows(self, start: int, count: int) -> Stored:
        """Rows start .. start+count-1 of a table, as a copy."""
        return replace(self, array=np.ascontiguousarray(self.array[start : start + count]))
