"""Quantized matrices as runs of bytes for the banks, in batches of column tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lora_host import abi
from lora_host.errors import ModelError
from lora_host.placing import crc32
from lora_sdk.loading.packing import pack_int4, pack_int8
from lora_sdk.model.columns import Columns, Int4Columns, Int8Columns
from lora_sdk.model.quantization import check_scale
from lora_sdk.plan.banks import MatrixPlacement
from lora_sdk.plan.tensors import Part

BATCH_BYTES = 4 << 20  # of unpacked weights at once: a few times that is the memory it takes

Bytes = npt.NDArray[np.uint8]
Scales = npt.NDArray[np.float32]


class QuantizedWeights(Protocol):
    """What this needs of lora_sdk.model.checkpoint.Checkpoint; several threads call it."""

    def columns(self, name: str, start: int, stop: int) -> Columns: ...
    def permutation(self, name: str) -> npt.NDArray[np.uint32] | None: ...
    def input_scale(self, name: str) -> np.float32: ...
    def vector(self, name: str) -> npt.NDArray[np.float16]: ...


@dataclass(frozen=True)
class Run:
    """Bytes that lie without a gap in one bank, and their CRC-32."""

    bank: int
    offset: int
    data: Bytes
    crc: int


@dataclass(frozen=True)
class Batch:
    """Column tiles first .. last-1 of a matrix."""

    placed: MatrixPlacement
    first: int
    last: int

    @property
    def ends(self) -> bool:
        """Whether nothing of the matrix comes behind it."""
        return self.last * abi.BLOCK_N >= self.placed.n


def batches(placed: MatrixPlacement) -> Iterator[Batch]:
    """A matrix in batches of bounded memory."""
    tiles = -(-placed.n // abi.BLOCK_N)
    step = max(1, BATCH_BYTES // (placed.k * abi.BLOCK_N))
    for first in range(0, tiles, step):
        yield Batch(placed, first, min(tiles, first + step))


def pack_batch(weights: QuantizedWeights, batch: Batch) -> tuple[list[Run], list[Scales]]:
    """The batch's blocks by bank, and its columns' scales (none of W4A16). The matrix's last
    request is filled up with zero blocks. ModelError names scales that are no numbers."""
    placed = batch.placed
    columns = batch.first * abi.BLOCK_N, min(placed.n, batch.last * abi.BLOCK_N)
    parts = list(columns_of(placed.parts, *columns))
    blocks, scales = _blocks(weights, placed, parts)
    if batch.ends:
        missing = placed.requests * placed.merge - placed.spec.blocks
        blocks = np.pad(blocks, ((0, missing), (0, 0))) if missing else blocks
    first = batch.first * -(-placed.k // abi.BLOCK_K)
    return list(_runs(placed, first, blocks)), scales


def _blocks(
    weights: QuantizedWeights, placed: MatrixPlacement, parts: list[tuple[str, int, int]]
) -> tuple[Bytes, list[Scales]]:
    """Blocks of some columns, and the columns' scales."""
    chosen = placed.spec.format
    scales: list[Scales] = []
    if chosen.integer:
        inputs = {
            name: check_scale(f"{name}: scale of its input", weights.input_scale(name))
            for name, _, _ in parts
        }
    columns = [weights.columns(*part) for part in parts]
    eight = [part for part in columns if isinstance(part, Int8Columns)]
    if eight:
        for (name, _, _), part in zip(parts, eight, strict=True):
            scales.append(_product_scales(name, part.scales, inputs[name]))
        return pack_int8(joined([part.values for part in eight])), scales
    if chosen.integer:
        scales = [np.full(stop - start, inputs[name], np.float32) for name, start, stop in parts]
    found = [part for part in columns if isinstance(part, Int4Columns)]
    assert chosen.group is not None
    blocks = pack_int4(
        joined([part.values for part in found]),
        joined([part.scales for part in found]),
        joined([part.zeros for part in found]),
        chosen.group,
        placed.spec.block_bytes,
    )
    return blocks, scales


def _runs(placed: MatrixPlacement, first: int, blocks: Bytes) -> Iterator[Run]:
    """Blocks first.. of a matrix by bank: those of one bank lie one behind the other."""
    numbers = np.arange(first, first + len(blocks))
    banks = (placed.first + numbers // placed.merge) % placed.bank_count
    for bank in range(placed.bank_count):
        chosen = np.flatnonzero(banks == bank)
        if chosen.size:
            where, offset = placed.address(int(numbers[chosen[0]]))
            data = blocks[chosen].reshape(-1)
            yield Run(where, offset, data, crc32(data))


def columns_of(parts: tuple[Part, ...], start: int, stop: int) -> Iterator[tuple[str, int, int]]:
    """(tensor, start, stop) of a matrix's columns start..stop-1, which are those of its parts one
    after another."""
    first = 0
    for part in parts:
        low, high = max(start, first), min(stop, first + part.width)
        if low < high:
            yield part.tensor, part.start + low - first, part.start + high - first
        first += part.width


def _product_scales(name: str, s_w: Scales, s_x: np.float32) -> Scales:
    """FP32(s_x*s_w) of columns; ModelError where it is no number."""
    with np.errstate(over="ignore", under="ignore"):
        scales: Scales = s_w * s_x
    if not np.isfinite(scales).all():
        raise ModelError(
            f"{name}: scale of its weights times that of its input ({s_x}) is out of FP32's range"
        )
    return scales


def joined(arrays: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
