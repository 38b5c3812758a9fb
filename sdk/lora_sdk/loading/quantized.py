"""Tables of quantized matrices: columns' scales and orders of inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.loading.packing import pack_rows, pack_scales
from lora_sdk.model.quantization import MatrixFormat, check_scale
from lora_sdk.plan.banks import MatrixPlacement, TablePlacement
from lora_sdk.plan.tensors import FP16_BYTES, Part, padded

Bytes = npt.NDArray[np.uint8]
Scales = npt.NDArray[np.float32]


class QuantizedWeights(Protocol):
    """The part of lora_sdk.model.checkpoint.Checkpoint that loading quantized matrices uses."""

    def part(self, name: str, start: int, stop: int) -> PackPart: ...
    def column_scales(self, name: str, start: int, stop: int) -> Scales | None: ...
    def permutation(self, name: str) -> npt.NDArray[np.uint32] | None: ...
    def input_scale(self, name: str) -> np.float32: ...
    def vector(self, name: str) -> npt.NDArray[np.float16] | npt.NDArray[np.float32]: ...


ReadPart = Callable[[str, int, int], PackPart]
"""Columns start..stop-1 of a tensor for the packer."""


def tile_parts(read: ReadPart, placed: MatrixPlacement, tiles: range) -> list[PackPart]:
    """Columns of these column tiles, for the packer."""
    first, end = tiles.start * abi.BLOCK_N, min(placed.n, tiles.stop * abi.BLOCK_N)
    found, start = [], 0
    for part in placed.parts:
        low, high = max(first, start), min(end, start + part.width)
        if low < high:
            at = part.start - start
            found.append(read(part.tensor, at + low, at + high))
        start += part.width
    return found


def scale_table(weights: QuantizedWeights, placed: MatrixPlacement) -> Bytes:
    """The scales of all columns, followed by the bias. ModelError names scales that are missing,
    not finite, or out of FP32's range."""
    parts = [part for part in placed.parts if part.width]
    scales = joined([_scales(weights, part, placed.spec.format) for part in parts])
    if not placed.spec.bias:
        return pack_scales(scales, None)
    return pack_scales(scales, _bias(weights, parts))


def bias_row(weights: QuantizedWeights, placed: MatrixPlacement) -> Bytes:
    """The FP16 bias of all columns, in whole lines."""
    bias = _bias(weights, [part for part in placed.parts if part.width])
    return pack_rows(bias[None], padded(FP16_BYTES * len(bias))).reshape(-1)


def _bias(weights: QuantizedWeights, parts: list[Part]) -> npt.NDArray[Any]:
    return joined([weights.vector(f"{p.tensor}.bias")[p.start : p.stop] for p in parts])


def _scales(weights: QuantizedWeights, part: Part, form: MatrixFormat) -> Scales:
    """FP32(s_x*s_w) of columns, only s_x if weights have scales per group; s_x is 1 where each row
    has its own."""
    name, s_x = part.tensor, np.float32(1)
    if not form.dynamic:
        s_x = check_scale(f"{name}: scale of its input", weights.input_scale(name))
    s_w = weights.column_scales(name, part.start, part.stop)
    if s_w is None:
        return np.full(part.width, s_x, np.float32)
    with np.errstate(over="ignore", under="ignore"):
        scales: Scales = s_w * s_x
    if not np.isfinite(scales).all():
        raise ModelError(
            f"{name}: scale of its weights times that of its input ({s_x}) is out of FP32's range"
        )
    return scales


def order_table(
    weights: QuantizedWeights, matrix: MatrixPlacement, placed: TablePlacement
) -> Bytes:
    """uint32 [K], checked to be a permutation and equal for all parts of the matrix; what lies
    behind the K values of a row stays there."""
    orders = {part.tensor: weights.permutation(part.tensor) for part in matrix.parts}
    (first, order), *others = orders.items()
    if order is None:
        order = np.arange(matrix.k, dtype=np.uint32)  # act-order with the identity
    if not np.array_equal(np.sort(order), np.arange(matrix.k)):
        raise ModelError(f"{first}: the order of its inputs is no permutation of {matrix.k}")
    for name, other in others:
        if not np.array_equal(order, np.arange(matrix.k) if other is None else other):
            raise ModelError(
                f"{name}: the order of its inputs (act-order) differs from that of {first}, "
                "a part of the same matmul; expected the same"
            )
    order = np.concatenate([order, np.arange(matrix.k, placed.spec.columns)])
    rows: Bytes = pack_rows(order.astype("<u4")[None], placed.spec.row_bytes)
    return rows.reshape(-1)


def joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The arrays one after another."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
