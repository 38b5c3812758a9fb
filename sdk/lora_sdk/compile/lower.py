"""A model's step as commands: one list a board, the same for every step.

Order within a unit is the list's; between units only counters order, and each command waits for at
most one event. What a command reads has been written when that event has happened. That nothing is
overwritten too early follows from the order too; with R(n) the Router's n-th gather:

- `input` (gathered) is read by qkv or up and sent by its gather. Before the next norm writes it,
  RESIDUAL has waited for o or down, which the MPU runs after qkv or up; and the norm has waited for
  the gather of its own sums, which the Router runs after the gather of `input`. So neither reads it
  any more. The same holds for `attention` and `ffn`: their next writer has waited, over a matmul,
  for the segments of a later gather. `head` and `embed` are written once a list, `embed`
  a second time by project_out, which has waited for the gather of `head`.
- A board receives only into a gather that it has started itself, so a faster neighbour cannot write
  into a buffer that is still in use here. A board that owns no column of a gather (narrow models)
  has nothing to wait for, yet starts it late enough: before a gather into `input` the Router has
  run the gather of `attention` or `ffn` behind the last matmul that read `input`, which waits for
  this board's attention or its `ffn` columns; where it has none of these, there was no matmul. For
  `attention` and `ffn` it is the gather of norm sums, which waits for RESIDUAL, after o or down;
  without hidden columns there is no o and no down.
- `sums`: the norm that reads it has waited for its gather as a whole, sending included, before the
  next norm writes it.
- `qkv`, `up`, `branch`: written by the MPU after it has run what reads them (attention) or after a
  matmul that waited for what reads them (SWIGLU and RESIDUAL, on the VFU before the norm
  or before the gather that the matmul waits for).
- Scratch KV: a layer's KV_STORE is awaited by its attention; KV_COMMIT is first on the same unit
  (DMA), so page tables and lengths are this step's before any row is stored or read.
- Residual: written by the VFU alone. Taps and PACK read it on the DMA: a tap stands before its
  layer's KV_STORE, which attention waits for, and RESIDUAL comes after attention; PACK stands after
  the last RESIDUAL.
- Results in the control bank: read by the host after END, which comes after a FENCE.

One board has no gathers; the same order holds by the VFU's and MPU's waits for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lora_sdk.compile.isa import Command, End, Fence, KvCommit
from lora_sdk.compile.operations import lower_operations
from lora_sdk.compile.parts import Lowering

if TYPE_CHECKING:
    from lora_sdk.model.quantization import ActivationScales
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


def lower(
    config: ModelConfig, plan: Plan, rank: int, scales: ActivationScales | None = None
) -> list[Command]:
    """The command list of board `rank`. `scales` of a quantized model's activations; ModelError
    names one that is missing."""
    part = Lowering(config, plan, rank, scales)
    part.builder.emit(KvCommit, None, what="kv commit")
    stream = lower_operations(part, part.block.before, None)
    for layer, operations in enumerate(part.block.layers):
        part.builder.layer = layer
        part.tap(layer, stream)
        stream = lower_operations(part, operations, stream)
    part.leave_layers()
    part.tap(config.layers, stream)
    lower_operations(part, part.block.after, stream)
    part.builder.finish(Fence, what="fence")
    part.builder.finish(End, what="end")
    part.check_collectives()
    return part.builder.commands
