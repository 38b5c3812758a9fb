"""Where a canonical tensor lies in a checkpoint's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The file's axes: "io" is [input, output], "oi" [output, input], "table" [rows, columns].
Layout = Literal["io", "oi", "vector", "table"]


@dataclass(frozen=True)
class Source:
    """`tensor` is the file's name without the model's prefix, `file_shape` its whole shape; the
    canonical tensor is outputs `first` .. `first + count - 1` of it."""

    tensor: str
    layout: Layout
    file_shape: tuple[int, ...]
    first: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The canonical shape: [input, output], [n] or [rows, columns]."""
        if self.layout == "vector":
            return (self.count,)
        if self.layout == "table":
            return self.file_shape
        inputs = self.file_shape[0] if self.layout == "io" else self.file_shape[1]
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
