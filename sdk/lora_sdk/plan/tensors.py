"""What one board holds of a model: its matrices and tables by name, before they have addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from lora_host import abi
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
    the name of the table that holds its bias, None without one."""

    name: str
    layer: int | None
    k: int
    parts: tuple[Part, ...]
    bias: str | None

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
        return self.k * self.n * FP16_BYTES


@dataclass(frozen=True)
class TableSpec:
    """A table [rows, columns] that units read by row: biases, norm vectors, embeddings, RoPE."""

    name: str
    kind: Literal["bias", "norm", "embedding", "rope"]
    rows: int
    parts: tuple[Part, ...]
    element_bytes: int = FP16_BYTES

    @property
    def columns(self) -> int:
        return sum(part.width for part in self.parts)

    @property
    def row_bytes(self) -> int:
        """One row, padded to whole lines."""
        return padded(self.columns * self.element_bytes)

    @property
    def bytes(self) -> int:
        """Bytes of the values themselves, without padding."""
        return self.rows * self.columns * self.element_bytes


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
        specs.append(_plain("project_in", None, config.embed_dim, share.hidden))
    for layer in range(config.layers):
        specs.extend(layer_matrices(config, share, layer))
    if config.embed_dim != config.hidden:
        specs.append(_plain("project_out", None, config.hidden, share.embed))
    specs.append(_plain("lm_head", None, config.embed_dim, share.vocabulary))
    return [spec for spec in specs if spec.n]


def _plain(
    name: str, layer: int | None, k: int, columns: range, bias: str | None = None
) -> MatrixSpec:
    return MatrixSpec(name, layer, k, (Part(name, columns.start, columns.stop),), bias)


def layer_matrices(config: ModelConfig, share: Share, layer: int) -> Iterator[MatrixSpec]:
    """The four matrices of a layer; those without columns too."""
    prefix = f"layer.{layer}"
    attention = config.heads * config.head_dim
    qkv_bias = f"{prefix}.qkv.bias" if config.qkv_bias else None
    yield MatrixSpec(
        f"{prefix}.qkv", layer, config.hidden, _qkv_parts(config, share, prefix), qkv_bias
    )
    o_bias = f"{prefix}.o.bias" if config.o_bias else None
    yield _plain(f"{prefix}.o", layer, attention, share.hidden, o_bias)
    up_bias = f"{prefix}.up.bias" if config.mlp_bias else None
    yield MatrixSpec(
        f"{prefix}.up", layer, config.hidden, _up_parts(config, share, prefix), up_bias
    )
    down_bias = f"{prefix}.down.bias" if config.mlp_bias else None
    yield _plain(f"{prefix}.down", layer, config.ffn, share.hidden, down_bias)


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
        if spec.bias is not None:
            parts = tuple(Part(f"{p.tensor}.bias", p.start, p.stop) for p in spec.parts)
            specs.append(TableSpec(spec.bias, "bias", 1, parts))
    for name in norm_names(config):
        specs.extend(_norm_tables(config, share, name))
    return [spec for spec in specs if spec.columns]


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
