"""The tensors of a folder by the names that a model's sources give them: from headers only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lora_host.errors import ModelError
from lora_sdk.model.container import RAW_TYPES, Elements
from lora_sdk.model.folder import AnyTensors
from lora_sdk.model.half import to_half
from lora_sdk.model.source import Source
from lora_sdk.model.spec import ModelConfig

HEAD = "lm_head.weight"
LAYER = re.compile(r"layers\.(\d{1,9})\.")


@dataclass(frozen=True)
class Entries:
    """`tensors` of `folder`, whose names begin with `prefix`. `described`: what defines the model,
    for messages."""

    folder: Path
    config: ModelConfig
    _sources: Mapping[str, Source]
    tensors: AnyTensors
    prefix: str
    described: str = "config.json"

    def name(self, source: Source) -> str:
        """The file's name of a source's tensor."""
        name = source.full_name(self.prefix)
        # A tied file may hold the pair under lm_head's name only.
        embeds = source.tensor == self._sources["embed.token"].tensor
        missing = name not in self.tensors and HEAD in self.tensors
        return HEAD if embeds and missing and self.config.tied else name

    def raw(self, source: Source) -> tuple[Elements, str, str]:
        """The whole tensor of the file, of several [output, input] or vectors as one, its type and
        its name."""
        name = self.name(source)
        container, entry = self.tensors[name]
        found = container.array(entry)
        if source.layout == "oi" and isinstance(found, np.ndarray):
            found = found.reshape(-1, entry.shape[-1])
        if len(entry.shape) > 1 and source.layout == "vector" and isinstance(found, np.ndarray):
            found = found.reshape(-1)
        return found, entry.kind, name

    def check(self, plain: Mapping[str, Source], used: set[str], ignored: re.Pattern[str]) -> None:
        """ModelError: a tensor of `plain` is missing, misshapen or not a float, or one that is
        neither among these nor in `used`."""
        for source in plain.values():
            name = self.name(source)
            if name not in self.tensors:
                raise ModelError(
                    f"{name}: missing from {self.folder}, expected shape {list(source.file_shape)}"
                )
            self._check_entry(name, source.file_shape)
        if self.config.tied and HEAD in self.tensors:
            self._check_entry(HEAD, self._sources["embed.token"].file_shape)
            used = used | {HEAD}
        self._check_extra({self.name(source) for source in plain.values()} | used, ignored)

    def _check_entry(self, name: str, shape: tuple[int, ...]) -> None:
        container, entry = self.tensors[name]
        if entry.shape != shape:
            raise ModelError(
                f"{name}: shape {list(entry.shape)} in {container.path.name}, expected"
                f" {list(shape)} by {self.described}"
            )
        if entry.kind not in RAW_TYPES:
            raise ModelError(
                f"{name}: dtype {entry.kind} in {container.path.name}, expected one of"
                f" {', '.join(RAW_TYPES)}"
            )

    def _check_extra(self, used: set[str], ignored: re.Pattern[str]) -> None:
        extra = [
            name
            for name in self.tensors
            if name not in used
            and not ignored.fullmatch(name.removeprefix(self.prefix))
            and not self._in_extra_layer(name)
        ]
        if extra:
            more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
            raise ModelError(
                f"{sorted(extra)[0]}{more}: in {self.folder} but not in a model of"
                f" {self.described}, expected no other tensors"
            )

    def _in_extra_layer(self, name: str) -> bool:
        """Whether a tensor is of a layer behind the model's last one, which is not read."""
        found, config = LAYER.match(name.removeprefix(self.prefix)), self.config
        behind = int(found[1]) - config.layers if found else -1
        return 0 <= behind < config.extra_layers

    def check_tied(self, start: int, stop: int) -> None:
        """Where a tied file holds both of the pair they must agree: readers differ on which one
        would win."""
        token = self.name(self._sources["embed.token"])
        if HEAD not in self.tensors or token == HEAD:
            return
        (here, entry), (there, other) = self.tensors[HEAD], self.tensors[token]
        head = to_half(here.array(entry)[start:stop], entry.kind, HEAD)
        tokens = to_half(there.array(other)[start:stop], other.kind, token)
        if not np.array_equal(head, tokens):
            raise ModelError(
                f"{HEAD}: differs from {token} though tie_word_embeddings is true; set"
                " it to false in config.json to use both"
            )


def find_prefix(tensors: Iterable[str], prefixes: tuple[str, ...], probe: str) -> str:
    """The prefix of a folder's tensor names, one of `prefixes`."""
    names = [name for name in tensors if name != HEAD]
    for prefix in prefixes:
        if prefix + probe in names:
            return prefix
    # The probe itself is missing: the error that follows names it with the prefix of this file.
    for prefix in prefixes:
        if prefix and any(name.startswith(prefix) for name in names):
            return prefix
    return prefixes[-1]
