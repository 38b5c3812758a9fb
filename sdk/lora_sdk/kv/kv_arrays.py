"""Keys and values of a sequence as plain arrays (docs/prefill.md), and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lora_host.errors import RequestError
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.model.quantization import AttentionScales, kv_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lora_sdk.model.spec import ModelConfig

LOWEST = -127  # of stored INT8 values (docs/numbers.md, 6.1)


@dataclass(frozen=True, eq=False)  # arrays
class KvArrays:
    """K and V of the positions of one sequence, as boards store them.

    `k`, `v` [layers, KV heads, positions, head_dim]: FP16, or int8 with `k_scales` and `v_scales`:
    of "int8" FP32 [layers], of "int8-heads" FP16 [layers, KV heads, positions]. A value is its
    integer times its scale."""

    kind: KvKind
    k: npt.NDArray[Any]
    v: npt.NDArray[Any]
    k_scales: npt.NDArray[Any] | None = None
    v_scales: npt.NDArray[Any] | None = None

    @property
    def positions(self) -> int:
        """Number of positions."""
        return int(self.k.shape[2])

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        every = (self.k, self.v, self.k_scales, self.v_scales)
        return sum(array.nbytes for array in every if array is not None)

    def with_columns(self, order: npt.NDArray[np.intp]) -> KvArrays:
        """The same with K's columns of layer l in the order `order[l]`; `order` is [layers,
        head_dim]."""
        if (order == np.arange(order.shape[1])).all():
            return self
        moved = np.take_along_axis(self.k, order[:, None, None, :], axis=3)
        return KvArrays(self.kind, moved, self.v, self.k_scales, self.v_scales)


def joined(parts: Sequence[KvArrays], axis: int) -> KvArrays:
    """Layers (`axis` 0) or positions (2), one after another; static scales are left out."""
    scales: list[npt.NDArray[Any] | None] = [None, None]
    if parts[0].kind == "int8-heads":
        names = ("k_scales", "v_scales")
        scales = [np.concatenate([getattr(p, name) for p in parts], axis) for name in names]
    k, v = (np.concatenate([getattr(part, name) for part in parts], axis) for name in "kv")
    return KvArrays(parts[0].kind, k, v, *scales)


def joined_positions(parts: Sequence[KvArrays]) -> KvArrays:
    """Positions one after another; static scales are left out."""
    scales: list[npt.NDArray[Any] | None] = [None, None]
    if parts[0].kind == "int8-heads":
        names = ("k_scales", "v_scales")
        scales = [np.concatenate([getattr(part, n) for part in parts], axis=2) for n in names]
    k, v = (np.concatenate([getattr(part, name) for part in parts], axis=2) for name in "kv")
    return KvArrays(parts[0].kind, k, v, *scales)


def static_scales(scales: Sequence[AttentionScales]) -> tuple[npt.NDArray[np.float32], ...]:
    """FP32 [layers] of k and of v."""
    return (
        np.array([one.k for one in scales], np.float32),
        np.array([one.v for one in scales], np.float32),
    )


def check_arrays(
    kv: KvArrays, config: ModelConfig, positions: int, scales: Sequence[AttentionScales]
) -> None:
    """RequestError unless `kv` has `positions` positions of the model, finite, in the type of its
    KV cache, with its static `scales` where it has some."""
    if not isinstance(kv, KvArrays):
        raise RequestError(f"kv is {kv!r:.60}; expected KvArrays")
    form = kv_of(config)
    if kv.kind != form.name:
        raise RequestError(
            f"kv has type {kv.kind!r:.60}; the engine's KV cache has type {form.name!r}"
        )
    each = (config.layers, config.kv_heads, positions)
    kind = np.int8 if form.quantized else np.float16
    for name, given in (("k", kv.k), ("v", kv.v)):
        array = _check(name, given, kind, (*each, config.head_dim))
        if form.quantized and array.size and int(array.min()) < LOWEST:
            raise RequestError(f"kv.{name} holds {array.min()}; expected {LOWEST} to 127")
    found = (("k_scales", kv.k_scales), ("v_scales", kv.v_scales))
    if not form.quantized:
        for name, scale in found:
            if scale is not None:
                raise RequestError(f"kv.{name} is given; expected None for type {form.name!r}")
        return
    for (name, scale), wanted in zip(found, static_scales(scales), strict=True):
        if form.by_head:
            array = _check(name, scale, np.float16, each)
            if array.size and array.min() < 0:
                raise RequestError(f"kv.{name} holds {array.min()}; expected scales from 0 on")
            continue
        array = _check(name, scale, np.float32, (config.layers,))
        if array.tobytes() != wanted.tobytes():
            layer = int(np.flatnonzero(array != wanted)[0])
            raise RequestError(
                f"kv.{name} of layer {layer} is {array[layer]}; the model has {wanted[layer]}"
            )


def _check(
    name: str, array: object, kind: type[np.generic], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    if not isinstance(array, np.ndarray):
        raise RequestError(f"kv.{name} is {array!r:.60}; expected a NumPy array")
    if array.dtype != kind:
        raise RequestError(f"kv.{name} has dtype {array.dtype}; expected {np.dtype(kind)}")
    if array.shape != shape:
        raise RequestError(f"kv.{name} has shape {array.shape}; expected {shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise RequestError(f"kv.{name}{list(at)} is {array[at]}; expected finite numbers")
    return array
