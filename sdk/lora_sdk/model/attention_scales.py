"""Static scales of attention's q, k and v: `q_scale`, `k_scale` and `v_scale` of the module that
contains the projections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lora_host.errors import ModelError
from lora_sdk.model.quantization import AttentionScales
from lora_sdk.model.quantized import FLOATS, TensorFiles

PARTS = ("q", "k", "v")


class UncalibratedError(ModelError):
    """Attention is INT8, and a scale is missing."""


def check_attention(files: TensorFiles, queries: Sequence[str], needed: bool) -> dict[str, str]:
    """ "layer.part" -> the file's name of each scale that is there; `queries` are the names of the
    layers' query weights. ModelError: one is misshapen, or missing although attention is INT8."""
    found = {}
    for layer, weight in enumerate(queries):
        module = weight.rsplit(".", 2)[0]
        for part in PARTS:
            name = f"{module}.{part}_scale"
            if files.has(name):
                files.check(name, FLOATS, (1,), ())
                found[f"{layer}.{part}"] = name
            elif needed:
                raise UncalibratedError(
                    f"{name}: missing from {files.folder}, INT8 attention needs it; calibrate the"
                    " model anew, or run it with the KV cache fp16 or int8-heads"
                )
            zero = f"{module}.{part}_zero_point"
            if files.has(zero):
                files.check(zero, ("I8", *FLOATS), (1,), ())
                if files.array(zero).any():
                    raise ModelError(f"{zero}: is not zero, expected symmetric INT8 values")
                found[f"{layer}.{part}.zero"] = zero
    return found


def read_attention(files: TensorFiles, names: Mapping[str, str], layer: int) -> AttentionScales:
    """The scales of one layer; ModelError if they are missing or not positive numbers."""
    values: list[np.float32] = []
    for part in PARTS:
        name = names.get(f"{layer}.{part}")
        if name is None:
            raise ModelError(f"layer {layer}: no {part}_scale in {files.folder}, expected one")
        values.append(files.scalar(name))
    return AttentionScales(*values)
