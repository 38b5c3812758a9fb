"""GGUF files that a model was split into by llama-gguf-split."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_sdk.gguf.file import GgufFile, Tensor

MAX_PARTS = 1024  # each has a file descriptor while it is open
_NAME = re.compile(r"(?P<lead>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def open_gguf(path: Path) -> GgufFile:
    """The file, with the tensors of all parts where it is the first of several. ModelError: a later
    part, or parts that do not belong together."""
    file = GgufFile(path)
    count = file.metadata.integer("split.count", 0, 0, 2**16 - 1)
    if count <= 1:
        return file
    if count > MAX_PARTS:
        raise file.metadata.error("split.count", count, f"at most {MAX_PARTS}")
    if file.metadata.integer("split.no", None, 0, 2**16 - 1):
        number = file.metadata.integer("split.no")
        raise file.metadata.error("split.no", number, "0: name the first part of the model")
    return SplitFile(path, count)


class SplitFile(GgufFile):
    """The first of `count` parts: its keys, and the tensors of all in their order."""

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path)
        named = _NAME.fullmatch(path.name)
        if named is None or int(named["part"]) != 1 or int(named["count"]) != count:
            expected = f"NAME-00001-of-{count:05}.gguf: other parts are found by the name"
            raise ModelError(
                f"{path}: its name is that of no first part of {count}, expected {expected}"
            )
        own = self.tensors
        self._owner: dict[str, GgufFile] = dict.fromkeys(own, self)
        self.tensors = dict(own)
        for part in range(1, count):
            self._add(
                GgufFile(path.with_name(f"{named['lead']}-{part + 1:05}-of-{count:05}.gguf")), part
            )
        total = self.metadata.integer("split.tensors.count", len(self.tensors), 0, 2**31 - 1)
        if total != len(self.tensors):
            raise self.metadata.error(
                "split.tensors.count", total, f"the {len(self.tensors)} there are"
            )

    def raw(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The tensor's bytes, a view of its mapped file."""
        owner = self._owner[tensor.name]
        return super().raw(tensor) if owner is self else owner.raw(tensor)

    def forget(self) -> None:
        """Unmaps the pages that were read of all parts; reading maps them again."""
        super().forget()
        for owner in {id(file): file for file in self._owner.values()}.values():
            if owner is not self:
                owner.forget()

    def _add(self, part: GgufFile, number: int) -> None:
        for key, wanted in (
            ("split.no", number),
            ("split.count", self.metadata.values["split.count"]),
        ):
            if part.metadata.integer(key, None, 0, 2**16 - 1) != wanted:
                raise part.metadata.error(key, part.metadata.values[key], str(wanted))
        for name, tensor in part.tensors.items():
            if name in self._owner:
                raise part.error(f"tensor {name} is in {self._owner[name].path.name}, too")
            self._owner[name] = part
            self.tensors[name] = tensor
        self.bytes += part.bytes
