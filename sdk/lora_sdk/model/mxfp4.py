"""MXFP4 of GPT-OSS's folders: of each output 32 inputs are 16 bytes, the even input in the low
half, and one exponent, in two tensors of all experts (docs/numbers.md, 6.11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.gguf.blocks import BlockArray, named_type
from lora_sdk.model.columns import BlockColumns
from lora_sdk.model.fields import Fields
from lora_sdk.model.quantization import MatrixFormat, Quantization
from lora_sdk.model.quantized import TensorFiles
from lora_sdk.model.source import Source
from lora_sdk.model.targets import Module

METHOD = "mxfp4"
FORMAT = MatrixFormat("mxfp4")
MAX_PATTERN, MAX_RUNS = 256, 3
GROUP, BYTES = 32, 16  # weights of a block, and bytes of their values
KNOWN = ("quant_method", "modules_to_not_convert", "dequantize")
EXPERTS = re.compile(r"(?P<module>.*\.experts)\.(gate_up_proj|down_proj)")


def quantization(
    values: Mapping[str, Any], where: str, modules: Mapping[str, Module]
) -> Quantization:
    """All experts but those that `modules_to_not_convert` names, as transformers reads it.
    ModelError names a field that is wrong or unknown."""
    fields = Fields(values, where)
    for name in values:
        if name not in KNOWN:
            raise fields.error(name, values[name], "no such field with mxfp4")
    kept = values.get("modules_to_not_convert") or []
    if not isinstance(kept, list) or not all(_is_pattern(one) for one in kept):
        raise fields.error("modules_to_not_convert", kept, "a list of names")
    formats = {}
    for name, module in modules.items():
        found = EXPERTS.fullmatch(module.names[0])
        if found is not None and not any(_names(one, found["module"]) for one in kept):
            formats[name] = FORMAT
    if not formats:
        raise fields.error("quant_method", METHOD, "experts of GPT-OSS that are converted")
    return Quantization("MXFP4", formats)


def _is_pattern(one: object) -> bool:
    return isinstance(one, str) and len(one) <= MAX_PATTERN and one.count("*") <= MAX_RUNS


def _names(pattern: str, module: str) -> bool:
    """Whether a pattern, in which * stands for any run of characters, is the module, one that it
    lies in, or its end."""
    wild = ".*".join(re.escape(part) for part in pattern.replace(".*", "*").split("*"))
    return bool(re.match(rf"(?:{wild})(?:(?<=\.)|(?=\.|$))", module)) or module.endswith(pattern)


class Mxfp4Matrix:
    """The outputs of a module's tensors that `source` names; a QuantizedMatrix."""

    def __init__(self, files: TensorFiles, module: str, source: Source, form: MatrixFormat) -> None:
        inputs = source.shape[0]
        if inputs % GROUP:
            raise ModelError(f"{module}: {inputs} inputs; MXFP4 has blocks of {GROUP}")
        self.format = form
        self.shape = (inputs, source.count)
        self._files, self._module, self._first = files, module, source.first
        self._outputs, groups = source.module_outputs, inputs // GROUP
        lead = (*source.file_shape[:-2], source.file_shape[-1], groups)
        files.check(f"{module}_blocks", ("U8",), (*lead, BYTES), (*lead[:-1], groups * BYTES))
        files.check(f"{module}_scales", ("U8",), lead)
        self.tensors = frozenset((f"{module}_blocks", f"{module}_scales"))

    def columns(self, start: int, stop: int) -> BlockColumns:
        """Output columns start..stop-1, as GGUF files have blocks of MXFP4."""
        raw, kind = self._raw(start, stop), named_type("MXFP4")
        return BlockColumns(BlockArray(raw, kind, (stop - start, self.shape[0])), self._module)

    def part(self, start: int, stop: int) -> PackPart:
        """The same for the packer, a copy."""
        return PackPart(self._module, self._raw(start, stop), "MXFP4", "oi", 0, stop - start)

    def _raw(self, start: int, stop: int) -> NDArray[np.uint8]:
        """uint8 [columns, bytes of a row]: of each block the exponent, then bytes of which the low
        halves are its first 16 values."""
        rows = slice(self._first + start, self._first + stop)
        groups = self.shape[0] // GROUP
        packed = self._files.array(f"{self._module}_blocks")
        packed = packed.reshape(self._outputs, groups, BYTES)[rows]
        pairs = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)
        values = pairs.reshape(stop - start, groups, 2, BYTES)
        raw = np.empty((stop - start, groups, 1 + BYTES), np.uint8)
        scales = self._files.array(f"{self._module}_scales")
        raw[..., 0] = scales.reshape(self._outputs, groups)[rows]
        raw[..., 1:] = values[:, :, 0] | values[:, :, 1] << np.uint8(4)
        found: NDArray[np.uint8] = raw.reshape(stop - start, -1)
        return found

    def column_scales(self, start: int, stop: int) -> None:
        """None: scales are in the blocks."""

    def permutation(self) -> None:
        """None: inputs are in the file's order."""

    def input_scale(self) -> np.float32:
        """ModelError: inputs are FP16."""
        raise ModelError(f"{self._module}: has no scale of its inputs, which are FP16")
