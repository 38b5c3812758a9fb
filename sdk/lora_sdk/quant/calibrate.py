"""One layer on calibration text: smoothing, rounding of its weights, scales of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lora_sdk.model.quantization import AttentionScales
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.layer import F32, FileModule, Parameters
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

SAMPLE_ROWS = 512  # rows by which strengths are compared
PRODUCTS = {"attn": ("q", "k", "v"), "o": ("o",), "mlp": ("gate", "up"), "down": ("down",)}


@dataclass
class LayerResult:
    """A layer's integers by module, the scale of each role's input, attention's scales, the choice
    of strength by role, and each module's output error relative to its output (RMS)."""

    modules: dict[str, Rounded] = field(default_factory=dict)
    inputs: dict[str, np.float32] = field(default_factory=dict)
    attention: AttentionScales | None = None
    strengths: dict[str, float | None] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)


class LayerCalibration:
    """Works on the parameters of one layer, in place: `run` gives what the file will hold."""

    def __init__(
        self,
        layer: int,
        config: ModelConfig,
        recipe: Recipe,
        parameters: Parameters,
        record: Record,
    ) -> None:
        self._lead = f"layer.{layer}"
        self._config = config
        self._recipe = recipe
        self._parameters = parameters
        self._record = record
        self.result = LayerResult()

    def run(self, modules: Sequence[FileModule]) -> LayerResult:
        """Smooths each input that something before it can absorb, then rounds every module."""
        if self._recipe.smooth:
            self._smooth_down()
            self._smooth_o()
            self._smooth_norm("mlp", "mlp_norm")
            self._smooth_norm("attn", "attn_norm")
        for module in modules:
            self._round(module)
        self._scale_attention()
        return self.result

    def _names(self, role: str) -> list[str]:
        names = [f"{self._lead}.{part}" for part in PRODUCTS[role]]
        return [name for name in names if name in self._parameters.matrices]

    def _joined(self, names: Sequence[str]) -> F32:
        """Matrices that read the same input, beside one another: [K, N]."""
        return np.concatenate([self._parameters.matrices[name] for name in names], axis=1)

    def _smooth_norm(self, role: str, norm: str) -> None:
        name = f"{self._lead}.{norm}"
        if not self._config.norm_first or f"{name}.gamma" not in self._parameters.vectors:
            return  # what makes this input is also what the residual adds
        choice = self._choose(role)
        fold_norm(self._parameters, name, self._names(role), choice.divisor)
        self._took(role, choice, choice.divisor)

    def _smooth_down(self) -> None:
        """Into up: silu(g)*u and relu(u) are linear in u by a positive factor, GELU is not."""
        if not self._config.gated and self._config.activation != "relu":
            return
        choice = self._choose("down")
        up, down = f"{self._lead}.up", f"{self._lead}.down"
        fold_matrix(self._parameters, up, down, choice.divisor, choice.divisor)
        self._took("down", choice, choice.divisor)

    def _smooth_o(self) -> None:
        """Into v: attention's result is linear in it. Query heads that share a KV head share s."""
        x, config = self._record.inputs["o"], self._config
        w = self._joined(self._names("o"))
        tops = [np.abs(x).max(axis=0), np.abs(x).mean(axis=0), np.abs(w).max(axis=1)]
        candidates = (
            (strength, shared_heads(s, config))
            for strength, s in divisors(*(over_sharing(part, config) for part in tops))
        )
        choice = choose(candidates, x.shape[1], self._loss(x, w, tops[0]))
        grouped = choice.divisor.reshape(config.kv_heads, -1, config.head_dim)
        columns = grouped[:, 0].reshape(-1)
        v, o = f"{self._lead}.v", f"{self._lead}.o"
        fold_matrix(self._parameters, v, o, choice.divisor, columns)
        self._record.v = self._record.v / columns.reshape(config.kv_heads, 1, config.head_dim)
        self._took("o", choice, choice.divisor)

    def _choose(self, role: str) -> Smoothing:
        x, w = self._record.inputs[role], self._joined(self._names(role))
        tops = (np.abs(x).max(axis=0), np.abs(x).mean(axis=0), np.abs(w).max(axis=1))
        return choose(divisors(*tops), x.shape[1], self._loss(x, w, tops[0]))

    def _took(self, role: str, choice: Smoothing, s: F32) -> None:
        self._record.inputs[role] = self._record.inputs[role] / s
        self.result.strengths[role] = choice.strength

    def _loss(self, x: F32, w: F32, top: F32) -> Loss:
        """Squared error of x @ w [rows, N] with both sides rounded behind a division of x by s, by
        a sample of rows; `top` [K] is the greatest magnitude of each input."""
        few = x[:: max(1, len(x) // SAMPLE_ROWS)]
        wanted = few @ w

        def loss(s: F32) -> float:
            steps = self._inputs_rounded(few / s, float((top / s).max()))
            off = steps @ self._rounded(w * s[:, None]) - wanted
            return float(np.square(off).sum(dtype=np.float64))

        return loss

    def _inputs_rounded(self, x: F32, top: float) -> F32:
        if not self._recipe.integer:
            return x
        scale = np.float32(max(top, 1e-30) / 127)
        rounded: F32 = np.rint(x / scale) * scale
        return rounded

    def _rounded(self, w: F32) -> F32:
        """w [K, N] to the nearest, without a search for scales."""
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
        role = next(
            r for r, parts in PRODUCTS.items() if module.parts[0].rsplit(".", 1)[1] in parts
        )
        x, w = self._record.inputs[role], self._joined(module.parts).T
        hessian = (x.T @ x) / np.float32(len(x))
        found = round_weights(np.ascontiguousarray(w), self._recipe, hessian)
        self.result.modules[module.name] = found
        if self._recipe.integer and role not in self.result.inputs:
            every = self._joined(self._names(role))
            self.result.inputs[role] = input_scale(x, np.square(every).sum(axis=1))
        off = found.weights() - w
        lost = np.einsum("nk,kj,nj->", off, hessian, off, optimize=True)
        whole = np.einsum("nk,kj,nj->", w, hessian, w, optimize=True)
        self.result.errors[module.name] = float(np.sqrt(max(lost, 0.0) / max(whole, 1e-30)))

    def _scale_attention(self) -> None:
        """One scale each for q, k and v: an error of q counts as much as k is large there."""
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
