"""Which tensors of a model lie at an address of a board."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lora_host import abi

if TYPE_CHECKING:
    from lora_sdk.plan.banks import MatrixPlacement
    from lora_sdk.plan.model_plan import BoardPlan


def tensors_at(board: BoardPlan, bank: int, offset: int) -> list[str]:
    """The checkpoint's tensors, or the computed tables, with values in the line at byte `offset` of
    a bank. Several where a weight block holds columns of more than one; none outside of weights."""
    for matrix in (one for placed in board.matrices.values() for one in placed.of_experts):
        block = _block_at(matrix, bank, offset)
        if block is not None:
            return list(dict.fromkeys(_columns_of(matrix, block)))
    for table in board.tables.values():
        if table.bank == bank and 0 <= offset - table.offset < table.placed_bytes:
            return [table.name]
    return []


def _block_at(matrix: MatrixPlacement, bank: int, offset: int) -> int | None:
    """The reverse of MatrixPlacement.address. Blocks of padding count too."""
    within = offset - matrix.weight_line * abi.LINE_BYTES
    if within < 0 or not 0 <= bank - matrix.bank_first < matrix.bank_count:
        return None
    row, index = divmod(within // matrix.spec.block_bytes, matrix.merge)
    request = row * matrix.bank_count + bank - matrix.bank_first - matrix.first
    return request * matrix.merge + index if 0 <= request < matrix.requests else None


def _columns_of(matrix: MatrixPlacement, block: int) -> Iterator[str]:
    """Tensors of the block's columns; of all columns where it is padding."""
    first = block // -(-matrix.k // abi.BLOCK_K) * abi.BLOCK_N
    columns = range(first, first + abi.BLOCK_N) if first < matrix.n else range(matrix.n)
    start = 0
    for part in matrix.parts:
        if start < columns.stop and columns.start < start + part.width:
            yield part.tensor
        start += part.width
