"""Where canonical tensors lie in a GGUF file. The converter of llama.cpp splits or joins modules
and moves rows; a family's own sources say which rows of its modules a tensor has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lora_sdk.model.gguf_architectures import LAYER_NAMES, NAMES, SUFFIXES, Architecture
from lora_sdk.model.source import Layout, Source
from lora_sdk.model.spec import ModelConfig


def gguf_sources(
    row: Architecture, config: ModelConfig, own: Mapping[str, Source]
) -> dict[str, Source]:
    """The sources of a GGUF file from a family's `own`."""
    return {
        name: _of_experts(config, name, one) or _Place(row, config, own, name).source()
        for name, one in own.items()
    }


def _of_experts(config: ModelConfig, name: str, own: Source) -> Source | None:
    """A router, a shared expert's gate or matrix, or one of the matrices or biases of all experts
    of a layer, which lie in one tensor; None for others."""
    count, k = own.count, own.shape[0]
    match name.split("."):
        case ["layer", layer, "router" | "shared_gate" as part]:
            tensor = "ffn_gate_inp" if part == "router" else "ffn_gate_inp_shexp"
            return Source(f"blk.{layer}.{tensor}.weight", "oi", (count, k), 0, count,
                          prefixed=False)  # fmt: skip
        case ["layer", layer, "router", "bias"]:
            return Source(f"blk.{layer}.ffn_gate_inp.bias", "vector", (count,), 0, count,
                          prefixed=False)  # fmt: skip
        case ["layer", layer, "expert", number, part, "bias"] if config.experts is not None:
            return Source(f"blk.{layer}.ffn_{part}_exps.bias", "vector",
                          (config.experts.count, count), int(number) * count, count,
                          prefixed=False)  # fmt: skip
        case ["layer", layer, "shared", part]:
            return Source(f"blk.{layer}.ffn_{part}_shexp.weight", "oi", (count, k), 0, count,
                          prefixed=False)  # fmt: skip
        case ["layer", layer, "expert", number, part] if config.experts is not None:
            shape = (config.experts.count, count, k)
            return Source(f"blk.{layer}.ffn_{part}_exps.weight", "oi", shape, int(number) * count,
                          count, prefixed=False)  # fmt: skip
    return None


class _Place:
    """One canonical tensor in the file. The converter keeps the order of a part's rows in its
    module, but for pairs; so a canonical output is the file's by its rank among them."""

    def __init__(
        self, row: Architecture, config: ModelConfig, own: Mapping[str, Source], name: str
    ) -> None:
        self._row, self._config, self._own, self._name = row, config, own, name
        base, _, suffix = name.rpartition(".")
        known = suffix in SUFFIXES
        self._suffix = SUFFIXES[suffix] if known else "weight"
        self._lead, self._part, self._end = _split(base if known else name, name)

    def source(self) -> Source:
        """Its place."""
        own = self._own[self._name]
        if self._lead is None:
            return _whole(f"{NAMES[self._part]}.{self._suffix}", own)
        tensor, parts = self._tensor()
        tensor = f"{self._lead}.{tensor}.{self._suffix}"
        if own.layout not in ("io", "oi", "vector"):
            return _whole(tensor, own)
        counts = {part: self._own[self._of(part)].count for part in parts}
        first = sum(counts[part] for part in parts[: parts.index(self._part)])
        total = sum(counts.values())
        shape = (total,) if own.layout == "vector" else (total, own.shape[0])
        layout: Layout = "vector" if own.layout == "vector" else "oi"
        order = self._order(own)
        if order is not None:
            order = tuple(first + output for output in order) if first else order
        return Source(tensor, layout, shape, first, own.count, order, prefixed=False)

    def _tensor(self) -> tuple[str, tuple[str, ...]]:
        """The file's name within the layer, and the parts that the tensor has."""
        for tensor, parts in self._row.fused.items():
            if self._part in parts:
                return tensor, parts
        names = {**LAYER_NAMES, **self._row.names}
        if self._config.residual == "parallel_two_norms":
            names |= self._row.two_norms
        return names[self._part], (self._part,)

    def _of(self, part: str) -> str:
        """The canonical name of another part with the same ending."""
        layer = self._name.split(".")[1]
        return f"layer.{layer}.{part}{self._end}"

    def _order(self, own: Source) -> tuple[int, ...] | None:
        rotated = self._row.pairs and self._part in ("q", "k")
        size = self._config.head_dim if rotated else 0
        return _file_order(own.order, own.count, size)


def _split(base: str, name: str) -> tuple[str | None, str, str]:
    """(the file's lead of a layer or None, canonical part, its ending)."""
    end = name.removeprefix(base)
    if not base.startswith("layer."):
        return None, base, end
    _, layer, part = base.split(".")
    return f"blk.{layer}", part, end


def _whole(tensor: str, own: Source) -> Source:
    """A tensor that is not part of another; matrices are [output, input] in the file."""
    shape = own.file_shape if own.layout in ("table", "vector") else (own.count, own.shape[0])
    layout: Layout = "oi" if own.layout == "io" else own.layout
    return Source(tensor, layout, shape, 0, prod(shape[:1]) if layout != "table" else own.count,
                  prefixed=False)  # fmt: skip


@lru_cache(maxsize=64)
def _file_order(own: tuple[int, ...] | None, count: int, head: int) -> tuple[int, ...] | None:
    """The file's output, within its part, of each canonical one; None if it is the same. `head`:
    columns of a head whose halves the file interleaves, 0 for none."""
    ranks: NDArray[np.intp] = np.arange(count)
    if own is not None:
        ranks = np.argsort(np.argsort(np.array(own)))
    if head:
        column, half = ranks % head, head // 2
        ranks = ranks - column + 2 * (column % half) + column // half
    if np.array_equal(ranks, np.arange(count)):
        return None
    return tuple(ranks.tolist())
