"""A model's files: a Hugging Face folder or a GGUF file. What reads a model asks these, and not
which of the two it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lora_host.errors import ModelError
from lora_sdk.gguf.file import GgufFile, is_gguf
from lora_sdk.gguf.parts import open_gguf
from lora_sdk.model.entries import find_prefix
from lora_sdk.model.experts import stacked_sources
from lora_sdk.model.fields import Fields
from lora_sdk.model.folder import AnyTensors, find_tensors, has_weights
from lora_sdk.model.gguf_architectures import Architecture
from lora_sdk.model.gguf_config import architecture_of, config_values
from lora_sdk.model.gguf_container import GgufContainer
from lora_sdk.model.gguf_matrix import head_source, matrix_of, quantization_of
from lora_sdk.model.gguf_rope import FACTORS, LONG, SHORT
from lora_sdk.model.gguf_sources import gguf_sources
from lora_sdk.model.json_file import read_json
from lora_sdk.model.methods import QuantizedTensors, open_quantized, read_quantization
from lora_sdk.model.quantization import MatrixFormat, Quantization
from lora_sdk.model.quantized import QuantizedMatrix, ReorderedMatrix, TensorFiles
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

if TYPE_CHECKING:
    from lora_sdk.model.families.registry import Family

CONFIG = "config.json"
GENERATION = "generation_config.json"
FileName = Callable[[Source], str]


class ModelFiles(Protocol):
    """The files of one model."""

    @property
    def path(self) -> Path:
        """The folder or the file."""

    @property
    def described(self) -> str:
        """What defines the model, for messages."""

    @property
    def has_weights(self) -> bool:
        """Whether there are weights."""

    def config_values(self) -> dict[str, Any]:
        """config.json's fields. ModelError: the file cannot be read."""

    def generation_values(self) -> dict[str, Any] | None:
        """generation_config.json's fields, None without them."""

    def tensors(self) -> AnyTensors:
        """File's tensor name -> (file, entry), from headers only."""

    def prefixes(self, family: Family) -> tuple[str, ...]:
        """What tensors' names may begin with."""

    def ignored(self, family: Family) -> re.Pattern[str]:
        """Names of tensors that mean nothing."""

    def sources(self, family: Family, config: ModelConfig) -> dict[str, Source]:
        """Canonical name -> where it lies in the files, lm_head only where it is not tied."""

    def quantization(
        self, fields: Fields, family: Family, config: ModelConfig
    ) -> Quantization | None:
        """The formats of what is quantized."""

    def open_quantized(
        self, family: Family, config: ModelConfig, files: TensorFiles,
        sources: Mapping[str, Source], name: FileName,
    ) -> QuantizedTensors:  # fmt: skip
        """What is quantized, its tensors checked."""


def model_files(path: str | Path) -> ModelFiles:
    """The files of the model at `path`."""
    path = Path(path)
    return GgufModel(path) if is_gguf(path) else FolderModel(path)


class FolderModel:
    """A Hugging Face folder."""

    described = CONFIG

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tensors = partial(find_tensors, path)

    @property
    def has_weights(self) -> bool:
        """Whether there are weight files."""
        return has_weights(self.path)

    def config_values(self) -> dict[str, Any]:
        """The fields of config.json. ModelError, too, for a folder of GGUF files only."""
        if not (self.path / CONFIG).exists():
            found = next((file for file in sorted(self.path.glob("*.gguf"))), None)
            if found is not None:
                raise ModelError(f"{self.path}: has no {CONFIG}; name a GGUF file of it: {found}")
        return read_json(self.path / CONFIG)

    def generation_values(self) -> dict[str, Any] | None:
        """The fields of generation_config.json."""
        path = self.path / GENERATION
        return read_json(path) if path.exists() else None

    def prefixes(self, family: Family) -> tuple[str, ...]:
        """The family's."""
        return family.PREFIXES

    def ignored(self, family: Family) -> re.Pattern[str]:
        """The family's."""
        return family.IGNORED

    def sources(self, family: Family, config: ModelConfig) -> dict[str, Source]:
        """The family's, or where its experts lie in tensors of all of them."""
        found = family.sources(config)
        if config.experts is None or config.quantization is not None:
            return found
        tensors = self.tensors()
        prefix = find_prefix(tensors, family.PREFIXES, family.PROBE)
        return stacked_sources(found, {name.removeprefix(prefix) for name in tensors})

    def quantization(
        self, fields: Fields, family: Family, config: ModelConfig
    ) -> Quantization | None:
        """By config.json."""
        return read_quantization(fields, config, family.sources(config), family.PREFIXES[0])

    def open_quantized(
        self, family: Family, config: ModelConfig, files: TensorFiles,
        sources: Mapping[str, Source], name: FileName,
    ) -> QuantizedTensors:  # fmt: skip
        """By config.json."""
        values = self.config_values()
        return open_quantized(values, config, files, sources, name, family.PREFIXES[0])


class GgufModel:
    """A GGUF file, or several that are one model, by the first."""

    described = "its metadata"
    has_weights = True

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _file(self) -> GgufFile:
        return open_gguf(self.path)

    @cached_property
    def _row(self) -> Architecture:
        return architecture_of(self._file)

    @cached_property
    def _container(self) -> GgufContainer:
        return GgufContainer(self._file, self._row.one_plus)

    def config_values(self) -> dict[str, Any]:
        """The fields of config.json that the metadata means."""
        return config_values(self._file)

    def generation_values(self) -> None:
        """None: the metadata has the ids of tokens."""

    def tensors(self) -> AnyTensors:
        """All tensors."""
        container = self._container
        return {name: (container, entry) for name, entry in container.entries.items()}

    def prefixes(self, family: Family) -> tuple[str, ...]:
        """None."""
        return ("",)

    def ignored(self, family: Family) -> re.Pattern[str]:
        """The factors that are a part of the configuration."""
        return re.compile("|".join(map(re.escape, (FACTORS, LONG, SHORT))))

    def sources(self, family: Family, config: ModelConfig) -> dict[str, Source]:
        """The family's, where the converter has put them."""
        own = family.sources(config)
        self._check_counts(own)
        found = gguf_sources(self._row, config, own)
        for name in (name for name in found if name.endswith(".shared_gate")):
            source = found[name]  # of one output, which some files have as a vector
            tensor = self._file.tensors.get(source.tensor)
            if tensor is not None and len(tensor.shape) == 1:
                found[name] = replace(source, file_shape=source.file_shape[1:])
        return found

    def _check_counts(self, own: Mapping[str, Source]) -> None:
        """Before anything as long as these is made: ModelError for more outputs than any tensor."""
        shapes = [tensor.shape for tensor in self._file.tensors.values() if tensor.shape]
        largest = max(map(max, shapes), default=0)
        for name, source in own.items():
            if source.count > largest:
                raise ModelError(
                    f"{self.path}: {name} has {source.count} outputs by its metadata, the longest "
                    f"side of a tensor is {largest}; expected metadata of these tensors"
                )

    def quantization(
        self, fields: Fields, family: Family, config: ModelConfig
    ) -> Quantization | None:
        """By the tensors' types."""
        types = {name: tensor.type.name for name, tensor in self._file.tensors.items()}
        return quantization_of(config, self.sources(family, config), types)

    def open_quantized(
        self, family: Family, config: ModelConfig, files: TensorFiles,
        sources: Mapping[str, Source], name: FileName,
    ) -> QuantizedTensors:  # fmt: skip
        """Matrices in blocks that boards compute with as they are."""
        assert config.quantization is not None
        formats = config.quantization.formats
        return QuantizedTensors(
            {one: self._matrix(head_source(sources, one), formats[one]) for one in formats}
        )

    def _matrix(self, source: Source, form: MatrixFormat) -> QuantizedMatrix:
        tensor = source.tensor
        if tensor not in self._container.entries:
            raise ModelError(f"{tensor}: missing from {self.path}")
        entry = self._container.entries[tensor]
        if entry.shape != source.file_shape:
            raise ModelError(
                f"{tensor}: shape {list(entry.shape)} in {self.path.name}, expected "
                f"{list(source.file_shape)} by its metadata"
            )
        whole = matrix_of(tensor, self._container.blocks(tensor), form)
        if source.order is None and source.count == whole.shape[1]:
            return whole
        return ReorderedMatrix(whole, tensor, source.outputs)
