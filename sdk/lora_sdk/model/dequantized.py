"""A quantized checkpoint as the tensors of the model's own library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import family_of
from lora_sdk.model.quantization import FP16, Quantization

Tensors = dict[str, NDArray[np.float32]]


def dequantized(checkpoint: Checkpoint) -> Tensors:
    """FP32 tensors by the names and in the shapes that the unquantized files would have; a tied
    lm_head is left out. ModelError as for reading them."""
    config = checkpoint.config
    prefix = family_of(config).PREFIXES[0]
    found: Tensors = {}
    for name in checkpoint.names:
        if name == "lm_head" and config.tied:
            continue
        source = checkpoint.source(name)
        key = source.full_name(prefix)
        whole = found.setdefault(key, np.zeros(source.file_shape, np.float32))
        if source.layout == "table":
            whole[...] = checkpoint.table(name)
        elif source.layout == "vector":
            whole[source.outputs] = checkpoint.vector(name)
        elif source.layout == "oi":
            whole[source.outputs] = _weights(checkpoint, name)
        else:
            whole[:, source.outputs] = _weights(checkpoint, name).T
    return found


def _weights(checkpoint: Checkpoint, name: str) -> NDArray[np.float32]:
    """FP32 [outputs, inputs], the inputs in the file's order."""
    quantization = checkpoint.config.quantization or Quantization("fp16")
    if quantization.format(name) == FP16:
        half: NDArray[np.float32] = checkpoint.matrix(name).T.astype(np.float32)
        return half
    return in_file_order(checkpoint.columns(name).dense(), checkpoint.permutation(name))


def in_file_order(
    dense: NDArray[np.float32], order: NDArray[np.uint32] | None
) -> NDArray[np.float32]:
    """Weights [outputs, inputs] whose input i is the file's `order[i]`, in the file's order."""
    if order is None:
        return dense
    unordered = np.empty_like(dense)
    unordered[:, order] = dense
    return unordered
