"""The adapter part of a matmul. ADAPTER computes h = FP16(A*x) before it; h is gathered if A is
sharded by rank (S-LoRA). The matmul itself adds scale*(B*h). A plan without slots has none of this.

ADAPTER writes `h`; the matmul that follows on the same unit reads it. The gather of h starts after
this board's own ADAPTER, so after the matmul that read the previous h. A board without columns of
the matrix still computes its ranks for the other boards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.compile.builder import Event
from lora_sdk.compile.isa import Adapter

if TYPE_CHECKING:
    from lora_sdk.compile.parts import Lowering
    from lora_sdk.model.operations import Matmul


def lower_adapter(
    part: Lowering, after: Event | None, matmul: Matmul
) -> tuple[Event | None, dict[str, int]]:
    """The event that the matmul waits for, and the matmul's adapter fields."""
    number, layout = part.adapted.get(matmul.name), part.board.adapters
    sharded = part.plan.adapters.shards(part.plan.stage_boards) > 1
    if number is None or layout is None or (matmul.name not in part.board.matrices and not sharded):
        return after, {}
    h = part.address("h", part.buffer("adapter"))
    after = part.builder.emit(
        Adapter,
        after,
        what=f"adapter {matmul.short}",
        flags=part.flags(matmul),
        adapter=number,
        k=matmul.k,
        **part.address("x", part.buffer(matmul.source.name)),
        **h,
    )
    if sharded:
        after = part.gather(after, "adapter", segments=False)
    return after, {"adapter": number + 1, **h}
