"""The weights of a model under canonical names, as FP16 or as they are quantized, read only
when they are requested. Opening reads only headers, so planning is fast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.attention_scales import check_attention, read_attention
from lora_sdk.model.columns import Columns
from lora_sdk.model.config import Family, family_of, load_config
from lora_sdk.model.container import TensorFile
from lora_sdk.model.entries import Entries, find_prefix
from lora_sdk.model.half import to_half, to_single
from lora_sdk.model.methods import QuantizedTensors
from lora_sdk.model.model_files import ModelFiles, model_files
from lora_sdk.model.quantization import (
    FP16,
    ActivationScales,
    AttentionScales,
    format_of,
    kv_of,
    tokens_of,
)
from lora_sdk.model.quantized import QuantizedMatrix, TensorFiles
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.stored import Stored

TIED_ROWS = 4096  # compared at once


class Checkpoint:
    """Memory-mapped weights; make one with `Checkpoint.open`."""

    def __init__(
        self,
        files: ModelFiles,
        config: ModelConfig,
        sources: Mapping[str, Source],
    ) -> None:
        self.folder = files.path
        self._model = files
        self.config = config
        self._sources = sources
        family, tensors = family_of(config), files.tensors()
        prefix = find_prefix(tensors, files.prefixes(family), family.PROBE)
        self._entries = Entries(files.path, config, sources, tensors, prefix, files.described)
        self._tied_checked = False
        self._files = TensorFiles(files.path, tensors)
        self._opened = QuantizedTensors()
        self._attention: dict[str, str] = {}  # scales of attention: "layer.part" -> file's name

    @classmethod
    def open(cls, folder: str | Path, config: ModelConfig | None = None) -> Checkpoint:
        """Check names, types and shapes of all tensors against `config` (read from the folder
        where None). Raises ModelError naming the tensor or file: missing, extra, misshapen, of a
        type other than F32, BF16, F16; truncated or corrupt files."""
        files = model_files(folder)
        config = config or load_config(folder)
        family = family_of(config)
        sources = files.sources(family, config)
        checkpoint = cls(files, config, sources)
        if config.quantization is not None:
            checkpoint._open_quantized(family)
        checkpoint._check(files.ignored(family))
        if config.tied:
            table = sources["embed.token"]
            rows, columns = table.file_shape
            sources["lm_head"] = replace(table, layout="oi", file_shape=(rows, columns), count=rows)
        return checkpoint

    @property
    def names(self) -> tuple[str, ...]:
        """All canonical names; `lm_head` is among them also where it is tied."""
        return tuple(self._sources)

    @property
    def bytes(self) -> int:
        """Bytes of the model as boards store it, FP16 or quantized, a tied pair counted once (its
        second copy is a replica)."""
        return sum(
            self._bytes_of(name)
            for name in self._sources
            if not (name == "lm_head" and self.config.tied and self._one_pair)
        )

    def has(self, name: str) -> bool:
        """Whether the model has a tensor of this canonical name."""
        return name in self._sources

    def source(self, name: str) -> Source:
        """Where a tensor lies in the files. ModelError if the model has none of this name."""
        return self._source(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Canonical shape: matrices [K, N], vectors [N], tables [rows, columns]."""
        return self._source(name).shape

    def matrix(self, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.float16]:
        """Output columns start..stop-1 of a matrix: FP16 [K, stop-start], C order. Only those
        columns are read. ModelError names the tensor on NaN, infinity or |w| >= 65520."""
        source = self._source(name, "io", "oi")
        self._check_half(name)
        start, stop = _range(name, start, stop, source.count)
        if name == "lm_head" and self.config.tied:
            self._entries.check_tied(start, stop)
        part, kind, label = self._part(source, start, stop)
        half = to_half(part, kind, label)
        return half if source.layout == "io" else np.ascontiguousarray(half.T)

    def vector(self, name: str) -> NDArray[np.float16] | NDArray[np.float32]:
        """A bias or norm parameter: FP16 [N], or FP32 where it is `wide` (model/source.py)."""
        source = self._source(name, "vector")
        if source.wide:
            return to_single(*self._part(source, 0, source.count))
        derived = self._opened.vectors.get(name)
        if derived is not None:
            return to_half(derived.values(), "F32", derived.stored)
        return to_half(*self._part(source, 0, source.count))

    def table(
        self, name: str, column_start: int = 0, column_stop: int | None = None
    ) -> NDArray[np.float16]:
        """Columns of an embedding: FP16 [rows, column_stop-column_start]."""
        source = self._source(name, "table")
        start, stop = _range(name, column_start, column_stop, source.count)
        raw, kind, label = self._entries.raw(source)
        return to_half(raw[:, start:stop], kind, label)

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.float16]:
        """Whole rows start..stop-1 of an embedding: FP16 [stop-start, columns]."""
        source = self._source(name, "table")
        start, stop = _range(name, start, stop, source.file_shape[0])
        raw, kind, label = self._entries.raw(source)
        return to_half(raw[start:stop], kind, label)

    def stored(self, name: str) -> Stored:
        """A tensor as the file stores it, not converted and not checked. ModelError if the tensors
        of a tied pair differ."""
        source = self._source(name)
        self._check_half(name)
        if name == "lm_head" and self.config.tied and not self._tied_checked:
            for start in range(0, source.count, TIED_ROWS):
                self._entries.check_tied(start, min(source.count, start + TIED_ROWS))
            self._tied_checked = True
        derived = self._opened.vectors.get(name)
        if derived is not None:
            return Stored(derived.stored, derived.values(), "F32", "io", 0, source.count)
        return self._stored(source)

    def columns(self, name: str, start: int = 0, stop: int | None = None) -> Columns:
        """Output columns start..stop-1 of a quantized matrix, as its format's class; only those are
        read. ModelError names the tensor whose scales are negative, not finite or, of 4-bit
        weights, out of FP16's range."""
        start, stop = _range(name, start, stop, self._source(name).count)
        return self._quantized_matrix(name).columns(start, stop)

    def part(self, name: str, start: int, stop: int) -> PackPart:
        """Output columns start..stop-1 of a quantized matrix for the packer, values not checked;
        ModelError as `columns`."""
        start, stop = _range(name, start, stop, self._source(name).count)
        return self._quantized_matrix(name).part(start, stop)

    def column_scales(self, name: str, start: int, stop: int) -> NDArray[np.float32] | None:
        """FP32 scales of output columns start..stop-1 of a quantized matrix; None if scales are
        per group. ModelError names scales that are negative or not finite."""
        start, stop = _range(name, start, stop, self._source(name).count)
        return self._quantized_matrix(name).column_scales(start, stop)

    def permutation(self, name: str) -> NDArray[np.uint32] | None:
        """Inputs of a matrix in the order of its groups, uint32 [K] (act-order); None if they are
        not permuted."""
        found = self._quantized.get(name)
        return None if found is None else found.permutation()

    def input_scale(self, name: str) -> np.float32:
        """The static scale of the INT8 inputs of a matrix; ModelError names it if it is not
        a positive number."""
        return self._quantized_matrix(name).input_scale()

    def attention_scales(self, layer: int) -> AttentionScales:
        """Static scales of q, k and v of a layer with INT8 attention."""
        if self._opened.attention:
            return self._opened.attention[layer]
        return read_attention(self._files, self._attention, layer)

    def activation_scales(self) -> ActivationScales:
        """All static scales at once, which lowering needs; empty if nothing is quantized."""
        inputs = {
            name: found.input_scale()
            for name, found in self._quantized.items()
            if found.format.static
        }
        layers = self.config.layers if kv_of(self.config).static else 0
        return ActivationScales(inputs, tuple(map(self.attention_scales, range(layers))))

    def forget(self) -> None:
        """Unmaps the files' pages that were read. The system keeps them in its page cache."""
        for container in self._containers:
            container.forget()

    @cached_property
    def _containers(self) -> list[TensorFile]:
        found = {container.path: container for container, _ in self._entries.tensors.values()}
        return list(found.values())

    def _source(self, name: str, *layouts: str) -> Source:
        source = self._sources.get(name)
        if source is None:
            raise ModelError(f"{name}: no such tensor in {self.folder}")
        if layouts and source.layout not in layouts:
            raise ModelError(f"{name}: is a {source.layout}, read as {' or '.join(layouts)}")
        return source

    def _stored(self, source: Source) -> Stored:
        raw, kind, label = self._entries.raw(source)
        axes: Literal["io", "oi"] = "oi" if source.layout == "oi" else "io"
        order, first = None if source.order is None else source.outputs, source.first
        if source.layout == "io" and raw.ndim > 2:  # one of several
            before = source.number * source.file_shape[-1]
            raw, first = raw[source.number], first - before
            order = None if order is None else order - before
        return Stored(label, raw, kind, axes, first, source.count, order)

    def _part(self, source: Source, start: int, stop: int) -> tuple[NDArray[Any], str, str]:
        """Outputs start..stop-1 of a matrix or vector as the file has them, its type and name."""
        stored = self._stored(source)
        array, first = stored.part(start, stop - start)
        chosen = slice(first, first + stop - start)
        part = array[:, chosen] if source.layout == "io" else array[chosen]
        return part, stored.kind, stored.label

    def _open_quantized(self, family: Family) -> None:
        self._opened = self._model.open_quantized(
            family, self.config, self._files, self._sources, self._entries.name
        )
        if not self._opened.attention:
            layers = range(self.config.layers)
            self._attention = check_attention(
                self._files,
                [self._entries.name(self._sources[f"layer.{i}.q"]) for i in layers],
                needed=kv_of(self.config).static,
            )

    def _check(self, ignored: re.Pattern[str]) -> None:
        """Checks that every tensor is there and no other."""
        others = {*self._quantized, *self._opened.vectors}
        used = {*self._attention.values(), *self._opened.tensors}
        for matrix in self._quantized.values():
            used |= matrix.tensors
        for vector in self._opened.vectors.values():
            used |= vector.tensors
        plain = {name: source for name, source in self._sources.items() if name not in others}
        self._entries.check(plain, used, ignored)

    @property
    def _quantized(self) -> dict[str, QuantizedMatrix]:
        return self._opened.matrices

    def _quantized_matrix(self, name: str) -> QuantizedMatrix:
        found = self._quantized.get(name)
        if found is None:
            raise ModelError(f"{name}: is {FP16}, read as quantized")
        return found

    def _check_half(self, name: str) -> None:
        if name in self._quantized:
            raise ModelError(f"{name}: is {self._quantized[name].format}, read as {FP16}")

    @property
    def _one_pair(self) -> bool:
        """Whether lm_head's numbers are stored as the token table's."""
        return format_of(self.config, ("lm_head",)) == tokens_of(self.config)

    def _bytes_of(self, name: str) -> int:
        if name == "embed.token" and tokens_of(self.config) != FP16:
            rows, columns = self.shape(name)
            return tokens_of(self.config).bytes(columns, rows)
        if name in self._quantized:
            return self._quantized[name].format.bytes(*self._quantized[name].shape)
        return (4 if self._source(name).wide else 2) * prod(self._source(name).shape)


def _range(name: str, start: int, stop: int | None, count: int) -> tuple[int, int]:
    stop = count if stop is None else stop
    if not 0 <= start <= stop <= count:
        raise ModelError(f"{name}: columns {start}..{stop} requested of {count}")
    return start, stop
