"""The names of what lies at an address of a board."""

from __future__ import annotations

from zlib import crc32

from lora_host import abi
from lora_host.placing import Range
from lora_sdk.opening.opening import plan_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.plan.addresses import tensors_at
from lora_sdk.recovery.regions import joined


def test_every_block_and_table_is_found_by_its_address() -> None:
    plan = plan_model(EngineOptions(boards=2)).plan
    for board in plan.boards:
        for matrix in board.matrices.values():
            names = {part.tensor for part in matrix.parts if part.width}
            found = set()
            for block in range(matrix.spec.blocks):
                bank, offset = matrix.address(block)
                for at in (offset, offset + matrix.spec.block_bytes - abi.LINE_BYTES):
                    here = tensors_at(board, bank, at)
                    assert here and set(here) <= names
                    found.update(here)
            assert found == names, matrix.name
            first = -(-matrix.k // abi.BLOCK_K)  # blocks of a column tile
            bank, offset = matrix.address(first * (matrix.spec.blocks // first - 1))
            assert matrix.parts[-1].tensor in tensors_at(board, bank, offset)
        for table in board.tables.values():
            last = table.offset + table.placed_bytes - 1
            assert tensors_at(board, table.bank, last) == [table.name]
        end = max(board.arenas.items())
        assert tensors_at(board, end[0], end[1]) == []


def test_adjacent_parts_are_summed_together_up_to_a_slice() -> None:
    data = bytes(range(256)) * 4

    parts = [Range(0, 1, 64 * i, 64, crc32(data[64 * i : 64 * i + 64])) for i in range(16)]
    alone = Range(1, 1, 0, 500, 7)
    found = joined([alone, *reversed(parts)], 256)
    assert [(one.board, one.offset, one.bytes) for one in found] == [
        *((0, 256 * i, 256) for i in range(4)),
        (1, 0, 500),
    ]
    assert [one.crc for one in found[:4]] == [
        crc32(data[256 * i : 256 * i + 256]) for i in range(4)
    ]
    assert parts[0].bytes == 64  # as they were
