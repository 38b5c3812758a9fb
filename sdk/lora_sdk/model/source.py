"""Where a canonical tensor lies in a checkpoint's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

# The file's axes: "io" is [input, output], "oi" [output, input], "table" [rows, columns].
Layout = Literal["io", "oi", "vector", "table"]


@dataclass(frozen=True)
class Source:
    """`tensor` is the file's name, without the model's prefix where it has that (`prefixed`),
    `file_shape` its whole shape; of several matrices or vectors one behind the other the outputs
    are numbered through. The canonical tensor is outputs `first` .. `first + count - 1` of it, or,
    of a matrix or vector, the outputs that `order` names, in that order. A vector that is `wide` is
    FP32 on boards, too."""

    tensor: str
    layout: Layout
    file_shape: tuple[int, ...]
    first: int
    count: int
    order: tuple[int, ...] | None = None
    prefixed: bool = True
    wide: bool = False

    def full_name(self, prefix: str) -> str:
        """The file's name of the tensor."""
        return prefix + self.tensor if self.prefixed else self.tensor

    @property
    def outputs(self) -> NDArray[np.intp]:
        """The file's output of each canonical one."""
        if self.order is None:
            return np.arange(self.first, self.first + self.count)
        return np.array(self.order, np.intp)

    @property
    def module_outputs(self) -> int:
        """Outputs of the whole tensor of the file."""
        if self.layout == "oi":
            return prod(self.file_shape[:-1])
        if self.layout == "vector":
            return prod(self.file_shape)
        return prod(self.file_shape[:-2]) * self.file_shape[-1]

    @property
    def number(self) -> int:
        """Which of several [input, output] one behind the other it lies in."""
        return self.first // self.file_shape[-1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The canonical shape: [input, output], [n] or [rows, columns]."""
        if self.layout == "vector":
            return (self.count,)
        if self.layout == "table":
            return self.file_shape
        inputs = self.file_shape[-2 if self.layout == "io" else -1]
        return (inputs, self.count)


def linear(tensor: str, inputs: int, outputs: int) -> Source:
    """An [output, input] weight, as torch's Linear stores it."""
    return Source(tensor, "oi", (outputs, inputs), 0, outputs)


def vector(tensor: str, count: int) -> Source:
    """A bias or norm parameter."""
    return Source(tensor, "vector", (count,), 0, count)


def table(tensor: str, rows: int, columns: int) -> Source:
    """An embedding."""
    return Source(tensor, "table", (rows, columns), 0, columns)


def reordered(source: Source, head: Sequence[int]) -> Source:
    """`source` with the outputs of each head in the order `head`: canonical output c of a head is
    the file's output head[c] of it."""
    starts = range(source.first, source.first + source.count, len(head))
    order = tuple(start + column for start in starts for column in head)
    return replace(source, order=order)


def head(tensor: str, inputs: int, outputs: int, tied: bool, bias: bool) -> dict[str, Source]:
    """lm_head in the module `tensor`, without the model's prefix: its weights only if they are
    not tied to the token table."""
    found = biased("lm_head", tensor, inputs, outputs, bias)
    if tied:
        del found["lm_head"]
    return {name: replace(source, prefixed=False) for name, source in found.items()}


def norm(name: str, tensor: str, count: int, beta: bool = True) -> dict[str, Source]:
    """`name`.gamma and `name`.beta of a norm of `count` columns."""
    found = {f"{name}.gamma": vector(f"{tensor}.weight", count)}
    if beta:
        found[f"{name}.beta"] = vector(f"{tensor}.bias", count)
    return found


def biased(name: str, tensor: str, inputs: int, outputs: int, bias: bool) -> dict[str, Source]:
    """`name` and, where `bias`, `name`.bias of a Linear."""
    found = {name: linear(f"{tensor}.weight", inputs, outputs)}
    if bias:
        found[f"{name}.bias"] = vector(f"{tensor}.bias", outputs)
    return found
