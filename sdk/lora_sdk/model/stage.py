"""The operations of a pipeline stage: some layers, and what the last one leaves out."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from lora_sdk.model.block import Block, describe
from lora_sdk.model.operations import (
    Buffer,
    Elementwise,
    Norm,
    Operation,
    PackSelected,
    Recur,
    StoreKv,
)
from lora_sdk.model.spec import ModelConfig


@lru_cache(maxsize=256)
def describe_stage(config: ModelConfig, layers: range, all_rows: bool = False) -> Block:
    """The operations of some layers, and with the first and the last of them what comes before and
    after the layers. ARGMAX, of no columns, is in every stage: each board writes its record.
    `all_rows`: the last layer's output is needed of all rows, not of the selected ones alone."""
    whole = describe(config) if all_rows else _last_selected(describe(config))
    if len(layers) == config.layers:
        return whole
    return replace(
        whole,
        before=whole.before if layers.start == 0 else (),
        layers=whole.layers[layers.start : layers.stop],
        after=whole.after if layers.stop == config.layers else whole.after[-1:],
    )


def _last_selected(whole: Block) -> Block:
    """`whole` with the last layer on the selected rows alone, from where its K and V are stored:
    nothing reads what it makes of the others. A layer with a recurrence, or without attention,
    works on all rows. The stream is packed after the last operation that may still send it, before
    the first that reads it."""
    layer = whole.layers[-1]
    attends = any(isinstance(one, StoreKv) for one in layer)
    if not attends or any(isinstance(one, Recur) for one in layer):
        return whole
    stored = 1 + next(at for at, one in enumerate(layer) if isinstance(one, StoreKv))
    behind = [replace(one, selected=True) for one in layer[stored:]]
    reads = next(at for at, one in enumerate(behind) if _reads(one, whole.stream))
    pack = PackSelected(
        layer=layer[0].layer, selected=True, source=whole.stream, target=whole.stream
    )
    packed, *after = whole.after
    output = behind[-1]
    assert isinstance(packed, PackSelected) and isinstance(output, Elementwise | Norm)
    behind[-1] = replace(output, target=packed.target)
    last = (*layer[:stored], *behind[:reads], pack, *behind[reads:])
    return replace(whole, layers=(*whole.layers[:-1], last), after=tuple(after))


def _reads(operation: Operation, stream: Buffer) -> bool:
    """Whether an operation behind attention reads the stream as it was before the layer."""
    if isinstance(operation, Elementwise):
        return stream in operation.operands.values()
    return isinstance(operation, Norm) and operation.source == stream
