"""A matrix product with what stands before it: its input quantized, gathered, put in order.

Without adapter slots a board quantizes its own columns and the links carry INT8; adapters read the
FP16 activation, so with slots the whole row is quantized behind its gather. Values are the same.

What this adds to the order that `lower` explains: the INT8 copies of gathered buffers are written
by the VFU right behind what writes the FP16 ones, or behind their gather, and read as these are, so
what holds for `input` holds for `input8`. `permuted` is written for one product after the other:
each has been run (the MPU in order) before the chain to the next product's input begins."""

from __future__ import annotations

from typing import Any

import numpy as np

from lora_host import abi
from lora_sdk.compile.adapters import adapter_product
from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Vector, float_bits
from lora_sdk.compile.parts import Lowering
from lora_sdk.plan.formats import act_order, product_format, tensors_of
from lora_sdk.plan.onchip import OnchipBuffer, eight


def product(
    part: Lowering,
    after: Event | None,
    name: str,
    source: str,
    local: range,
    target: OnchipBuffer,
    flags: int = 0,
    **more: Any,
) -> Event | None:
    """target = `source`, gathered, times matrix `name`; `local` are this board's columns of it."""
    integer = product_format(part.config, name).integer
    late = integer and part.plan.adapters.slots > 0
    permuted = act_order(part.config, name)
    gathered = source
    if integer and not late:
        after = _quantize(part, after, name, source, local, flags)
        gathered = eight(source)
    after = part.gather(after, gathered, segments=not (late or permuted))
    after, adapter = adapter_product(part, after, name, source)
    placed = part.board.matrices.get(name)
    if placed is None:
        return after
    if late:
        after = _quantize(part, after, name, source, range(placed.k), flags)
    ready = eight(source) if integer else source
    if permuted:
        after = _permute(part, after, name, ready, 1 if integer else 2, flags)
        ready = "permuted"
    return part.matrix(after, name, ready, target, flags, **more, **adapter)


def _quantize(
    part: Lowering, after: Event | None, name: str, source: str, columns: range, flags: int
) -> Event | None:
    """Columns of `source` in INT8, by the scale of the product's input."""
    if not columns:
        return after
    scale = part.scales.input(tensors_of(part.config, name))
    return part.builder.emit(
        Vector,
        after,
        what=f"quantize {source}",
        flags=flags,
        op=abi.VEC_QUANTIZE,
        columns=len(columns),
        first=columns.start,
        scalar=reciprocal_bits(scale),
        **part.address("x", part.local(source, columns)),
        **part.address("y", part.local(eight(source), columns, 1)),
    )


def _permute(
    part: Lowering, after: Event | None, name: str, source: str, size: int, flags: int
) -> Event:
    """A whole row in the order in which the matrix holds its inputs, elements of `size` bytes."""
    placed = part.board.matrices[name]
    assert placed.spec.permutation is not None  # the plan has a table for it
    return part.builder.emit(
        Vector,
        after,
        what=f"permute {name.rpartition('.')[2]}",
        flags=flags,
        op=abi.VEC_PERMUTE,
        columns=placed.k,
        extra=size,
        **part.table_a(placed.spec.permutation),
        **part.address("x", part.buffer(source)),
        **part.address("y", part.buffer("permuted")),
    )


def reciprocal_bits(scale: np.float32) -> int:
    """Bits of FP32(1/scale)."""
    return float_bits(float(np.float32(1) / np.float32(scale)))
