"""The matrices and tables of one board by name, before they have addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lora_host import abi
from lora_sdk.model import operations as ops
from lora_sdk.model.quantization import FP16, MatrixFormat, format_of, tokens_of
from lora_sdk.plan.formats import act_order, matmul_format
from lora_sdk.plan.partition import Share, axis_columns, first_columns

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

TOKENS = "embed.token"
FP16_BYTES = 2
FP32_BYTES = 4


class Part(NamedTuple):
    """Columns start..stop of a checkpoint tensor: outputs, a vector's elements, an embedding's."""

    tensor: str
    start: int
    stop: int

    @property
    def width(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class MatrixSpec:
    """A matrix [k, n] of one board; its columns are those of `parts`, side by side. `bias` is
    the name of its bias, None without one; matmuls of INT8 activations store it after the
    columns' scales, in the table `scales`. `permutation` is the table with the order of its inputs
    (act-order), None if they are not permuted. Of `experts`, where there are any, each has such a
    matrix, with as many of `parts` in order; a row reads those of `chosen` experts."""

    name: str
    layer: int | None
    k: int
    parts: tuple[Part, ...]
    bias: str | None
    format: MatrixFormat = FP16
    permutation: str | None = None
    experts: int = 0
    chosen: int = 0

    @property
    def matrices(self) -> int:
        """Matrices [k, n]: one of each expert."""
        return self.experts or 1

    def of_expert(self, number: int) -> MatrixSpec:
        """The matrix of one expert."""
        each = len(self.parts) // self.matrices
        parts = self.parts[number * each : (number + 1) * each]
        return replace(self, parts=parts, experts=0, chosen=0)

    @property
    def n(self) -> int:
        return sum(part.width for part in self.parts) // self.matrices

    @property
    def streamed(self) -> bool:
        """Whether a step reads all of it."""
        return self.name != TOKENS

    @property
    def blocks(self) -> int:
        """Weight blocks of 128 x 32 of a matrix, padding included."""
        return -(-self.k // abi.BLOCK_K) * -(-self.n // abi.BLOCK_N)

    @property
    def bytes(self) -> int:
        """Bytes of the weights themselves, without padding."""
        return self.format.bytes(self.k, self.n) * self.matrices

    @property
    def token_bytes(self) -> int:
        """Those of them that one row reads."""
        return self.format.bytes(self.k, self.n) * (self.chosen or 1)

    @property
    def block_bytes(self) -> int:
        """Bytes of one weight block."""
        return self.format.block_bytes

    @property
    def scales(self) -> str | None:
        """The table of FP32 scales, one per column, None if the format has none."""
        return f"{self.name}.scales" if self.format.integer else None

    @property
    def table(self) -> str | None:
        """The table that the matmul reads: scales followed by the bias, or the bias."""
        return self.scales or self.bias


@dataclass(frozen=True)
class TableSpec:
    """A table [rows, columns] that units read by row: biases, norm vectors, embeddings, RoPE,
    slopes, sinks, columns' scales (followed by FP16 biases if `bias`; of experts a row each, with
    the first one's `parts`), experts' biases alone (likewise), the order of a matrix's inputs, a
    vector in FP32 (`wide`)."""

    name: str
    kind: Literal[
        "bias", "norm", "embedding", "rope", "slopes", "scales", "permutation", "wide",
        "recurrence", "sinks", "expert_bias",
    ]  # fmt: skip
    rows: int
    parts: tuple[Part, ...]
    element_bytes: int = FP16_BYTES
    bias: bool = False

    @property
    def columns(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def row_bytes(self) -> int:
        """One row, padded to whole lines."""
        behind = padded(self.columns * FP16_BYTES) if self.bias else 0
        return padded(self.columns * self.element_bytes) + behind

    @property
    def bytes(self) -> int:
        """Bytes of the values themselves, without padding."""
        return self.rows * self.columns * (self.element_bytes + FP16_BYTES * self.bias)

    @property
    def computed(self) -> bool:
        """Whether loading computes it; otherwise it is a copy of one tensor in FP16."""
        return self.kind not in ("bias", "norm", "embedding")


def padded(count: int) -> int:
    """`count` bytes in whole lines."""
    return -(-count // abi.LINE_BYTES) * abi.LINE_BYTES


def matrix_specs(config: ModelConfig, share: Share) -> list[MatrixSpec]:
    """The share's matrices in the order in which a step uses them, without those that have no
    columns here."""
    found = [_spec(config, share, matmul) for matmul in share.block(config).matmuls]
    tokens = token_matrix(config, share)
    if tokens is not None and not shares_tokens(config, share):
        found.insert(0, tokens)
    return [spec for spec in found if spec.n]


def token_matrix(config: ModelConfig, share: Share) -> MatrixSpec | None:
    """The token table as a matrix [columns, vocabulary] in blocks of GGUF files; None: it is a
    table in FP16, which also takes no more where blocks would have to be padded or cut."""
    form, columns = tokens_of(config), share.embed
    block = form.weights.gguf
    embeds = any(isinstance(operation, ops.Embed) for operation in share.block(config).operations)
    if block is None or not embeds or not columns:
        return None
    if columns.start % block.weights or len(columns) % block.weights:
        return None
    whole = (Part(TOKENS, 0, config.vocabulary),)
    spec = MatrixSpec(TOKENS, None, len(columns), whole, None, form)
    table = config.vocabulary * padded(len(columns) * FP16_BYTES)
    return spec if spec.blocks * spec.block_bytes < table else None


def shares_tokens(config: ModelConfig, share: Share) -> bool:
    """Whether a tied lm_head's blocks are the token table's: this board has all of both."""
    return (
        config.tied
        and share.boards == 1
        and share.stage.is_first
        and share.stage.is_last
        and format_of(config, ("lm_head",)) == tokens_of(config)
    )


def adapted_specs(config: ModelConfig, share: Share) -> Iterator[MatrixSpec]:
    """The share's matrices that adapters may change, including those without columns here."""
    for matmul in share.block(config).adapted:
        yield _spec(config, share, matmul)


def _spec(config: ModelConfig, share: Share, matmul: ops.Matmul) -> MatrixSpec:
    parts = []
    for output in matmul.outputs:
        columns = axis_columns(config, share, output.axis)
        parts.append(Part(output.tensor, columns.start, columns.stop))
    experts = matmul if isinstance(matmul, ops.ExpertMatmul) else None
    return MatrixSpec(
        matmul.name,
        matmul.layer,
        matmul.k,
        tuple(parts),
        f"{matmul.name}.bias" if matmul.bias else None,
        matmul_format(config, matmul),
        f"{matmul.name}.permutation" if act_order(config, matmul) else None,
        experts.experts if experts else 0,
        experts.chosen if experts else 0,
    )


@dataclass(frozen=True)
class _Context:
    config: ModelConfig
    share: Share
    context: int


def _embed(at: _Context, embed: ops.Embed) -> Iterator[TableSpec]:
    if token_matrix(at.config, at.share) is None:
        yield _embedding(TOKENS, at.config.vocabulary, at.share.embed)
    if embed.positions:
        yield from _positions(at, embed)


def _positions(at: _Context, operation: ops.Operation) -> Iterator[TableSpec]:
    yield _embedding("embed.position", at.config.position_rows, at.share.hidden)


def _rope(at: _Context, rope: ops.Rope) -> Iterator[TableSpec]:
    whole = (Part(rope.table, 0, at.config.head_dim),)
    yield TableSpec(rope.table, "rope", at.context, whole, FP32_BYTES)


def _attend(at: _Context, attend: ops.Attend) -> Iterator[TableSpec]:
    if attend.slopes:  # a slope and a factor of each query head
        heads = at.share.q_heads
        own = (Part("slopes", 2 * heads.start, 2 * heads.stop),)
        yield TableSpec("slopes", "slopes", 1, own, FP32_BYTES)
    if attend.sinks:  # likewise: a sink, and nothing
        heads = at.share.q_heads
        own = (Part(attend.sinks, 2 * heads.start, 2 * heads.stop),)
        yield TableSpec(attend.sinks, "sinks", 1, own, FP32_BYTES)


def _matmul(at: _Context, matmul: ops.Matmul) -> Iterator[TableSpec]:
    """The tables that a matmul reads in addition to its weights."""
    spec = _spec(at.config, at.share, matmul)
    if not spec.n:
        return
    if spec.scales is not None:
        bias, parts = spec.bias is not None, spec.of_expert(0).parts
        yield TableSpec(spec.scales, "scales", spec.matrices, parts, FP32_BYTES, bias)
    elif spec.bias is not None and spec.experts:
        yield TableSpec(spec.bias, "expert_bias", spec.experts, spec.of_expert(0).parts)
    elif spec.bias is not None:
        parts = tuple(Part(f"{p.tensor}.bias", p.start, p.stop) for p in spec.parts)
        yield TableSpec(spec.bias, "bias", 1, parts)
    if spec.permutation is not None:
        moved = spec.k  # bytes of a dynamic INT8 row: its scale moves, too
        if spec.format.dynamic:
            moved = padded(spec.k) + abi.dtype("row_scale").itemsize
        whole = (Part(spec.parts[0].tensor, 0, moved),)
        yield TableSpec(spec.permutation, "permutation", 1, whole, FP32_BYTES)


def _norm(at: _Context, norm: ops.Norm) -> Iterator[TableSpec]:
    columns = first_columns(at.config, at.share, norm.source)
    for name in norm.tensors:
        yield TableSpec(name, "norm", 1, (Part(name, columns.start, columns.stop),))


def _norm_heads(at: _Context, norm: ops.NormHeads) -> Iterator[TableSpec]:
    """gamma of the board's heads, or the one that all heads share."""
    columns = range(at.config.head_dim)
    if norm.whole:
        columns = axis_columns(at.config, at.share, norm.axis)
    yield TableSpec(norm.tensor, "norm", 1, (Part(norm.tensor, columns.start, columns.stop),))


def _route(at: _Context, route: ops.Route) -> Iterator[TableSpec]:
    if route.sigmoid is not None:
        whole = (Part(route.bias, 0, ops.width(at.config, "experts")),)
        yield TableSpec(route.bias, "wide", 1, whole, FP32_BYTES)


def _recur(at: _Context, recur: ops.Recur) -> Iterator[TableSpec]:
    """What lora_recurrence's table holds, as bytes."""
    whole = (Part(recur.table, 0, recurrence_bytes(at.config, at.share)),)
    yield TableSpec(recur.table, "recurrence", 1, whole, 1)


def _norm_groups(at: _Context, norm: ops.NormGroups) -> Iterator[TableSpec]:
    """gamma of the board's columns of each group."""
    for group, part in group_parts(at.config, at.share, norm):
        table = f"{norm.tensor}.{group}"
        yield TableSpec(table, "norm", 1, (Part(norm.tensor, part.start, part.stop),))


def group_parts(
    config: ModelConfig, share: Share, norm: ops.NormGroups
) -> Iterator[tuple[int, range]]:
    """The groups of which the board has columns, and which."""
    own = axis_columns(config, share, norm.target.axes[0])
    each = ops.width(config, norm.target.axes[0]) // norm.groups
    for group in range(norm.groups):
        part = range(max(own.start, group * each), min(own.stop, (group + 1) * each))
        if part:
            yield group, part


def recurrence_bytes(config: ModelConfig, share: Share) -> int:
    """Bytes of a board's table of a recurrence: a line of the convolution's weights for each of its
    positions; A and dt_bias of the value heads; the norm's gamma. A scan's: a line of biases, then
    A, dt_bias and D, its constants."""
    recurrent = config.recurrent
    assert recurrent is not None
    axes: tuple[ops.Axis, ...] = ("mixed_keys", "mixed_keys", "mixed_values")
    columns = sum(len(axis_columns(config, share, axis)) for axis in axes)
    size = recurrent.kernel * padded(columns * FP16_BYTES)
    if recurrent.kind == "selective_scan":
        size += padded(columns * FP16_BYTES)
        size += 3 * padded(len(axis_columns(config, share, "mixed_heads")) * FP32_BYTES)
        size += padded(abi.dtype("scan_constants").itemsize)
    if recurrent.kind == "gated_delta":
        size += 2 * padded(len(axis_columns(config, share, "mixed_heads")) * FP32_BYTES)
        size += padded(recurrent.values // recurrent.value_heads * FP16_BYTES)
    return size


def _none(at: _Context, operation: ops.Operation) -> Iterator[TableSpec]:
    return iter(())


TABLES: dict[type[ops.Operation], Callable[[_Context, Any], Iterator[TableSpec]]] = {
    ops.Embed: _embed,
    ops.AddPosition: _positions,
    ops.Rope: _rope,
    ops.Matmul: _matmul,
    ops.ExpertMatmul: _matmul,
    ops.Norm: _norm,
    ops.NormHeads: _norm_heads,
    ops.Attend: _attend,
    ops.Recur: _recur,
    ops.NormGroups: _norm_groups,
    ops.Route: _route,
    **dict.fromkeys(
        (ops.StoreKv, ops.Activate, ops.Elementwise, ops.PackSelected, ops.Argmax, ops.AddGated,
         ops.GateHeads, ops.JoinHeads),
        _none,
    ),
}  # fmt: skip
PLACED = {"embedding": 0, "rope": 1, "slopes": 1, "bias": 2, "scales": 2, "permutation": 2,
          "norm": 3, "wide": 3, "recurrence": 3, "sinks": 1, "expert_bias": 2}  # fmt: skip
"""The order of kinds in the banks."""


def table_specs(config: ModelConfig, share: Share, context: int) -> list[TableSpec]:
    """The share's tables; `context` is the number of positions in RoPE's table."""
    at = _Context(config, share, context)
    found = {
        spec.name: spec
        for operation in share.block(config).operations
        for spec in ops.row(TABLES, operation)(at, operation)
        if spec.columns
    }
    return sorted(found.values(), key=lambda spec: PLACED[spec.kind])


def _embedding(name: str, rows: int, columns: range) -> TableSpec:
    return TableSpec(name, "embedding", rows, (Part(name, columns.start, columns.stop),))
