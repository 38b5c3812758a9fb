"""The adapters' share of a matrix product: h = FP16(A*x) before it, gathered where A is sharded by
rank (S-LoRA); the product itself adds scale*(B*h). Nothing where the plan has no slots.

`h` is written by ADAPTER and read by the product that follows it on the same unit. Its gather is
started behind this board's own ADAPTER, hence behind the product that read the h before; a board
without columns of the matrix still computes its ranks for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Adapter
from lora_sdk.plan.adapters import inputs, matrix_number

if TYPE_CHECKING:
    from lora_sdk.compile.parts import Lowering


def adapter_product(
    part: Lowering, after: Event | None, name: str, source: str
) -> tuple[Event | None, dict[str, int]]:
    """The event that the product waits for, and its fields."""
    number, layout = matrix_number(name), part.board.adapters
    sharded = part.plan.adapters.shards(part.plan.size) > 1
    if number is None or layout is None or (name not in part.board.matrices and not sharded):
        return after, {}
    matrix = name.rpartition(".")[2]
    h = part.address("h", part.buffer("adapter"))
    after = part.builder.emit(
        Adapter,
        after,
        what=f"adapter {matrix}",
        adapter=number,
        k=inputs(part.config, matrix),
        **part.address("x", part.buffer(source)),
        **h,
    )
    if sharded:
        after = part.gather(after, "adapter", segments=False)
    return after, {"adapter": number + 1, **h}
