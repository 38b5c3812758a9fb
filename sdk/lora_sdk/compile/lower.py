"""A model's step as commands: one list per board, the same for every step.

A unit runs its commands in list order. Between units only counters order commands, and each command
waits for at most one event. That event guarantees that what the command reads has been written. The
order also guarantees that nothing is overwritten too early, for these reasons:

- `input` (gathered) is read by qkv or up, and is sent by its own gather. The next norm writes it.
  The RESIDUAL before that norm has waited for o or down, which the MPU runs after qkv or up. The
  norm has also waited for the gather of its own sums, which the Router runs after the gather of
  `input`. So neither reader is still active.
- `attention` and `ffn` (gathered): the same argument. Their next writer has waited, through a
  matmul, for the segments of a later gather.
- `head` and `embed` (gathered): `head` is written once per list. `embed` is written at most twice;
  its second writer, project_out, has waited for the gather of `head`.
- Gathers of other boards: a board receives data only for a gather that it has started itself, so a
  faster neighbor cannot write into a buffer that is still in use here.
- Boards that own no column of a gather (narrow models) have nothing to wait for, but still start
  the gather late enough. Before a gather into `input`, the Router has run the gather of `attention`
  or `ffn` that follows the last matmul reading `input`. It waits for this board's attention or its
  `ffn` columns. If the board has none of these, it ran no such matmul. Before a gather into
  `attention` or `ffn`, the Router has run the gather of norm sums. It waits for RESIDUAL, which
  comes after o or down. If the board has no hidden columns, it runs neither o nor down.
- `sums`: the norm that reads it has waited for its whole gather, sending included, before the next
  norm writes it.
- `router` is written by the MPU; the VFU's ROUTE, for which the experts' first matmul waits, reads
  it. That matmul's input was gathered for the router. `chosen` is written by ROUTE, which has
  waited for a router's matmul, and so for the experts' matmuls before it, which read it.
  `expert_up` and `expert_ffn`, `shared_up` and `shared_ffn`: as `up` and `ffn`. The experts' sum in
  `branch` and `shared` are read where they are added, for which RESIDUAL waits.
- `qkv`, `up`, `branch` are written by the MPU. It has either run their reader itself (attention),
  or run a matmul that waited for their reader: SWIGLU and RESIDUAL run on the VFU before the norm,
  or before the gather, that this matmul waits for.
- Latent attention: `kv_a` and `q_a` are written by the MPU and read by the VFU's norms and
  JOIN_HEADS, `expanded` by JOIN_HEADS; attention waits for these, and the next layer's matmuls for
  its `o`. `kv_latent` and `q_latent` (gathered) are read by one matmul each, which attention waits
  for as well. JOIN_HEADS writes k and v of `qkv` behind the matmul of q. `attended` is written by
  attention and read by JOIN_HEADS, for which `o` waits.
- Scratch KV: a layer's attention waits for the layer's KV_STORE. KV_COMMIT is the first command of
  the same unit (DMA), so what lies in pages is of this step before any row is stored or read. Where
  matmuls have memory ports of their own, each layer has a KV_COMMIT, which the DMA unit runs before
  the layer's KV_STORE, beside its norm and matmul. It waits for the stream as the layer's first
  operation does: attention of the layer before is over, and its pages are those of other layers.
- What a recurrence keeps of rows it stores in their slots itself, on the unit that reads it, in row
  order. It waits for the DMA unit's KV_COMMIT, or for the tap behind it; the matmul that writes
  `mix` comes before on its own unit. `mix` is read as `qkv`, `mixed` as `attention`.
- The residual stream is written by the VFU, and once by PACK on the DMA. Taps read it on the DMA. A
  tap precedes its layer's KV_STORE, attention waits for that, and RESIDUAL comes after attention.
  PACK is the last layer's, in place, and comes right before the first command after attention that
  reads the stream. Where the stream is `input`, what is true of the norm that writes it is true of
  PACK: it has waited for o, and so for the gather of `attention`. `input` that two matmuls share is
  packed behind o as well. In a plan with a tap behind the last layer this works on all rows, and
  PACK comes after the last RESIDUAL.
- The final states are read on the DMA behind the event that lm_head waits for. What writes their
  buffer next comes behind END.
- q is packed in place behind KV_STORE, on the same unit. Attention waits for it.
- Results in the control bank are read by the host after END, which comes after a BALLOT: all units
  were idle. The votes are gathered behind it, on the first bytes of the on-chip buffer, which then
  hold nothing that is needed; END waits for the last of them.

- Between stages `passing.py` says the same of the rows that one passes to the next. The boards of a
  stage begin with them; all that follows waits for their own columns of the stream.

A single board has no gathers. The same order follows from the VFU and the MPU waiting for each
other.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from lora_sdk.compile.ballot import lower_ballot
from lora_sdk.compile.isa import NO_LAYER, Command, End, KvCommit
from lora_sdk.compile.operations import lower_operations
from lora_sdk.compile.parts import Lowering
from lora_sdk.compile.passing import lower_passed, lower_received
from lora_sdk.model.operations import target
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.tensors import FP16_BYTES

if TYPE_CHECKING:
    from lora_sdk.compile.builder import Event
    from lora_sdk.model.quantization import ActivationScales
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.plan.model_plan import Plan


def lower(
    config: ModelConfig, plan: Plan, rank: int, scales: ActivationScales | None = None
) -> list[Command]:
    """The command list of board `rank`. `scales` are those of a quantized model's activations.
    ModelError names a missing one."""
    part = Lowering(config, plan, rank, scales)
    by_layer = plan.overlay.channels > 0 and all(map(config.planes, part.stage.layers))
    first = config.planes(part.stage.layers.start) if by_layer else 0
    part.moved = part.builder.emit(KvCommit, None, what="kv commit", layers=first)
    stream = lower_operations(part, part.block.before, lower_received(part))
    for layer, operations in zip(part.stage.layers, part.block.layers, strict=True):
        part.builder.layer = layer
        if by_layer and layer != part.stage.layers.start:
            _commit_layer(part, layer, stream)
        part.tap(layer, stream)
        stream = lower_operations(part, operations, stream)
    part.leave_layers()
    if part.stage.is_last:
        part.tap(config.layers, stream)
    lower_operations(part, part.block.after, lower_passed(part, stream))
    part.check_collectives()
    lower_ballot(part)
    part.builder.finish(End, what="end")
    return part.builder.commands


def _commit_layer(part: Lowering, layer: int, stream: Event | None) -> None:
    index, planes = part.kv_layer(layer), part.config.planes(layer)
    part.moved = part.builder.emit(
        KvCommit, stream, what="kv commit", kv_layer=index, layers=planes
    )


def lower_until(
    config: ModelConfig,
    plan: Plan,
    rank: int,
    scales: ActivationScales | None,
    count: int,
    part: range,
) -> list[Command]:
    """The command list of board `rank` up to the first `count` operations, of one stage. Of what
    the last of these writes on chip, those of the board's own columns that lie in `part` are copied
    to where logits are returned."""
    found = Lowering(config, plan, rank, scales)
    found.moved = found.builder.emit(KvCommit, None, what="kv commit")
    after: Event | None = None
    operations = tuple(islice(found.block.operations, count))
    for operation in operations:
        found.builder.layer = NO_LAYER if operation.layer is None else operation.layer
        after = lower_operations(found, (operation,), after)
    buffer, control = target(operations[-1]), found.board.control
    if buffer is not None and not buffer.results:
        own = found.own(buffer)
        found.copy_out(
            after,
            "values of the last operation",
            OnchipBuffer(own.offset + part.start * FP16_BYTES, own.stride),
            max(0, min(len(found.columns(buffer)), part.stop) - part.start),
            control.logits_offset,
            control.logits_stride,
        )
    lower_ballot(found)
    found.builder.finish(End, what="end")
    return found.builder.commands
