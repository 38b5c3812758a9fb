"""Each kind of operation of the block description on rows of a prompt. Making one reads its
weights; calling it runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lora_host.errors import RequestError
from lora_prefill.exact.attention import TILE, Scores
from lora_prefill.exact.functions import bf16, gelu, half, relu, soft_cap
from lora_prefill.exact.integers import inverse_scale
from lora_prefill.exact.kernels import Kernels
from lora_prefill.exact.norms import layer_norm, rms_norm
from lora_prefill.exact.state import LayerKv, Rows
from lora_prefill.exact.weights import Weights, check_formats
from lora_sdk.model import operations as ops
from lora_sdk.model.alibi import slope_table
from lora_sdk.model.block import describe
from lora_sdk.model.quantization import kv_of
from lora_sdk.model.rope import rope_table
from lora_sdk.model.spec import ModelConfig

Step = Callable[[Rows], None]


def _fp32(value: float) -> float:
    return float(np.float32(value))


def _embed(weights: Weights, kernels: Kernels, embed: ops.Embed) -> Step:
    tokens, scale = weights.table("embed.token"), _fp32(embed.scale)
    added = _positions(weights) if embed.positions else None

    def run(rows: Rows) -> None:
        x = tokens[rows.tokens].float()
        x = x * scale if scale != 1 else x
        x = x if added is None else x + added(rows)
        rows.store(embed.target, half(x), embed, "embed")

    return run


def _positions(weights: Weights) -> Callable[[Rows], Tensor]:
    table, offset = weights.table("embed.position"), weights.config.position_offset
    return lambda rows: table[rows.first + offset : rows.stop + offset].float()


def _add_position(weights: Weights, kernels: Kernels, add: ops.AddPosition) -> Step:
    added = _positions(weights)

    def run(rows: Rows) -> None:
        x = rows.buffers[add.target.name].float() + added(rows)
        rows.store(add.target, half(x), add, "add position")

    return run


def _norm(weights: Weights, kernels: Kernels, norm: ops.Norm) -> Step:
    found = {name: weights.vector(f"{norm.name}.{name}") for name in norm.vectors}
    gamma, beta = found.get("gamma"), found.get("beta")
    if norm.one_plus and gamma is not None:
        gamma = gamma + 1.0

    def run(rows: Rows) -> None:
        x = rows.buffers[norm.source.name]
        if norm.kind == "layernorm":
            y = half(layer_norm(x, kernels.moments(x), gamma, beta, norm.eps))
        else:
            y = kernels.rms_norm(x, gamma, norm.eps, norm.numerator)
        rows.store(norm.target, y, norm, norm.name)

    return run


def _matmul(weights: Weights, kernels: Kernels, matmul: ops.Matmul) -> Step:
    matrix, bias = weights.matrix(matmul), weights.bias(matmul)
    widths = [ops.width(weights.config, output.axis) for output in matmul.outputs]

    def run(rows: Rows) -> None:
        x = rows.buffers[matmul.source.name]
        product = matrix.product(x, kernels)
        if rows.prompt.factors or matmul.target.results:
            v = product.scaled() if bias is None else product.scaled() + bias
            parts = zip(matmul.tensors, v.split(widths, dim=1), strict=True)
            each = [_adapted(rows, kernels, matmul, name, x, part) for name, part in parts]
            v = torch.cat(each, dim=1)
            y = v if matmul.target.results else half(v)
        else:
            y = kernels.rounded(product, bias)
        rows.store(matmul.target, y, matmul, f"matrix {matmul.short}")

    return run


def _adapted(
    rows: Rows, kernels: Kernels, matmul: ops.Matmul, name: str, x: Tensor, v: Tensor
) -> Tensor:
    factors = rows.prompt.factors.get(name)
    if factors is None:
        return v
    h = factors.h(x, kernels)
    rows.note(h, matmul, f"adapter {matmul.short}")
    return v + factors.added(h, kernels)


def _norm_heads(weights: Weights, kernels: Kernels, norm: ops.NormHeads) -> Step:
    config, gamma = weights.config, weights.vector(norm.tensor)
    gamma = gamma + 1.0 if norm.one_plus else gamma
    width, size = ops.width(config, norm.axis), config.head_dim
    first = 0 if norm.part == "q" else ops.width(config, "heads")

    def run(rows: Rows) -> None:
        whole = rows.buffers[norm.target.name].clone()
        heads = whole[:, first : first + width].unflatten(1, (-1, size))
        squares = kernels.squares(heads)
        if norm.whole:
            total = torch.zeros(len(heads), device=heads.device)
            for square in squares.unbind(dim=1):
                total = total + square
            scaled = gamma.unflatten(0, (-1, size))
            y = rms_norm(heads, total[:, None], width, scaled, config.norm_eps)
        else:
            y = rms_norm(heads, squares, size, gamma, config.norm_eps)
        whole[:, first : first + width] = half(y).flatten(1)
        rows.store(norm.target, whole, norm, norm.name)

    return run


def _rope(weights: Weights, kernels: Kernels, rope: ops.Rope) -> Step:
    config, local = weights.config, rope.table == "rope_local"
    rotated = ops.width(config, "heads") + ops.width(config, "kv_heads")
    known: dict[int, Tensor] = {}  # the longest table so far

    def angles(rows: Rows) -> Tensor:
        if max(known, default=0) < rows.stop:
            known.clear()
            known[rows.stop] = weights.to_device(rope_table(config, rows.stop, local))
        return next(iter(known.values()))[rows.first : rows.stop]

    def run(rows: Rows) -> None:
        turned = kernels.rotated(rows.buffers[rope.target.name], angles(rows), rotated)
        rows.store(rope.target, turned, rope, "rope")

    return run


def _store_kv(weights: Weights, kernels: Kernels, store: ops.StoreKv) -> Step:
    config, layer, kind = weights.config, store.layer, kv_of(weights.config)
    widths = [ops.width(config, axis) for axis in store.source.axes]
    scales = weights.scales.of_layer(layer or 0) if kind.static else None
    stored = torch.int8 if kind.quantized else torch.float16

    def kept(rows: Rows) -> LayerKv:
        assert layer is not None
        if layer not in rows.prompt.layers:
            kv = LayerKv(*(rows.prompt.empty(config, stored) for _ in range(2)))
            if kind.by_head:
                kv.read_k, kv.read_v = (rows.prompt.empty(config, torch.float16) for _ in range(2))
                kv.k_scales, kv.v_scales = (half(kv.k[..., 0]) for _ in range(2))
            rows.prompt.layers[layer] = kv
        return rows.prompt.layers[layer]

    def eight(x: Tensor, scale: np.float32) -> Tensor:
        factor = inverse_scale(float(scale))
        return kernels.quantized(x.flatten(1), factor).unflatten(1, (-1, config.head_dim))

    def run(rows: Rows) -> None:
        kv, here = kept(rows), slice(rows.first, rows.stop)
        parts = rows.buffers[store.source.name].split(widths, dim=1)
        q, k, v = (part.unflatten(1, (-1, config.head_dim)) for part in parts)
        if scales is not None:
            rows.q8 = eight(q, scales.q)
            k, v = eight(k, scales.k), eight(v, scales.v)
            kv.k[:, here], kv.v[:, here] = k.transpose(0, 1), v.transpose(0, 1)
        elif kind.by_head:
            assert kv.k_scales is not None and kv.v_scales is not None
            assert kv.read_k is not None and kv.read_v is not None
            kv.k[:, here], kv.k_scales[:, here], kv.read_k[:, here] = kernels.by_head(k)
            kv.v[:, here], kv.v_scales[:, here], kv.read_v[:, here] = kernels.by_head(v)
        else:
            kv.k[:, here], kv.v[:, here] = k.transpose(0, 1), v.transpose(0, 1)

    return run


def _attend(weights: Weights, kernels: Kernels, attention: ops.Attend) -> Step:
    config, layer, kind = weights.config, attention.layer or 0, kv_of(weights.config)
    width = ops.width(config, "heads")
    scale, cap, v_scale = float(config.attention_scale(layer)), _fp32(attention.cap), 1.0
    if kind.static:
        found = weights.scales.of_layer(layer)
        scale = _fp32(float(found.q) * float(found.k) * config.attention_factor(layer))
        v_scale = float(found.v)
    bias = _score_bias(weights) if attention.slopes else None

    def run(rows: Rows) -> None:
        kv = rows.prompt.layers[layer]
        seen = slice(0, -(-rows.stop // TILE) * TILE)
        added = None if bias is None else bias(rows, seen.stop)
        how = Scores(scale, rows.first, cap, attention.window, added)
        k, v = (kv.read_k, kv.read_v) if kind.by_head else (kv.k, kv.v)
        assert k is not None and v is not None
        k, v = k[:, seen], v[:, seen]
        if kind.static:
            assert rows.q8 is not None  # of the layer's StoreKv
            y = kernels.attend_int8(rows.q8, k, v, how, v_scale)
        else:
            whole = rows.buffers[attention.source.name]
            q = whole[:, :width].unflatten(1, (-1, config.head_dim))
            y = kernels.attend(q, k, v, how)
        rows.store(attention.target, y, attention, "attention")

    return run


def _score_bias(weights: Weights) -> Callable[[Rows, int], Tensor]:
    """What ALiBi adds to the scores [heads, rows, positions] (docs/numbers.md, 3.13)."""
    slope, factor = weights.to_device(slope_table(weights.config))[:, :, None, None].unbind(dim=1)
    by_position = ALIBI[str(weights.config.alibi)]

    def added(rows: Rows, positions: int) -> Tensor:
        position = torch.arange(positions, device=slope.device)
        if by_position:
            return bf16(slope * bf16(position.float())) * factor
        own = torch.arange(rows.first, rows.stop, device=slope.device)[:, None]
        return slope * (position - own).float()

    def all_rows(rows: Rows, positions: int) -> Tensor:
        return added(rows, positions).expand(-1, rows.stop - rows.first, -1)

    return all_rows


ALIBI = {"bloom": False, "falcon": True}  # whether positions count, or distances


def _activate(weights: Weights, kernels: Kernels, activate: ops.Activate) -> Step:
    function = ACTIVATIONS[activate.gated, activate.kind]

    def run(rows: Rows) -> None:
        y = function(kernels, rows.buffers[activate.source.name])
        rows.store(activate.target, y, activate, f"activation {activate.kind}")

    return run


def _gated_gelu(kernels: Kernels, x: Tensor) -> Tensor:
    gate, up = x.float().chunk(2, dim=1)
    return half(gelu(gate, "tanh") * up)


ACTIVATIONS: dict[tuple[bool, str], Callable[[Kernels, Tensor], Tensor]] = {
    (False, "relu"): lambda kernels, x: half(relu(x.float())),
    (False, "gelu_tanh"): lambda kernels, x: half(gelu(x.float(), "tanh")),
    (False, "gelu_erf"): lambda kernels, x: half(gelu(x.float(), "erf")),
    (True, "silu"): lambda kernels, x: kernels.gated_silu(x),
    (True, "gelu_tanh"): _gated_gelu,
}
"""By whether it is gated, and its name: FP16 of FP16."""


def _add_residual(weights: Weights, kernels: Kernels, add: ops.AddResidual) -> Step:
    scale = _fp32(add.scale)

    def run(rows: Rows) -> None:
        x, z = rows.buffers[add.stream.name], rows.buffers[add.branch.name]
        y = x + z if scale == 1 else half(x.float() + z.float() * scale)
        rows.store(add.target, y, add, "residual")

    return run


def _pack(weights: Weights, kernels: Kernels, pack: ops.PackSelected) -> Step:
    def run(rows: Rows) -> None:
        rows.buffers[pack.target.name] = rows.buffers[pack.source.name][-1:]

    return run


def _scale_logits(weights: Weights, kernels: Kernels, scale: ops.ScaleLogits) -> Step:
    def run(rows: Rows) -> None:
        y = rows.buffers[scale.target.name] * _fp32(scale.scale)
        rows.store(scale.target, y, scale, "scale logits")

    return run


def _cap_logits(weights: Weights, kernels: Kernels, cap: ops.CapLogits) -> Step:
    def run(rows: Rows) -> None:
        y = soft_cap(rows.buffers[cap.target.name], cap.cap)
        rows.store(cap.target, y, cap, "cap logits")

    return run


def _argmax(weights: Weights, kernels: Kernels, argmax: ops.Argmax) -> Step:
    """The host samples the first token."""
    return lambda rows: None


STEPS: dict[type[ops.Operation], Callable[[Weights, Kernels, Any], Step]] = {
    ops.Embed: _embed,
    ops.AddPosition: _add_position,
    ops.Norm: _norm,
    ops.Matmul: _matmul,
    ops.NormHeads: _norm_heads,
    ops.Rope: _rope,
    ops.StoreKv: _store_kv,
    ops.Attend: _attend,
    ops.Activate: _activate,
    ops.AddResidual: _add_residual,
    ops.PackSelected: _pack,
    ops.ScaleLogits: _scale_logits,
    ops.CapLogits: _cap_logits,
    ops.Argmax: _argmax,
}


def check_model(config: ModelConfig) -> None:
    """RequestError names what of a model this package does not compute."""
    check_formats(config)
    for operation in describe(config).operations:
        what = type(operation).__name__
        known = type(operation) in STEPS
        if isinstance(operation, ops.Activate):
            what = f"activation {operation.kind}{', gated' if operation.gated else ''}"
            known = (operation.gated, operation.kind) in ACTIVATIONS
        if not known:
            raise RequestError(
                f"{config.architecture}: exact prefill in torch has no {what}; use prefill 'cpu' "
                "or 'boards:N'"
            )
