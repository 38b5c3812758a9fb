"""Calibration of one layer: smoothing, rounding of its weights, scales of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lora_sdk.model import block
from lora_sdk.model import operations as ops
from lora_sdk.model.quantization import AttentionScales
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.layer import F32, FileModule, Parameters, roles
from lora_sdk.quant.modules import Rounded, round_weights
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.record import Record
from lora_sdk.quant.rounding import half_scale, input_scale
from lora_sdk.quant.smooth import (
    Loss,
    Smoothing,
    choose,
    divisors,
    fold_matrix,
    fold_norm,
    over_sharing,
    shared_heads,
)

SAMPLE_ROWS = 512  # rows on which strengths are compared


@dataclass
class LayerResult:
    """A layer's integers by module, the input scale of each matrix by canonical name, the scales of
    attention, the chosen strength by role, and each module's relative output error (RMS)."""

    modules: dict[str, Rounded] = field(default_factory=dict)
    inputs: dict[str, np.float32] = field(default_factory=dict)
    attention: AttentionScales | None = None
    strengths: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)


class LayerCalibration:
    """Calibrates the parameters of one layer in place. `run` returns the content of the file."""

    def __init__(
        self,
        layer: int,
        config: ModelConfig,
        recipe: Recipe,
        parameters: Parameters,
        record: Record,
    ) -> None:
        described = block.describe(config)
        self._stream, self._operations = described.stream, described.layers[layer]
        self._roles = roles(config, layer)
        self._config = config
        self._recipe = recipe
        self._parameters = parameters
        self._record = record
        self.result = LayerResult()

    def run(self, modules: Sequence[FileModule]) -> LayerResult:
        """Smooth each input whose divisor can be folded into an earlier operation, from last to
        first. Then round every module."""
        if self._recipe.smooth:
            for index in reversed(range(len(self._operations))):
                operation = self._operations[index]
                ops.row(SMOOTHED, operation)(self, index, operation)
        for module in modules:
            self._round(module)
        self._scale_attention()
        return self.result

    def _joined(self, names: Sequence[str]) -> F32:
        """Matrices that read the same input, concatenated: [K, N]."""
        return np.concatenate([self._parameters.matrices[name] for name in names], axis=1)

    def _reader(self, index: int, target: ops.Buffer) -> str:
        """The role of the content of `target` after operation `index`."""
        behind = ops.matmuls(self._operations[index:])
        return next(matmul.short for matmul in behind if matmul.source == target)

    def _maker(self, index: int, source: ops.Buffer) -> str:
        """The matrix in whose outputs operation `index` is linear: v or up."""
        before = ops.matmuls(self._operations[:index])
        return next(matmul.tensors[-1] for matmul in reversed(before) if matmul.target == source)

    def _smooth_norm(self, index: int, norm: ops.Norm) -> None:
        """Fold into the norm's vectors."""
        if norm.target == self._stream or f"{norm.name}.gamma" not in self._parameters.vectors:
            return  # the residual adds the same values, so they cannot be scaled
        if norm.target == block.BRANCH:
            return  # of a branch's output: no matmul reads it
        role = self._reader(index, norm.target)
        choice = self._choose(role)
        names = self._roles[role]
        fold_norm(self._parameters, norm.name, names, choice.divisor, norm.one_plus)
        self._took(role, choice, choice.divisor)

    def _smooth_activation(self, index: int, activate: ops.Activate) -> None:
        """Fold into up: silu(g)*u and relu(u) scale with a positive factor of u, GELU does not."""
        if not activate.gated and activate.kind != "relu":
            return
        role = self._reader(index, activate.target)
        choice = self._choose(role)
        up, (down,) = self._maker(index, activate.source), self._roles[role]
        fold_matrix(self._parameters, up, down, choice.divisor, choice.divisor)
        self._took(role, choice, choice.divisor)

    def _smooth_attention(self, index: int, attend: ops.Attend) -> None:
        """Fold into v: attention is linear in it. Query heads that share a KV head share s."""
        config, role = self._config, self._reader(index, attend.target)
        x, w = self._record.inputs[role], self._joined(self._roles[role])
        tops = [np.abs(x).max(axis=0), np.abs(x).mean(axis=0), np.abs(w).max(axis=1)]
        candidates = (
            (strength, shared_heads(s, config))
            for strength, s in divisors(*(over_sharing(part, config) for part in tops))
        )
        choice = choose(candidates, x.shape[1], self._loss(x, w, tops[0]))
        grouped = choice.divisor.reshape(config.kv_heads, -1, config.head_dim)
        columns = grouped[:, 0].reshape(-1)
        v, (o,) = self._maker(index, attend.source), self._roles[role]
        fold_matrix(self._parameters, v, o, choice.divisor, columns)
        self._record.v = self._record.v / columns.reshape(config.kv_heads, 1, config.head_dim)
        self._took(role, choice, choice.divisor)

    def _not_smoothed(self, index: int, operation: ops.Operation) -> None:
        """No factor can be folded into this operation."""

    def _choose(self, role: str) -> Smoothing:
        x, w = self._record.inputs[role], self._joined(self._roles[role])
        tops = (np.abs(x).max(axis=0), np.abs(x).mean(axis=0), np.abs(w).max(axis=1))
        return choose(divisors(*tops), x.shape[1], self._loss(x, w, tops[0]))

    def _took(self, role: str, choice: Smoothing, s: F32) -> None:
        self._record.inputs[role] = self._record.inputs[role] / s
        self.result.strengths[role] = choice.strength

    def _loss(self, x: F32, w: F32, top: F32) -> Loss:
        """Squared error of x @ w [rows, N] with both sides rounded after dividing x by s, on a
        sample of rows. `top` [K] is the max magnitude of each input."""
        few = x[:: max(1, len(x) // SAMPLE_ROWS)]
        exact = few @ w

        def loss(s: F32) -> float:
            steps = self._inputs_rounded(few / s, float((top / s).max()))
            off = steps @ self._rounded(w * s[:, None]) - exact
            return float(np.square(off).sum(dtype=np.float64))

        return loss

    def _inputs_rounded(self, x: F32, top: float) -> F32:
        if not self._recipe.integer:
            return x
        scale = np.float32(max(top, 1e-30) / 127)
        rounded: F32 = np.rint(x / scale) * scale
        return rounded

    def _rounded(self, w: F32) -> F32:
        """w [K, N] rounded to nearest, without a search for scales."""
        if not self._recipe.four_bit:
            step = half_scale(np.abs(w).max() / np.float32(127))
            eight: F32 = np.rint(w / step) * step
            return eight
        k, n = w.shape
        parts = w.reshape(-1, self._recipe.group, n)
        low, high = parts.min(axis=1, keepdims=True), parts.max(axis=1, keepdims=True)
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        if self._recipe.symmetric:
            scale = half_scale(np.maximum(-low / 8, high / 7))
            values = np.clip(np.rint(parts / scale), -8, 7)
        else:
            scale = half_scale((high - low) / 15)
            zero = np.rint(-low / scale)
            values = np.clip(np.rint(parts / scale) + zero, 0, 15) - zero
        rounded: F32 = (values * scale).reshape(k, n)
        return rounded

    def _round(self, module: FileModule) -> None:
        role = next(role for role, names in self._roles.items() if module.parts[0] in names)
        x, w = self._record.inputs[role], self._joined(module.parts).T[module.order]
        hessian = (x.T @ x) / np.float32(len(x))
        found = round_weights(np.ascontiguousarray(w), self._recipe, hessian)
        self.result.modules[module.name] = found
        static = self._recipe.integer and not self._recipe.dynamic
        if static and module.parts[0] not in self.result.inputs:
            names = self._roles[role]
            scale = input_scale(x, np.square(self._joined(names)).sum(axis=1))
            self.result.inputs |= dict.fromkeys(names, scale)
        off = found.weights() - w
        lost = np.einsum("nk,kj,nj->", off, hessian, off, optimize=True)
        whole = np.einsum("nk,kj,nj->", w, hessian, w, optimize=True)
        self.result.errors[module.name] = float(np.sqrt(max(lost, 0.0) / max(whole, 1e-30)))

    def _scale_attention(self) -> None:
        """One scale each for q, k and v. Errors of q are weighted by the magnitude of k."""
        if not self._recipe.kv_format.static:
            return
        q, k, v = self._record.q, self._record.k, self._record.v
        shared = q.reshape(len(k), -1, q.shape[2])
        by_q, by_k = np.square(shared).mean(axis=1), np.square(k).mean(axis=1)
        self.result.attention = AttentionScales(
            input_scale(shared.transpose(1, 0, 2).reshape(shared.shape[1], -1), by_k.reshape(-1)),
            input_scale(k.transpose(1, 0, 2).reshape(k.shape[1], -1), by_q.reshape(-1)),
            input_scale(
                v.transpose(1, 0, 2).reshape(v.shape[1], -1), np.ones(v[:, 0].size, np.float32)
            ),
        )


SMOOTHED: dict[type[ops.Operation], Callable[[LayerCalibration, int, Any], None]] = {
    ops.Norm: LayerCalibration._smooth_norm,
    ops.Activate: LayerCalibration._smooth_activation,
    ops.Attend: LayerCalibration._smooth_attention,
    **dict.fromkeys(
        (ops.Embed, ops.AddPosition, ops.Matmul, ops.NormHeads, ops.Rope, ops.StoreKv,
         ops.AddResidual, ops.PackSelected, ops.ScaleLogits, ops.CapLogits, ops.Argmax),
        LayerCalibration._not_smoothed,
    ),
}  # fmt: skip
"""The operation before a matmul -> how a factor of its columns is folded into it."""
