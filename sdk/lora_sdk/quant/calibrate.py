"""Calibration of one layer: smoothing, rounding of its weights, scales of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lora_sdk.model import block
from lora_sdk.model import operations as ops
from lora_sdk.model.quantization import AttentionScales, routes
from lora_sdk.model.spec import LatentConfig, ModelConfig
from lora_sdk.quant.dense import LIMIT, round_rows, round_to
from lora_sdk.quant.layer import F32, FileModule, Parameters, roles
from lora_sdk.quant.modules import Rounded, round_weights, rounded_plainly
from lora_sdk.quant.recipe import Recipe
from lora_sdk.quant.record import Inputs, Record, with_prior
from lora_sdk.quant.rounding import input_scale
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

SAMPLE_ROWS = 192  # on which strengths are compared
EXPERTS = ("router", "expert_down")  # roles of experts' inputs, which are not smoothed
TOGETHER = 8192  # columns of experts that are rounded at once


@dataclass
class LayerResult:
    """A layer's integers by module, the input scale of each matrix by canonical name, the scales of
    attention, the chosen strength by role, and each module's relative output error (RMS), with its
    inputs rounded as boards round them."""

    modules: dict[str, Rounded] = field(default_factory=dict)
    inputs: dict[str, np.float32] = field(default_factory=dict)
    attention: AttentionScales | None = None
    strengths: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    rounded: dict[str, F32] = field(default_factory=dict)
    """The dequantized matrices [K, N] by canonical name."""


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
        self._rounded: dict[str, Rounded] = {}
        self._parts: dict[str, Rounded] = {}
        self._lost: dict[str, tuple[float, float]] = {}  # squares of errors, of outputs
        self.result = LayerResult()

    def run(self, modules: Sequence[FileModule]) -> LayerResult:
        """Smooth each input whose divisor can be folded into an earlier operation, from last to
        first. Then round every module."""
        if self._recipe.smooth:
            for index in reversed(range(len(self._operations))):
                operation = self._operations[index]
                ops.row(SMOOTHED, operation)(self, index, operation)
        for role in self._roles:
            if role in EXPERTS:
                self._round_experts(role)
            else:
                self._round(role)
        self._write(modules)
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
        if role in EXPERTS:
            return
        choice = self._choose(role)
        names = self._roles[role]
        fold_norm(self._parameters, norm.name, names, choice.divisor, norm.one_plus)
        self._took(role, choice, choice.divisor)

    def _smooth_activation(self, index: int, activate: ops.Activate) -> None:
        """Fold into up: silu(g)*u and relu(u) scale with a positive factor of u, GELU does not."""
        if not activate.gated and activate.kind != "relu":
            return
        role = self._reader(index, activate.target)
        if role in EXPERTS:
            return
        choice = self._choose(role)
        up, (down,) = self._maker(index, activate.source), self._roles[role]
        fold_matrix(self._parameters, up, down, choice.divisor, choice.divisor)
        self._took(role, choice, choice.divisor)

    def _smooth_latent(self, attend: ops.Attend, latent: LatentConfig) -> None:
        """Fold into v, of which each query head has its own and o reads no zeros."""
        config, v, choice = self._config, f"layer.{attend.layer}.v", self._choose("o")
        (o,) = self._roles["o"]
        fold_matrix(self._parameters, v, o, choice.divisor, choice.divisor)
        columns = np.ones((config.kv_heads, 1, config.head_dim), np.float32)
        columns[:, 0, : latent.values] = choice.divisor.reshape(config.kv_heads, -1)
        self._record.v = self._record.v / columns
        self._took("o", choice, choice.divisor)

    def _smooth_attention(self, index: int, attend: ops.Attend) -> None:
        """Fold into v: attention is linear in it. Query heads that share a KV head share s."""
        if self._config.latent is not None:
            self._smooth_latent(attend, self._config.latent)
            return
        config, role = self._config, self._reader(index, attend.target)
        tops = self._tops(role)
        candidates = (
            (strength, shared_heads(s, config))
            for strength, s in divisors(*(over_sharing(part, config) for part in tops))
        )
        choice = self._choose(role, candidates)
        grouped = choice.divisor.reshape(config.kv_heads, -1, config.head_dim)
        columns = grouped[:, 0].reshape(-1)
        v, (o,) = self._maker(index, attend.source), self._roles[role]
        fold_matrix(self._parameters, v, o, choice.divisor, columns)
        self._record.v = self._record.v / columns.reshape(config.kv_heads, 1, config.head_dim)
        self._took(role, choice, choice.divisor)

    def _not_smoothed(self, index: int, operation: ops.Operation) -> None:
        """No factor can be folded into this operation."""

    def _tops(self, role: str) -> tuple[F32, F32, F32]:
        """By column of an input [K]: its largest and mean magnitude in every second row, and its
        largest weight."""
        x, w = self._record.inputs[role].rows[::2], self._joined(self._roles[role])
        return np.abs(x).max(axis=0), np.abs(x).mean(axis=0), np.abs(w).max(axis=1)

    def _choose(
        self, role: str, candidates: Iterator[tuple[float, F32]] | None = None
    ) -> Smoothing:
        """The best divisor with plain rounding, if it is better than none with the recipe's."""
        inputs, w = self._record.inputs[role], self._joined(self._roles[role])
        tried = divisors(*self._tops(role)) if candidates is None else candidates
        choice = choose(tried, len(w), self._loss(inputs.rows, w, self._rounded_plainly))
        if choice.strength is None:
            return choice

        tried_so: list[tuple[F32, Rounded]] = []

        def rounded(wide: F32, s: F32) -> F32:
            hessian = inputs.divided(s).hessian
            found = round_weights(np.ascontiguousarray(wide.T), self._recipe, hessian)
            tried_so.append((s, found))
            dequantized: F32 = found.weights().T
            return dequantized

        choice = choose(
            iter([(choice.strength, choice.divisor)]), len(w), self._loss(inputs.rows, w, rounded)
        )
        self._rounded[role] = next(one for s, one in tried_so if np.array_equal(s, choice.divisor))
        return choice

    def _rounded_plainly(self, w: F32, _: F32) -> F32:
        return rounded_plainly(w, self._recipe)

    def _took(self, role: str, choice: Smoothing, s: F32) -> None:
        self._record.inputs[role] = self._record.inputs[role].divided(s)
        self.result.strengths[role] = choice.strength

    def _loss(self, x: F32, w: F32, rounded: Callable[[F32, F32], F32]) -> Loss:
        """Squared error of x @ w [rows, N] with both sides rounded after dividing x by s, on some
        of the rows that neither s nor a static scale was taken from: what lies outside the range
        of those is clipped. `rounded(w*s, s)` rounds the weights [K, N]."""
        seen, unseen = x[::2], x[1::2]
        few, top = unseen[:: max(1, len(unseen) // SAMPLE_ROWS)], np.abs(seen).max(axis=0)
        exact = few @ w

        def loss(s: F32) -> float:
            step = (top / s).max() / LIMIT
            off = self._inputs_rounded(few / s, step) @ rounded(w * s[:, None], s) - exact
            return float(np.square(off).sum(dtype=np.float64))

        return loss

    def _inputs_rounded(self, x: F32, scale: np.float32 | None) -> F32:
        """Rows x as boards round them. `scale`: the static one."""
        if not self._recipe.integer:
            return x
        if scale is None or self._recipe.dynamic:
            return round_rows(x)
        return round_to(x, scale) * scale

    def _round(self, role: str) -> None:
        """Round all matrices that read one input together."""
        inputs, names = self._record.inputs[role], self._roles[role]
        w = self._joined(names)
        found = self._rounded.pop(role, None)  # nothing has changed since a divisor was chosen
        scale = self._input_scale(names, inputs.rows, np.square(w).sum(axis=1))
        self._round_joined(names, w, inputs, scale, found)

    def _round_experts(self, role: str) -> None:
        """Round experts, each by the rows that it reads; the router's row is that of all."""
        names = [name for name in self._roles[role] if not routes(name)]
        matrices, own = self._parameters.matrices, self._record.inputs
        importance = sum(np.square(matrices[name]).sum(axis=1) for name in names)
        down = role == "expert_down"
        known = [own[name] for name in names if name in own] if down else [own[role]]
        x = np.concatenate([inputs.rows for inputs in known])
        scale = self._input_scale(names, x, importance)
        for some in ([name] for name in names) if down else self._some(names):
            inputs = with_prior(known, own.get(some[0])) if down else own[role]
            self._round_joined(some, self._joined(some), inputs, scale, None)

    def _some(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Runs of matrices that are rounded at once."""
        run: list[str] = []
        for name in names:
            run.append(name)
            if sum(self._parameters.matrices[one].shape[1] for one in run) >= TOGETHER:
                yield run
                run = []
        if run:
            yield run

    def _input_scale(self, names: Sequence[str], x: F32, importance: F32) -> np.float32 | None:
        """The static scale of inputs x of the matrices `names`, None without one."""
        if not self._recipe.static:
            return None
        scale = input_scale(x, importance)
        self.result.inputs |= dict.fromkeys(names, scale)
        return scale

    def _round_joined(
        self,
        names: Sequence[str],
        w: F32,
        inputs: Inputs,
        scale: np.float32 | None,
        found: Rounded | None,
    ) -> None:
        """Round matrices w of `names`, one after the other, unless they are `found`."""
        if found is None:
            found = round_weights(np.ascontiguousarray(w.T), self._recipe, inputs.hessian)
        rounded, x = np.ascontiguousarray(found.weights().T), inputs.rows
        exact = x @ w
        off = self._inputs_rounded(x, scale) @ rounded - exact
        first = 0
        for name in names:
            stop = first + self._parameters.matrices[name].shape[1]
            self.result.rounded[name] = rounded[:, first:stop]
            self._parts[name] = found.take(np.arange(first, stop))
            lost, whole = (float(np.square(y[:, first:stop]).sum()) for y in (off, exact))
            self._lost[name] = lost, whole
            first = stop

    def _write(self, modules: Sequence[FileModule]) -> None:
        """What the file's modules hold, and what was lost of their outputs."""
        for module in modules:
            if routes(module.parts[0]):
                continue
            parts = [self._parts[part] for part in module.parts]
            self.result.modules[module.name] = Rounded.join(parts).take(module.order)
            lost, whole = (sum(both) for both in zip(*(self._lost[p] for p in module.parts),
                                                     strict=True))  # fmt: skip
            self.result.errors[module.name] = float(np.sqrt(lost / max(whole, 1e-30)))

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
         ops.Elementwise, ops.PackSelected, ops.Argmax,
         ops.Route, ops.ExpertMatmul, ops.AddGated, ops.Recur, ops.GateHeads,
         ops.NormGroups, ops.JoinHeads),
        LayerCalibration._not_smoothed,
    ),
}  # fmt: skip
"""The operation before a matmul -> how a factor of its columns is folded into it."""
