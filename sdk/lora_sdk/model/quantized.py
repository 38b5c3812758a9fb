"""Quantized matrices of a folder: the interface of all methods, and checked reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import Columns
from lora_sdk.model.container import RAW_TYPES
from lora_sdk.model.folder import AnyTensors
from lora_sdk.model.half import widen
from lora_sdk.model.quantization import MatrixFormat

FLOATS = tuple(RAW_TYPES)
INFINITE = 0x7C00  # FP16 bits of infinity: NaN and negative numbers have larger bits


class QuantizedMatrix(Protocol):
    """One matrix that is not FP16. Making it checks names, types and shapes of its tensors; values
    are checked when they are read."""

    format: MatrixFormat
    shape: tuple[int, int]
    """[K, N]."""
    tensors: frozenset[str]
    """Names of the file's tensors that it consists of."""

    def columns(self, start: int, stop: int) -> Columns:
        """Output columns start..stop-1 as the format's class of columns, K in the order of
        groups."""

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer, without a copy if it reads the file's own layout."""

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """FP32 scales of output columns start..stop-1; None if they are per group."""

    def permutation(self) -> NDArray[np.uint32] | None:
        """[K]: the input at each index of the group order; None if they are not permuted."""

    def input_scale(self) -> np.float32:
        """The static scale of INT8 inputs."""


@dataclass(frozen=True)
class TensorFiles:
    """Checked reading by the file's names."""

    folder: Path
    tensors: AnyTensors

    def has(self, name: str) -> bool:
        """Whether the files contain a tensor of this name."""
        return name in self.tensors

    def check(self, name: str, kinds: Sequence[str], *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor that must be there, of one of `kinds` and `shapes`; ModelError
        names it."""
        if name not in self.tensors:
            raise ModelError(
                f"{name}: missing from {self.folder}, expected shape {_either(shapes)} by"
                " quantization_config"
            )
        container, entry = self.tensors[name]
        if entry.kind not in kinds:
            raise ModelError(
                f"{name}: dtype {entry.kind} in {container.path.name}, expected"
                f" {' or '.join(kinds)} by quantization_config"
            )
        if entry.shape not in shapes:
            raise ModelError(
                f"{name}: shape {list(entry.shape)} in {container.path.name}, expected"
                f" {_either(shapes)} by config.json"
            )
        return entry.shape

    def kind(self, name: str) -> str:
        """The type's name of a tensor that was checked: "F16", "I32" and so on."""
        return self.tensors[name][1].kind

    def array(self, name: str) -> NDArray[Any]:
        """The raw elements of a tensor that was checked, a view of the mapped file."""
        container, entry = self.tensors[name]
        found = container.array(entry)
        assert isinstance(found, np.ndarray)  # blocks have readers of their own
        return found

    def floats(self, name: str, rows: slice = slice(None)) -> NDArray[np.float32]:
        """Rows of a checked tensor of scales in FP32; ModelError where one is negative, NaN or
        infinite."""
        values = self.numbers(name, rows)
        bad = ~(np.isfinite(values) & (values >= 0))
        if bad.any():
            raise ModelError(
                f"{name}: a scale is {values[bad].flat[0]}, expected finite numbers, at least 0"
            )
        return values

    def half(self, name: str, rows: slice) -> NDArray[np.float16] | None:
        """Rows of a checked tensor of scales if it is FP16 and all are finite numbers from 0;
        otherwise None, and `floats` names the error."""
        if self.kind(name) != "F16":
            return None
        found: NDArray[np.float16] = np.ascontiguousarray(self.array(name)[rows])
        good = not found.size or found.view(np.uint16).max() < INFINITE
        return found if good else None

    def numbers(self, name: str, rows: slice = slice(None)) -> NDArray[np.float32]:
        """Rows of a checked tensor of floats or small integers in FP32."""
        raw = self.array(name)
        values: NDArray[np.float32] = widen(raw[rows] if raw.ndim else raw, self.kind(name)).astype(
            np.float32
        )
        return values

    def scalar(self, name: str) -> np.float32:
        """The one positive element of a tensor of shape [1] or []; ModelError names it."""
        self.check(name, FLOATS, (1,), ())
        value = self.floats(name).reshape(-1)[0]
        with np.errstate(over="ignore", divide="ignore"):
            good = value > 0 and np.isfinite(np.float32(1) / value)
        if not good:
            raise ModelError(f"{name}: the scale is {value}, expected a positive number")
        found: np.float32 = value
        return found


def _either(shapes: Sequence[tuple[int, ...]]) -> str:
    return " or ".join(str(list(shape)) for shape in shapes)


class ReorderedMatrix:
    """Outputs `order` of the `whole` matrix of a module; a QuantizedMatrix. `name` is for
    messages."""

    def __init__(self, whole: QuantizedMatrix, name: str, order: NDArray[np.intp]) -> None:
        self._name = name
        self.format = whole.format
        self.shape = (whole.shape[0], len(order))
        self.tensors = whole.tensors
        self.permutation = whole.permutation
        self.input_scale = whole.input_scale
        self._whole = whole
        self._order = order

    def columns(self, start: int, stop: int) -> Columns:
        """Output columns start..stop-1; the run of the module's outputs that has them is read."""
        low, high, chosen = self._run(start, stop)
        return self._whole.columns(low, high).take(chosen)

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer, a copy."""
        return self.columns(start, stop).part(self._name)

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """FP32 scales of output columns start..stop-1; None if they are per group."""
        low, high, chosen = self._run(start, stop)
        scales = self._whole.column_scales(low, high)
        return None if scales is None else scales[chosen]

    def _run(self, start: int, stop: int) -> tuple[int, int, NDArray[np.intp]]:
        """The module's outputs low..high-1 that have some columns, and where these are in them."""
        outputs = self._order[start:stop]
        low = int(outputs.min())
        return low, int(outputs.max()) + 1, outputs - low
