"""Where activations lie in the on-chip buffer, and how many rows of a step fit in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_sdk.model import operations as ops
from lora_sdk.model.quantization import MatrixFormat, kv_of
from lora_sdk.plan.formats import act_order, matmul_format
from lora_sdk.plan.partition import Share, local_columns, shares_segments
from lora_sdk.plan.tensors import FP16_BYTES, FP32_BYTES, padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

KV_COPIES = ("qkv8", "kv8", "kv_scales")  # at the end
NORM_ROW = "norm_row"  # what a norm sums, gathered
PASSED = "passed"  # the residual stream between stages, gathered
Copy = tuple[str, int]


@dataclass(frozen=True)
class OnchipBuffer:
    """Row i lies at offset + i*stride bytes of abi.BANK_ONCHIP."""

    offset: int
    stride: int


def row_strides(config: ModelConfig, share: Share, adapter_columns: int = 0) -> dict[str, int]:
    """Bytes of one row of each buffer.

    Only gathered buffers are as wide as the model: `input`, `attention`, `ffn`, `expert_ffn`,
    `shared_ffn`, `q_latent`, `kv_latent`, `head`, `embed`, and their INT8 copies `input8` ..
    `embed8` for matmuls that read INT8. The others have the board's own columns: the residual,
    results of matmuls, norm sums (III.A).
    `adapter_columns`: values per row of adapters' h, 0 without adapters."""
    described = share.block(config)
    strides = {
        buffer.name: padded(_columns(config, share, buffer) * buffer.element_bytes)
        for buffer in described.buffers
    }
    strides["sums"] = padded(abi.SEGMENTS * 8)
    if share.stage.count > 1:
        strides[PASSED] = padded(config.hidden * FP16_BYTES)
    if adapter_columns:
        strides["adapter"] = padded(adapter_columns * FP16_BYTES)
    copies = [
        copy
        for operation in described.operations
        for copy in ops.row(COPIES, operation)(config, share, operation)
    ]
    for name, stride in sorted(copies, key=lambda copy: copy[0] in KV_COPIES):
        strides[name] = max(stride, strides.get(name, 0))
    return strides


def input_bytes(form: MatrixFormat, k: int) -> int:
    """Bytes of a row of a matmul's input: K values and, of dynamic ones, what lies behind them
    (struct lora_row_scale)."""
    if form.dynamic:
        return padded(k) + abi.dtype("row_scale").itemsize
    return k * (1 if form.integer else FP16_BYTES)


def eight(buffer: str) -> str:
    """Name of the INT8 copy of `buffer`."""
    return f"{buffer}8"


def _columns(config: ModelConfig, share: Share, buffer: ops.Buffer) -> int:
    """Columns of the buffer on the board."""
    if buffer.gathered:
        return sum(ops.width(config, axis) for axis in buffer.axes)
    return len(local_columns(config, share, buffer))


def _of_matmul(config: ModelConfig, share: Share, matmul: ops.Matmul) -> Iterator[Copy]:
    """Its input in INT8, with the rows' own scales if there are any, and in another order."""
    form = matmul_format(config, matmul)
    if form.integer:
        yield eight(matmul.source.name), padded(input_bytes(form, matmul.row_columns))
    if act_order(config, matmul):
        yield "permuted", padded(input_bytes(form, matmul.row_columns))


def _of_kv(config: ModelConfig, share: Share, store: ops.StoreKv) -> Iterator[Copy]:
    """q, k and v in INT8, or k and v with their scales."""
    kv_heads = 2 * len(share.kv_heads)
    kind = kv_of(config)
    if kind.static:
        yield "qkv8", padded((len(share.q_heads) + kv_heads) * config.head_dim)
    if kind.by_head:
        yield "kv8", padded(kv_heads * config.head_dim)
        yield "kv_scales", padded(kv_heads * FP16_BYTES)


def _of_norm(config: ModelConfig, share: Share, norm: ops.Norm) -> Iterator[Copy]:
    """The whole row that is summed, where boards share its segments."""
    if shares_segments(share.boards):
        yield NORM_ROW, padded(ops.width(config, norm.source.axes[0]) * FP16_BYTES)


def _of_heads(config: ModelConfig, share: Share, norm: ops.NormHeads) -> Iterator[Copy]:
    """The sums of all boards' heads."""
    if norm.whole:
        yield "head_sums", padded(config.heads * FP32_BYTES)


def _of_groups(config: ModelConfig, share: Share, norm: ops.NormGroups) -> Iterator[Copy]:
    """The sums of all query heads' columns."""
    yield "head_sums", padded(config.heads * FP32_BYTES)


def _none(config: ModelConfig, share: Share, operation: ops.Operation) -> Iterator[Copy]:
    return iter(())


COPIES: dict[type[ops.Operation], Callable[[ModelConfig, Share, Any], Iterator[Copy]]] = {
    ops.Matmul: _of_matmul,
    ops.ExpertMatmul: _of_matmul,
    ops.StoreKv: _of_kv,
    ops.Norm: _of_norm,
    ops.NormHeads: _of_heads,
    ops.NormGroups: _of_groups,
    **dict.fromkeys(
        (ops.Embed, ops.AddPosition, ops.Rope, ops.Attend, ops.Activate,
         ops.Elementwise, ops.PackSelected, ops.Argmax, ops.Route,
         ops.AddGated, ops.Recur, ops.GateHeads, ops.JoinHeads),
        _none,
    ),
}  # fmt: skip
"""Further buffers that an operation needs: names and strides."""


def row_bytes(config: ModelConfig, share: Share, adapter_columns: int = 0) -> int:
    """On-chip bytes per row of a step."""
    return sum(row_strides(config, share, adapter_columns).values())


def layout(
    config: ModelConfig, share: Share, rows: int, adapter_columns: int = 0
) -> dict[str, OnchipBuffer]:
    """All buffers for steps of at most `rows` rows, one after another from offset 0."""
    buffers: dict[str, OnchipBuffer] = {}
    offset = 0
    for name, stride in row_strides(config, share, adapter_columns).items():
        buffers[name] = OnchipBuffer(offset, stride)
        offset += stride * rows
    return buffers
