"""A model's weights on a torch device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lora_host.errors import ModelError, RequestError
from lora_prefill.exact.matrices import HalfMatrix, Int4Matrix, Int8Matrix, Matrix, Scale
from lora_sdk.model.block import Block, describe
from lora_sdk.model.columns import Int4Columns, Int8Columns
from lora_sdk.model.operations import Matmul
from lora_sdk.model.quantization import ActivationScales, MatrixFormat, format_of

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


class Source(Protocol):
    """The part of lora_sdk.model.checkpoint.Checkpoint that this uses."""

    def matrix(self, name: str) -> NDArray[np.float16]: ...
    def vector(self, name: str) -> NDArray[np.float16] | NDArray[np.float32]: ...
    def table(self, name: str) -> NDArray[np.float16]: ...
    def shape(self, name: str) -> tuple[int, ...]: ...
    def columns(self, name: str, start: int, stop: int) -> Any: ...
    def permutation(self, name: str) -> NDArray[np.uint32] | None: ...
    def activation_scales(self) -> ActivationScales: ...


class Weights:
    """Reads what an operation needs, once."""

    def __init__(self, config: ModelConfig, source: Source, device: torch.device) -> None:
        self.config = config
        self.block: Block = describe(config)
        self.scales = source.activation_scales()
        self.device = device
        self._source = source

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """A copy of an array."""
        return torch.from_numpy(np.array(array, order="C")).to(self.device)

    def table(self, name: str) -> Tensor:
        """FP16 [rows, columns]."""
        return self.to_device(self._source.table(name))

    def vector(self, name: str) -> Tensor:
        """A norm's parameter in FP32 [N], which is exact."""
        return self.to_device(self._source.vector(name)).float()

    def bias(self, matmul: Matmul) -> Tensor | None:
        """FP32 [N] of all outputs; None without one."""
        if not matmul.bias:
            return None
        return torch.cat([self.vector(f"{name}.bias") for name in matmul.tensors])

    def matrix(self, matmul: Matmul) -> Matrix:
        """All outputs of a matmul side by side."""
        form = format_of(self.config, matmul.tensors)
        return MATRICES[form.weights.abi_type](self, matmul, form)

    def columns(self, matmul: Matmul) -> list[Any]:
        """The quantized columns of each output."""
        found = []
        for name in matmul.tensors:
            count = self._source.shape(name)[1]
            found.append(self._source.columns(name, 0, count))
        return found

    def halves(self, matmul: Matmul) -> Tensor:
        """FP16 [K, N] of matrices that files hold as such."""
        each = [self._source.matrix(name) for name in matmul.tensors]
        return self.to_device(np.concatenate(each, axis=1))

    def order(self, matmul: Matmul) -> Tensor | None:
        """The input at each index of the groups' order; the parts of a matmul share one."""
        order = self._source.permutation(matmul.tensors[0])
        return None if order is None else self.to_device(order.astype(np.int64))

    def input_scale(self, matmul: Matmul, form: MatrixFormat) -> Scale:
        """Of INT8 inputs."""
        if form.dynamic:
            return Scale(None)
        return Scale(float(self.scales.input(self.block.input_tensors(matmul))))


def _half(weights: Weights, matmul: Matmul, form: MatrixFormat) -> Matrix:
    if form.weights.columns is None:
        return HalfMatrix(weights.halves(matmul))
    each = [part.dense().astype(np.float16).T for part in weights.columns(matmul)]
    return HalfMatrix(weights.to_device(np.concatenate(each, axis=1)))


def _int8(weights: Weights, matmul: Matmul, form: MatrixFormat) -> Matrix:
    parts: list[Int8Columns] = weights.columns(matmul)
    values = np.concatenate([part.values for part in parts])
    scales = np.concatenate([part.scales for part in parts])
    scale = weights.input_scale(matmul, form)
    if scale.x is not None:
        scales = scales * np.float32(scale.x)
    if not np.isfinite(scales).all():
        raise ModelError(f"{matmul.name}: scales of weights times that of the input overflow FP32")
    return Int8Matrix(weights.to_device(values).t(), weights.to_device(scales), scale)


def _w4a8(weights: Weights, matmul: Matmul, form: MatrixFormat) -> Matrix:
    parts: list[Int4Columns] = weights.columns(matmul)
    assert form.group is not None  # of 4-bit weights
    each = [
        part.values.astype(np.int8) - np.repeat(part.zeros, form.group, axis=1).astype(np.int8)
        for part in parts
    ]
    return Int4Matrix(
        weights.to_device(np.concatenate(each)).t(),
        weights.to_device(np.concatenate([part.scales for part in parts]).T),
        form.group,
        weights.input_scale(matmul, form),
        weights.order(matmul),
    )


def _w4a16(weights: Weights, matmul: Matmul, form: MatrixFormat) -> Matrix:
    with np.errstate(over="ignore"):
        each = [part.dense().astype(np.float16).T for part in weights.columns(matmul)]
    whole = weights.to_device(np.concatenate(each, axis=1))
    return HalfMatrix(whole, weights.order(matmul))


MATRICES: dict[str, Callable[[Weights, Matmul, MatrixFormat], Matrix]] = {
    "WEIGHT_FP16": _half,
    "WEIGHT_INT8": _int8,
    "WEIGHT_W4A8": _w4a8,
    "WEIGHT_W4A16": _w4a16,
    "WEIGHT_GGUF": _half,
}


def check_formats(config: ModelConfig) -> None:
    """RequestError names a matmul whose weights this package does not compute."""
    for matmul in describe(config).matmuls:
        form = format_of(config, matmul.tensors).weights
        if form.abi_type not in MATRICES:
            raise RequestError(
                f"{matmul.name}: exact prefill in torch has no {form.name} weights; expected "
                f"{', '.join(MATRICES)}; use prefill 'cpu' or 'boards:N'"
            )
