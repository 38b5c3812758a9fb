"""A board's table of a layer's recurrence (abi.h, struct lora_recurrence): the convolution's
weights, and of the gated delta rule what else is not a matmul's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from lora_host.errors import ModelError
from lora_host.numerics import exp32
from lora_sdk.loading.packing import pack_rows
from lora_sdk.model.half import to_half
from lora_sdk.model.operations import Axis
from lora_sdk.plan.partition import Share, axis_columns
from lora_sdk.plan.tensors import padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig, RecurrentConfig
    from lora_sdk.model.stored import Stored

Bytes = npt.NDArray[np.uint8]
CONVOLVED: tuple[tuple[str, Axis], ...] = (
    ("q", "mixed_keys"), ("k", "mixed_keys"), ("v", "mixed_values"),
)  # fmt: skip
"""Parts of a gated delta rule's input that go through the convolution; a short convolution has
the last alone."""


class Weights(Protocol):
    """The part of lora_sdk.model.checkpoint.Checkpoint that is read here."""

    def stored(self, name: str) -> Stored: ...


def recurrence_table(weights: Weights, config: ModelConfig, share: Share, name: str) -> Bytes:
    """uint8 of `name`, a layer's recurrence. ModelError names a tensor with a value that is not
    finite."""
    recurrent = config.recurrent
    assert recurrent is not None
    parts = CONVOLVED[-1:] if recurrent.kind == "short_conv" else CONVOLVED
    columns = [(part, axis_columns(config, share, axis)) for part, axis in parts]
    taps = [_half(weights, f"{name}.taps.{part}", own).T for part, own in columns]
    rows = np.concatenate(taps, axis=1)
    found = [pack_rows(rows, padded(rows.shape[1] * rows.itemsize)).reshape(-1)]
    if recurrent.kind == "selective_scan":
        biases = [_half(weights, f"{name}.taps.{part}.bias", own) if recurrent.biased
                  else np.zeros(len(own), np.float16) for part, own in columns]  # fmt: skip
        found.append(_line(np.concatenate(biases)))
    if recurrent.kind != "short_conv":
        found.extend(_state_vectors(weights, config, recurrent, share, name))
    return np.concatenate(found)


def _state_vectors(
    weights: Weights, config: ModelConfig, recurrent: RecurrentConfig, share: Share, name: str
) -> Iterator[Bytes]:
    """Of the value heads, then what follows by its kind."""
    heads, scan = axis_columns(config, share, "mixed_heads"), recurrent.kind == "selective_scan"
    vectors = [-exp32(_fp32(weights, f"{name}.a_log")), _fp32(weights, f"{name}.dt_bias")]
    if scan:
        vectors.append(_fp32(weights, f"{name}.d"))
    for vector in vectors:
        yield _line(vector[heads.start : heads.stop])
    if scan:
        yield _line(np.array([*recurrent.limits, *recurrent.factors, 0], np.float32))
    else:
        columns = range(recurrent.values // recurrent.value_heads)
        yield _line(_half(weights, f"{name}.norm.gamma", columns))


def _half(weights: Weights, name: str, columns: range) -> npt.NDArray[np.float16]:
    """Outputs of a matrix, a row each, or elements of a vector."""
    stored = weights.stored(name)
    array, first = stored.part(columns.start, len(columns))
    return to_half(array[first : first + len(columns)], stored.kind, stored.label)


def _line(vector: npt.NDArray[np.floating]) -> Bytes:
    return pack_rows(vector[None], padded(vector.nbytes)).reshape(-1)


def _fp32(weights: Weights, name: str) -> npt.NDArray[np.float32]:
    """A vector in FP32, as the file has it."""
    stored = weights.stored(name)
    array = np.asarray(stored.array)
    if stored.kind == "BF16":
        found = (array.astype(np.uint32) << 16).view(np.float32)
    else:
        found = array.astype(np.float32)
    if not np.isfinite(found).all():
        raise ModelError(f"{stored.label}: holds a value that is not finite; expected numbers")
    return found
