"""SmoothQuant's export of OPT in INT8 (Int8OPTForCausalLM, torch-int's tensors), as safetensors.

Its norms are divided by the scale of their readers, and its matmuls write INT8 directly. So a file
contains only ratios of scales: a (matmul) and b (bias) of each linear layer, a of both attention
matmuls. Any scales with these ratios are correct. Here:

- inputs have scale 1: norms, attention and fc1 write values in units of an INT8 step;
- q and k have one scale s with s*s/sqrt(head_dim) = a of q*k (the export folded 1/sqrt(head_dim)
  into q's weights); v has 127 * a of p*v, whose probabilities are in units of 1/127;
- a weight's scale is then a times the scale of what it writes, a bias b times that.

Values differ from torch-int's by our rounding to FP16 before each requantization and by our INT8
weights of attention (docs/numbers.md, 6.6 and 6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from lora_host.placing import PackPart
from lora_sdk.model.columns import Int8Columns
from lora_sdk.model.quantization import (
    AttentionScales,
    MatrixFormat,
    Quantization,
)
from lora_sdk.model.quantized import FLOATS, TensorFiles
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.weight_formats import INT8

CLASS = "Int8OPTForCausalLM"
WRITES_INT8 = ("q", "k", "v", "up")
STEPS = 127  # of a probability
UNIT: np.float32 = np.float32(1)


def quantization(config: ModelConfig) -> Quantization:
    """Every linear layer and attention in INT8; embeddings and lm_head in FP16."""
    formats = {
        f"layer.{layer}.{name}": MatrixFormat(INT8.name)
        for layer in range(config.layers)
        for name in ("q", "k", "v", "o", "up", "down")
    }
    return Quantization("W8A8, int8 KV (SmoothQuant's export)", formats, "int8")


class Int8OptLayers:
    """The contents of a folder of this kind. Its few scalars are read at opening."""

    def __init__(self, files: TensorFiles, modules: Mapping[str, str], config: ModelConfig) -> None:
        """`modules`: the file's module of each quantized matrix by canonical name. ModelError names
        a tensor that is missing, misshapen or not a positive number."""
        self._files = files
        self._modules = modules
        self._head_dim = config.head_dim
        self.attention = tuple(self._attention(layer) for layer in range(config.layers))

    def matrix(self, name: str, shape: tuple[int, int]) -> Int8OptMatrix:
        """The matrix `name` of `shape` [K, N]."""
        module = self._modules[name]
        scale = np.float32(self._files.scalar(f"{module}.a") * self._output(name))
        return Int8OptMatrix(self._files, module, shape, scale)

    def bias(self, name: str, count: int) -> DerivedVector:
        """The bias of the matrix `name`, of `count` outputs."""
        module = self._modules[name]
        stored = f"{module}.bias"
        if not name.endswith(WRITES_INT8):
            self._files.check(stored, FLOATS, (count,), (1, count))
            return DerivedVector(self._files, stored, frozenset({stored}), UNIT)
        self._files.check(stored, ("I8",), (count,), (1, count))
        scale = np.float32(self._files.scalar(f"{module}.b") * self._output(name))
        return DerivedVector(self._files, stored, frozenset({stored, f"{module}.b"}), scale)

    @property
    def tensors(self) -> frozenset[str]:
        """Names of attention's scalars."""
        return frozenset(
            f"{self._attention_module(layer)}.{part}.a"
            for layer in range(len(self.attention))
            for part in ("qk_bmm", "pv_bmm")
        )

    def _output(self, name: str) -> np.float32:
        """The scale of a matrix's output: of q, k and v; 1 for fc1, whose reader has scale 1, and
        for matrices that add to the residual."""
        layer, letter = name.split(".")[1:]
        if letter not in ("q", "k", "v"):
            return UNIT
        scales = self.attention[int(layer)]
        return {"q": scales.q, "k": scales.k, "v": scales.v}[letter]

    def _attention(self, layer: int) -> AttentionScales:
        module = self._attention_module(layer)
        scores = self._files.scalar(f"{module}.qk_bmm.a")
        values = self._files.scalar(f"{module}.pv_bmm.a")
        both = np.float32(sqrt(float(scores) * sqrt(self._head_dim)))
        return AttentionScales(both, both, np.float32(STEPS * float(values)))

    def _attention_module(self, layer: int) -> str:
        return self._modules[f"layer.{layer}.q"].rpartition(".")[0]


class Int8OptMatrix:
    """A linear layer of torch-int; a QuantizedMatrix. INT8 [out, in] with one scale."""

    def __init__(
        self, files: TensorFiles, module: str, shape: tuple[int, int], scale: np.float32
    ) -> None:
        self.format = MatrixFormat(INT8.name)
        self.shape = shape
        self._files = files
        self._weight = f"{module}.weight"
        self._scale = scale
        files.check(self._weight, ("I8",), shape[::-1])
        self.tensors = frozenset({self._weight, f"{module}.a"})

    def columns(self, start: int, stop: int) -> Int8Columns:
        """Output columns start..stop-1."""
        values: NDArray[np.int8] = np.array(self._files.array(self._weight)[start:stop])
        return Int8Columns(values, self.column_scales(start, stop))

    def part(self, start: int, stop: int) -> PackPart:
        """The file's own values."""
        array = self._files.array(self._weight)
        return PackPart(self._weight, array, "I8", "oi", start, stop - start)

    def column_scales(self, start: int, stop: int) -> NDArray[np.float32]:
        """One number for all columns."""
        return np.full(stop - start, self._scale, np.float32)

    def permutation(self) -> None:
        """None: inputs are not permuted."""

    def input_scale(self) -> np.float32:
        """1: inputs are in units of an INT8 step."""
        return UNIT


@dataclass(frozen=True)
class DerivedVector:
    """A bias computed from a stored one: values * scale in FP32."""

    files: TensorFiles
    stored: str
    tensors: frozenset[str]
    scale: np.float32

    def values(self) -> NDArray[np.float32]:
        """FP32 [n]."""
        made: NDArray[np.float32] = self.files.numbers(self.stored).reshape(-1) * self.scale
        return made
