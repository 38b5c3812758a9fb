"""The bytes of an adapter's slot on one board, as abi.h lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.errors import AdapterError
from lora_sdk.adapters.cut import Factor, MatrixCut, a_layout, b_layout, cut
from lora_sdk.adapters.weights import AdapterWeights
from lora_sdk.plan.banks import mib
from lora_sdk.plan.tensors import adapted_specs, padded

if TYPE_CHECKING:
    from lora_sdk.plan.model_plan import BoardPlan, Plan

Image = NDArray[np.uint8]


def slot_image(weights: AdapterWeights, plan: Plan, board: BoardPlan, name: str) -> Image:
    """All bytes of a slot that holds `weights`. AdapterError if they do not fit."""
    cuts = [
        cut(weights, spec, board.share, plan.adapters)
        for spec in adapted_specs(plan.config, board.share)
    ]
    entry = abi.dtype("adapter_matrix").itemsize
    factors_at = padded(abi.dtype("adapter_slot").itemsize + len(cuts) * entry)
    factor_count = sum(len(c.down) + len(c.up) for c in cuts)
    offset = factors_at + factor_count * abi.dtype("adapter_factor").itemsize
    directory = np.zeros(len(cuts), abi.dtype("adapter_matrix"))
    records: list[Any] = []
    values: list[tuple[int, NDArray[np.float16]]] = []
    for number, found in enumerate(cuts):
        at = factors_at + len(records) * abi.dtype("adapter_factor").itemsize
        directory[number] = (at, len(found.down), len(found.up))
        for factor, laid in _laid_out(found):
            records.append(_record(factor, offset))
            values.append((offset, laid))
            offset = padded(offset + laid.nbytes)
    assert board.adapters is not None  # a plan with slots
    if offset > board.adapters.slot_bytes:
        raise AdapterError(
            f"adapter {name!r}: needs {mib(offset)} in a slot on board {board.board}, which has "
            f"{mib(board.adapters.slot_bytes)}; open with a larger max_adapter_rank"
        )
    return _assemble(offset, directory, factors_at, records, values)


def _laid_out(found: MatrixCut) -> list[tuple[Factor, NDArray[np.float16]]]:
    down = [(factor, a_layout(factor.values)) for factor in found.down]
    return down + [(factor, b_layout(factor.values, factor.first)) for factor in found.up]


def _record(factor: Factor, offset: int) -> Any:
    record = np.zeros((), abi.dtype("adapter_factor"))
    ranks, count = factor.values.shape
    record["first"], record["count"], record["offset"] = factor.first, count, offset
    record["rank_first"], record["rank_count"] = factor.rank_first, ranks
    record["rank"], record["h_run"] = factor.rank, factor.layout.h_run
    record["h_first"], record["h_skip"] = factor.layout.h_first, factor.layout.h_skip
    record["scale"] = factor.scale.view(np.uint32)
    return record


def _assemble(
    size: int,
    directory: NDArray[Any],
    factors_at: int,
    records: list[Any],
    values: list[tuple[int, NDArray[np.float16]]],
) -> Image:
    image = np.zeros(size, np.uint8)
    header = np.zeros(1, abi.dtype("adapter_slot"))
    header["magic"], header["size"] = abi.ADAPTER_MAGIC, header.itemsize
    header["bytes"], header["matrices"] = size, len(directory)
    _put(image, 0, header)
    _put(image, header.itemsize, directory)
    if records:
        _put(image, factors_at, np.array(records, abi.dtype("adapter_factor")))
    for offset, laid in values:
        _put(image, offset, laid)
    return image


def _put(image: Image, offset: int, values: NDArray[Any]) -> None:
    raw = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
    image[offset : offset + len(raw)] = raw
