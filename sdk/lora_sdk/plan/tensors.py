"""What one board holds of a model: its matrices and tables by name, before they have addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from lora_host import abi
from lora_sdk.model.quantization import FP16, MatrixFormat
from lora_sdk.plan.formats import act_order, product_format
from lora_sdk.plan.partition import Share

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

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
    """A matrix [k, n] of one board; its columns are those of `parts`, one after another. `bias` is
    the name of its bias, None without one; products of INT8 activations have it behind the
    columns' scales, in the table `scales`. `permutation` is the table with the order of its inputs
    (act-order), None where they come in their own."""

    name: str
    layer: int | None
    k: int
    parts: tuple[Part, ...]
    bias: str | None
    format: MatrixFormat = FP16
    permutation: str | None = None

    @property
    def n(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def blocks(self) -> int:
        """Weight blocks of 128 x 32, padding included."""
        return -(-self.k // abi.BLOCK_K) * -(-self.n // abi.BLOCK_N)

    @property
    def bytes(self) -> int:
        """Bytes of the weights themselves, without padding."""
        return self.format.bytes(self.k, self.n)

    @property
    def block_bytes(self) -> int:
        """Bytes of one weight block."""
        return self.format.block_bytes

    @property
    def scales(self) -> str | None:
        """The table of FP32 scales, one a column, None where the format has none."""
        return f"{self.name}.scales" if self.format.integer else None

    @property
    def table(self) -> str | None:
        """The table that the product reads: scales with the bias behind them, or the bias."""
        return self.scales or self.bias


@dataclass(frozen=True)
class TableSpec:
    """A table [rows, columns] that units read by row: biases, norm vectors, embeddings, RoPE,
    columns' scales (with `bias`, FP16 behind them), the order of a matrix's inputs."""

    name: str
    kind: Literal["bias", "norm", "embedding", "rope", "scales", "permutation"]
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
        """Whether loading makes it from other values, and not from one tensor as it is."""
        return self.kind in ("rope", "scales", "permutation")


def padded(count: int) -> int:
    """`count` bytes in whole lines."""
    return -(-count // abi.LINE_BYTES) * abi.LINE_BYTES


def head_columns(heads: range, head_dim: int) -> range:
    """Columns of a run of heads."""
    return range(heads.start * head_dim, heads.stop * head_dim)


def matrix_specs(config: ModelConfig, share: Share) -> list[MatrixSpec]:
    """The share's matrices in the order in which a step uses them; those without columns are left
    out."""
    specs: list[MatrixSpec] = []
    if config.embed_dim != config.hidden:
        specs.append(_plain(config, "project_in", None, config.embed_dim, share.hidden))
    for layer in range(config.layers):
        specs.extend(layer_matrices(config, share, layer))
    if config.embed_dim != config.hidden:
        specs.append(_plain(config, "project_out", None, config.hidden, share.embed))
    specs.append(_plain(config, "lm_head", None, config.embed_dim, share.vocabulary))
    return [spec for spec in specs if spec.n]


def _plain(
    config: ModelConfig,
    name: str,
    layer: int | None,
    k: int,
    columns: range,
    bias: bool = False,
) -> MatrixSpec:
    return _spec(config, name, layer, k, (Part(name, columns.start, columns.stop),), bias)


def _spec(
    config: ModelConfig,
    name: str,
    layer: int | None,
    k: int,
    parts: tuple[Part, ...],
    bias: bool,
) -> MatrixSpec:
    return MatrixSpec(
        name,
        layer,
        k,
        parts,
        f"{name}.bias" if bias else None,
        product_format(config, name),
        f"{name}.permutation" if act_order(config, name) else None,
    )


def layer_matrices(config: ModelConfig, share: Share, layer: int) -> Iterator[MatrixSpec]:
    """The four matrices of a layer; those without columns too."""
    prefix = f"layer.{layer}"
    attention = config.heads * config.head_dim
    qkv, up = _qkv_parts(config, share, prefix), _up_parts(config, share, prefix)
    yield _spec(config, f"{prefix}.qkv", layer, config.hidden, qkv, config.qkv_bias)
    yield _plain(config, f"{prefix}.o", layer, attention, share.hidden, config.o_bias)
    yield _spec(config, f"{prefix}.up", layer, config.hidden, up, config.mlp_bias)
    yield _plain(config, f"{prefix}.down", layer, config.ffn, share.hidden, config.mlp_bias)


def _qkv_parts(config: ModelConfig, share: Share, prefix: str) -> tuple[Part, ...]:
    q = head_columns(share.q_heads, config.head_dim)
    kv = head_columns(share.kv_heads, config.head_dim)
    return tuple(
        Part(f"{prefix}.{name}", columns.start, columns.stop)
        for name, columns in (("q", q), ("k", kv), ("v", kv))
    )


def _up_parts(config: ModelConfig, share: Share, prefix: str) -> tuple[Part, ...]:
    names = ("gate", "up") if config.gated else ("up",)
    return tuple(Part(f"{prefix}.{name}", share.ffn.start, share.ffn.stop) for name in names)


def table_specs(config: ModelConfig, share: Share, context: int) -> list[TableSpec]:
    """The share's tables; `context` is the number of positions that RoPE's table covers."""
    specs = [_embedding("embed.token", config.vocabulary, share.embed)]
    if config.position_rows:
        specs.append(_embedding("embed.position", config.position_rows, share.hidden))
    if config.rope is not None:
        whole = (Part("rope", 0, config.head_dim),)
        specs.append(TableSpec("rope", "rope", context, whole, FP32_BYTES))
    for spec in matrix_specs(config, share):
        specs.extend(_product_tables(spec))
    for name in norm_names(config):
        specs.extend(_norm_tables(config, share, name))
    return [spec for spec in specs if spec.columns]


def _product_tables(spec: MatrixSpec) -> Iterator[TableSpec]:
    """What a product reads beside its weights."""
    if spec.scales is not None:
        bias = spec.bias is not None
        yield TableSpec(spec.scales, "scales", 1, spec.parts, FP32_BYTES, bias)
    elif spec.bias is not None:
        parts = tuple(Part(f"{p.tensor}.bias", p.start, p.stop) for p in spec.parts)
        yield TableSpec(spec.bias, "bias", 1, parts)
    if spec.permutation is not None:
        whole = (Part(spec.parts[0].tensor, 0, spec.k),)
        yield TableSpec(spec.permutation, "permutation", 1, whole, FP32_BYTES)


def norm_names(config: ModelConfig) -> list[str]:
    """All norms of the model in order."""
    names = [
        f"layer.{layer}.{norm}"
        for layer in range(config.layers)
        for norm in ("attn_norm", "mlp_norm")
    ]
    return [*names, "final_norm"] if config.final_norm else names


def _norm_tables(config: ModelConfig, share: Share, name: str) -> Iterator[TableSpec]:
    if not config.norm_affine:
        return
    vectors = ("gamma",) if config.norm == "rmsnorm" else ("gamma", "beta")
    for vector in vectors:
        full = f"{name}.{vector}"
        part = Part(full, share.hidden.start, share.hidden.stop)
        yield TableSpec(full, "norm", 1, (part,))


def _embedding(name: str, rows: int, columns: range) -> TableSpec:
    return TableSpec(name, "embedding", rows, (Part(name, columns.start, columns.stop),))
