"""Wrong bits in words of a board's memory, which its ECC corrects or finds: of weights, K and V,
command lists, and what else the control bank holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lora_host import abi
from lora_lab.torture.faults import Fault
from lora_lab.torture.target import Target

if TYPE_CHECKING:
    from lora_sdk.engine.engine import Engine
    from lora_sdk.plan.model_plan import BoardPlan

WORD = 8  # bytes
PAGES = 4  # of sequences, the first ones, and one of scratch slots
LIST_HEADER = 256  # bytes before the first command
Place = Callable[["Engine", "BoardPlan", int], tuple[int, int]]
"""Bank and offset that a number chooses."""


def weight(engine: Engine, plan: BoardPlan, number: int) -> tuple[int, int]:
    """In the first block of a matrix."""
    names = sorted(plan.matrices)
    bank, offset = plan.matrices[names[number % len(names)]].address(0)
    return bank, offset + WORD * (number // len(names) % 64)


def keys_and_values(engine: Engine, plan: BoardPlan, number: int) -> tuple[int, int]:
    """In a page that the next rows use or that sequences have."""
    layout, scratch = plan.kv, engine.plan.scratch_pages
    chosen = number % (PAGES + 1)
    page = 0 if chosen == PAGES else scratch + chosen
    number //= PAGES + 1
    layer, number = number % layout.layers, number // layout.layers
    bank, offset = layout.address(page, layer, number // 2 % layout.heads, bool(number % 2))
    return bank, offset + WORD * (number // 8 % (layout.block_bytes // WORD))


def command_list(engine: Engine, plan: BoardPlan, number: int) -> tuple[int, int]:
    """In one of the first commands."""
    offset = plan.control.list_offset + LIST_HEADER + WORD * (number % 64)
    return engine.cluster.overlay.control_bank, offset


def control_tables(engine: Engine, plan: BoardPlan, number: int) -> tuple[int, int]:
    """In the step block, the first rows of the page tables, or the table of weight regions."""
    control = plan.control
    start = (control.block_offset, control.table_offset, control.regions_offset)[number % 3]
    return engine.cluster.overlay.control_bank, start + WORD * (number // 3 % 16)


def flip(place: Place, twice: bool) -> Callable[[Target, Fault], None]:
    """Plants one wrong bit of a word, or two. A reset does not heal it, as none on a card does."""
    kind = abi.FAULT_ECC_DOUBLE if twice else abi.FAULT_ECC_SINGLE

    def plant(target: Target, fault: Fault) -> None:
        engine = target.engine
        assert engine is not None
        boards = [plan for plan in engine.plan.boards if plan.board == fault.board]
        if not boards or engine.cluster.closed:
            return
        bank, offset = place(engine, boards[0], fault.numbers[0])
        if twice:
            target.unreadable.append((fault.board, bank))
            target.damaged.append(f"board {fault.board}")
        target.fault(fault.board, kind, bank, offset // WORD, fault.numbers[1])

    return plant


def corrected(engine: Engine) -> int:
    """Errors that the boards' ECC has corrected so far."""
    if engine.cluster.closed:
        return 0
    counts = [engine.cluster.ecc(board) for board in range(engine.cluster.size)]
    return sum(sum(one.corrected.values()) for one in counts if one is not None)
