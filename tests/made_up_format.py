"""A weight format that only this file knows: four-bit weights, one per byte, inputs along the rows,
with a power of two per 32 inputs of an output. Boards compute it as W4A16.

`quantization_config` is {"quant_method": "exponents", "modules": [...]}: for each
module listed `codes` INT8 [K, N] in -8..7 and `exponents` INT8 [K/32, N], w = codes * 2^exponents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from lora_host.errors import ModelError
from lora_host.placing import PackPart
from lora_sdk.model.columns import Int4Columns
from lora_sdk.model.methods import Maker, Method, register_method
from lora_sdk.model.quantization import MatrixFormat, Quantization
from lora_sdk.model.quantized import TensorFiles
from lora_sdk.model.source import Source
from lora_sdk.model.targets import Module
from lora_sdk.model.weight_formats import W4A16, register

METHOD = "exponents"
FILE = "model.safetensors"
GROUP, MIDDLE = 32, 8
FORMAT = register(
    replace(
        W4A16,
        name="w4a16-exponents",
        title="W4A16 in powers of two",
        blocks={GROUP: W4A16.blocks[GROUP]},
        scheme=None,
        compressed=(),
    )
)


class ExponentMatrix:
    """A module of such a folder; a QuantizedMatrix."""

    def __init__(self, files: TensorFiles, module: str, source: Source, form: MatrixFormat) -> None:
        self.format = form
        self.shape = (source.shape[0], source.shape[1])
        self._files = files
        self._codes, self._exponents = f"{module}.codes", f"{module}.exponents"
        files.check(self._codes, ("I8",), self.shape)
        files.check(self._exponents, ("I8",), (self.shape[0] // GROUP, self.shape[1]))
        self.tensors = frozenset({self._codes, self._exponents})

    def columns(self, start: int, stop: int) -> Int4Columns:
        """As boards' 4-bit weights are packed: outputs as rows, a zero point in the middle."""
        codes = self._files.array(self._codes)[:, start:stop].T
        scales = power(self._files.array(self._exponents)[:, start:stop].T)
        values = np.ascontiguousarray(codes + np.int8(MIDDLE)).view(np.uint8)
        half = np.ascontiguousarray(scales.astype(np.float16))
        return Int4Columns(values, half, np.full(half.shape, MIDDLE, np.uint8))

    def part(self, start: int, stop: int) -> PackPart:
        return self.columns(start, stop).part(self._codes)

    def column_scales(self, start: int, stop: int) -> None:
        """Scales belong to groups."""

    def permutation(self) -> None:
        """Inputs come as they are."""

    def input_scale(self) -> np.float32:
        raise ModelError(f"{self._codes}: has FP16 inputs, which have no scale")


def power(exponents: NDArray[np.int8]) -> NDArray[np.float32]:
    """2^exponents in FP32."""
    found: NDArray[np.float32] = np.ldexp(np.float32(1), exponents.astype(np.int32))
    return found


def _read(
    values: Mapping[str, Any], where: str, modules: Mapping[str, Module], ks: Mapping[str, int]
) -> Quantization:
    listed = values.get("modules")
    if not isinstance(listed, list):
        raise ModelError(f"{where}.modules: found {listed!r}, expected a list of names")
    names = [name for name, module in modules.items() if set(module.names) & set(listed)]
    return Quantization("exponents", dict.fromkeys(names, MatrixFormat(FORMAT.name, GROUP)))


def _open(
    values: Mapping[str, Any], where: str, files: TensorFiles, modules: Mapping[str, Module]
) -> Maker:
    return lambda name, module, source, form: ExponentMatrix(files, module, source, form)


register_method(METHOD, Method(_read, _open))


def rewrite(plain: Path, folder: Path, modules: Sequence[str]) -> Path:
    """`folder` with these modules, torch's Linear in one file of `plain`, in the format."""
    tensors = load_file(plain / FILE)
    for module in modules:
        weight = tensors.pop(f"{module}.weight").astype(np.float32).T
        groups = weight.reshape(-1, GROUP, weight.shape[1])
        exponents = np.ceil(np.log2(np.abs(groups).max(axis=1) / 7)).astype(np.int8)
        codes = np.rint(groups / power(exponents)[:, None])
        tensors[f"{module}.codes"] = codes.reshape(weight.shape).astype(np.int8)
        tensors[f"{module}.exponents"] = exponents
    folder.mkdir()
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, folder / FILE)
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {"quant_method": METHOD, "modules": list(modules)}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
