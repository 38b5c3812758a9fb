"""A model whose residual stream and heads are turned by Hadamard matrices that are folded into its
weights (QuaRot, arXiv 2404.00456, sections 4.1 and 4.2). The function stays the same, large values
of few columns are spread over all, and boards compute nothing more."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_sdk.model import operations as ops
from lora_sdk.model.block import describe
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.layer import F32
from lora_sdk.quant.modules import half

SEED = 1
ROWS = 8192  # of a table that are turned at once


def hadamard(size: int) -> F32:
    """An orthogonal matrix [size, size]: Hadamard's for the power of two in `size`, beside it
    Hartley's for the odd factor, rows with random signs."""
    odd = size
    while odd % 2 == 0:
        odd //= 2
    at = 2 * np.pi * np.outer(np.arange(odd), np.arange(odd)) / odd
    found = (np.cos(at) + np.sin(at)) / np.sqrt(odd)
    while len(found) < size:
        found = np.kron(found, np.array([[1, 1], [1, -1]]) / np.sqrt(2))
    found = found * np.random.default_rng(SEED).choice([-1.0, 1.0], size)[:, None]
    return np.ascontiguousarray(found, np.float32)


def check_rotates(config: ModelConfig) -> None:
    """RequestError if something between the stream and its readers depends on the columns."""
    for reason, wrong in (
        ("LayerNorm takes the mean of columns", config.norm != "rmsnorm"),
        ("norms after the sums scale columns", not config.norm_first),
        ("norms of branches scale columns", config.branch_norms != "none"),
        ("it has a norm of embeddings", config.embed_norm),
        ("it has learned positions", config.position_rows > 0),
        ("it has project_in", config.embed_dim != config.hidden),
        ("its layers are not attention alone", config.recurrent is not None),
    ):
        if wrong:
            raise RequestError(f"--rotate: {reason}, so a rotation does not fold into its weights;"
                               " leave --rotate out")  # fmt: skip


@dataclass
class _Turned:
    """What is turned of a matrix: its inputs, behind the factors of the vector `gamma` if there is
    one, its outputs, and those or these by head."""

    reads: bool = False
    gamma: str | None = None
    writes: bool = False
    heads_in: bool = False
    heads_out: bool = False


def _turned(config: ModelConfig) -> dict[str, _Turned]:
    """By canonical name, of all matrices."""
    found: dict[str, _Turned] = {}
    gammas: dict[str, str | None] = {}  # buffer -> of the norm that has filled it
    for operation in describe(config).operations:
        if isinstance(operation, ops.Norm):
            gammas[operation.target.name] = operation.tensors[0] if operation.vectors else None
        if not isinstance(operation, ops.Matmul):
            continue
        for output in operation.outputs:
            reads = operation.source.axes == ("hidden",)
            name = output.tensor.rpartition(".")[2]
            found[output.tensor] = _Turned(
                reads,
                gammas.get(operation.source.name) if reads else None,
                output.axis == "hidden",
                operation.source.axes == ("heads",),
                output.axis == "kv_heads" and name == "v",
            )
    return found


class RotatedCheckpoint:
    """The matrices, vectors and tables of `source`, turned: FP32, tables in FP16. lm_head is a
    matrix of its own. RequestError: a model that cannot be turned."""

    def __init__(self, source: Checkpoint) -> None:
        check_rotates(source.config)
        self._source = source
        self.config = replace(source.config, tied=False)
        self.folder = source.folder
        self._stream = hadamard(source.config.hidden)
        self._head = hadamard(source.config.head_dim)
        self._turned = _turned(source.config)
        self._folded = {one.gamma for one in self._turned.values()}

    @property
    def names(self) -> tuple[str, ...]:
        """All canonical names."""
        return self._source.names

    def has(self, name: str) -> bool:
        """Whether the model has a tensor of this canonical name."""
        return self._source.has(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Canonical shape: matrices [K, N], vectors [N], tables [rows, columns]."""
        return self._source.shape(name)

    def forget(self) -> None:
        """Unmaps the files' pages that were read."""
        self._source.forget()

    def turned(self, x: F32) -> F32:
        """Rows of the residual stream [T, hidden], turned."""
        found: F32 = x @ self._stream
        return found

    def matrix(self, name: str) -> F32:
        """FP32 [K, N]."""
        w, turned = self._source.matrix(name).astype(np.float32), self._turned[name]
        if turned.gamma is not None:
            w = w * self._factors(turned.gamma)[:, None]
        if turned.reads:
            w = self._stream.T @ w
        if turned.heads_in:
            w = self._by_head(w.T).T
        return np.ascontiguousarray(self._outputs(w, turned))

    def vector(self, name: str) -> F32:
        """FP32 [N]. Norms whose factors are in the matrices behind them have those of 1."""
        x: F32 = self._source.vector(name).astype(np.float32)
        if name in self._folded:
            ones: F32 = np.full(x.shape, 1 - self.config.one_plus, np.float32)
            return ones
        if name.endswith(".bias"):
            x = self._outputs(x[None], self._turned[name.removesuffix(".bias")])[0]
        return x

    def table(self, name: str) -> NDArray[np.float16]:
        """The token table: FP16 [rows, columns]. ModelError: a value out of FP16's range."""
        found: NDArray[np.float16] = self._source.table(name).copy()
        for first in range(0, len(found), ROWS):
            rows = self.turned(found[first : first + ROWS].astype(np.float32))
            found[first : first + ROWS] = half(name, rows)
        return found

    def _factors(self, gamma: str) -> F32:
        """What a norm multiplies by."""
        factors: F32 = self._source.vector(gamma).astype(np.float32)
        factors += np.float32(self.config.one_plus)
        return factors

    def _outputs(self, w: F32, turned: _Turned) -> F32:
        """Outputs [K, N] turned."""
        if turned.writes:
            return self.turned(w)
        return self._by_head(w) if turned.heads_out else w

    def _by_head(self, w: F32) -> F32:
        """Columns [K, heads*head_dim], each head's turned."""
        size = len(self._head)
        found: F32 = (w.reshape(-1, size) @ self._head).reshape(w.shape)
        return found
