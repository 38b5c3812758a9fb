"""The operations of a step in order, as data: made once from a model's configuration and read by
placement, lowering, timing and quantization. No board and no address stands here.

Each operation waits for the one before it, so the order is that of the data, of the command list
and of the gathers. A matmul reads whole rows of a gathered buffer and makes the board's own columns
of its target. A new kind of operation is a class here and a row in each of the tables that
tests/unit/test_block.py lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

from lora_host.errors import ModelError
from lora_sdk.model.spec import Activation, ModelConfig, NormKind

Axis = Literal["hidden", "embed", "heads", "kv_heads", "ffn", "vocabulary"]
"""What a run of columns counts: it is sharded over boards by heads or by units of columns."""


@dataclass(frozen=True)
class Buffer:
    """Rows of activations. `axes`: their columns, side by side. `gathered`: every board holds whole
    rows, filled by gathers; else its own columns alone. `results`: FP32 in the control bank."""

    name: str
    axes: tuple[Axis, ...]
    gathered: bool = False
    results: bool = False


@dataclass(frozen=True)
class Output:
    """Columns of a matmul that are those of one tensor of the checkpoint."""

    tensor: str
    axis: Axis


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`layer` is None outside of the layers. `selected`: on rows whose logits are asked for."""

    layer: int | None = None
    selected: bool = False


@dataclass(frozen=True, kw_only=True)
class Embed(Operation):
    """target = rows of the token table, plus the position's where `positions`."""

    target: Buffer
    positions: bool


@dataclass(frozen=True, kw_only=True)
class AddPosition(Operation):
    """target = target + the position's row."""

    target: Buffer


@dataclass(frozen=True, kw_only=True)
class Norm(Operation):
    """target = norm of source by columns of all boards, times `vectors` gamma, plus beta."""

    name: str
    source: Buffer
    target: Buffer
    kind: NormKind
    vectors: tuple[str, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Checkpoint names of its vectors."""
        return tuple(f"{self.name}.{vector}" for vector in self.vectors)


@dataclass(frozen=True, kw_only=True)
class Matmul(Operation):
    """target = source*W (+ bias); W is [k, columns of all `outputs`]. `gather`: its source is
    gathered for it; else the gather of an earlier matmul, `input_of`, has brought it."""

    name: str
    source: Buffer
    target: Buffer
    k: int
    outputs: tuple[Output, ...]
    bias: bool
    input_of: str | None = None

    @property
    def gather(self) -> bool:
        """Whether its source is gathered for it."""
        return self.input_of is None

    @property
    def tensors(self) -> tuple[str, ...]:
        """Checkpoint names of its matrices."""
        return tuple(output.tensor for output in self.outputs)

    @property
    def short(self) -> str:
        """Its name within its layer."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, kw_only=True)
class Rope(Operation):
    """q and k of `target` rotated by the row's position."""

    target: Buffer


@dataclass(frozen=True, kw_only=True)
class StoreKv(Operation):
    """k and v of source into the layer's KV cache."""

    source: Buffer


@dataclass(frozen=True, kw_only=True)
class Attend(Operation):
    """target = attention of source's q over the layer's KV cache."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class Activate(Operation):
    """target = the activation of source, or, `gated`, silu of its first half times its second."""

    source: Buffer
    target: Buffer
    kind: Activation
    gated: bool


@dataclass(frozen=True, kw_only=True)
class AddResidual(Operation):
    """target = FP16(stream + branch)."""

    stream: Buffer
    branch: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class PackSelected(Operation):
    """target = the selected rows of source, one after another."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class Argmax(Operation):
    """The index of the max of source's columns, a result too."""

    source: Buffer


KINDS: tuple[type[Operation], ...] = (
    Embed, AddPosition, Norm, Matmul, Rope, StoreKv, Attend, Activate, AddResidual, PackSelected,
    Argmax,
)  # fmt: skip
Row = TypeVar("Row")


def row(table: Mapping[type[Operation], Row], operation: Operation) -> Row:
    """The operation's row in a consumer's table; TypeError names a kind without one."""
    kind = type(operation)
    if kind not in table:
        raise TypeError(f"operation {kind.__name__}: no row in this table; expected one a kind")
    return table[kind]


@dataclass(frozen=True)
class Block:
    """A model's operations: `before` the layers, each of the layers', and `after` them. `stream` is
    the buffer of the rows that run from layer to layer; `buffers` are all on-chip ones of
    activations, in the order in which they lie there."""

    stream: Buffer
    buffers: tuple[Buffer, ...]
    before: tuple[Operation, ...]
    layers: tuple[tuple[Operation, ...], ...]
    after: tuple[Operation, ...]

    @property
    def operations(self) -> Iterator[Operation]:
        """All of them in order."""
        yield from self.before
        for layer in self.layers:
            yield from layer
        yield from self.after

    @cached_property
    def matmuls(self) -> tuple[Matmul, ...]:
        """All matmuls in order."""
        return matmuls(self.operations)

    @cached_property
    def adapted(self) -> tuple[Matmul, ...]:
        """Those of the layers, which adapters may change, in the order of their numbers there."""
        return tuple(matmul for matmul in self.matmuls if matmul.layer is not None)

    @cached_property
    def inputs(self) -> Mapping[str, tuple[Matmul, ...]]:
        """The matmuls that read each gathered row, by the name of the first."""
        found: dict[str, tuple[Matmul, ...]] = {}
        for matmul in self.matmuls:
            first = matmul.input_of or matmul.name
            found[first] = (*found.get(first, ()), matmul)
        return found

    def input_tensors(self, matmul: Matmul) -> tuple[str, ...]:
        """Checkpoint names of all matrices that read the same row as `matmul`."""
        readers = self.inputs[matmul.input_of or matmul.name]
        return tuple(tensor for reader in readers for tensor in reader.tensors)


def matmuls(operations: Iterator[Operation] | tuple[Operation, ...]) -> tuple[Matmul, ...]:
    """The matmuls among some operations."""
    return tuple(operation for operation in operations if isinstance(operation, Matmul))


def width(config: ModelConfig, axis: Axis) -> int:
    """Columns of an axis over all boards."""
    return {
        "hidden": config.hidden,
        "embed": config.embed_dim,
        "heads": config.heads * config.head_dim,
        "kv_heads": config.kv_heads * config.head_dim,
        "ffn": config.ffn,
        "vocabulary": config.vocabulary,
    }[axis]


@lru_cache(maxsize=64)
def describe(config: ModelConfig) -> Block:
    """The operations of a model. ModelError: a parallel residual with norms behind the sums."""
    return _Description(config).block()


RESIDUAL = Buffer("residual", ("hidden",))
INPUT = Buffer("input", ("hidden",), gathered=True)
QKV = Buffer("qkv", ("heads", "kv_heads", "kv_heads"))
ATTENTION = Buffer("attention", ("heads",), gathered=True)
BRANCH = Buffer("branch", ("hidden",))  # what o or down adds to the stream
FFN = Buffer("ffn", ("ffn",), gathered=True)
PACKED = Buffer("packed", ("hidden",))
HEAD = Buffer("head", ("hidden",), gathered=True)
EMBED = Buffer("embed", ("embed",), gathered=True)
LOGITS = Buffer("logits", ("vocabulary",), results=True)


@dataclass(frozen=True)
class _Description:
    """The operations that a configuration asks for."""

    config: ModelConfig

    @property
    def up(self) -> Buffer:
        """What the activation reads: gate and up side by side, or up alone."""
        return Buffer("up", ("ffn", "ffn") if self.config.gated else ("ffn",))

    @property
    def _projected(self) -> bool:
        return self.config.embed_dim != self.config.hidden

    @property
    def _stream(self) -> Buffer:
        """Norms behind the sums leave the stream where the next matmul reads it."""
        return RESIDUAL if self.config.norm_first else INPUT

    def block(self) -> Block:
        if self.config.residual != "sequential" and not self.config.norm_first:
            raise ModelError(f"{self.config.residual} residual with norms behind the sums; expected"
                             " norms before attention and MLP")  # fmt: skip
        buffers = [RESIDUAL, INPUT, QKV, ATTENTION, BRANCH, self.up, FFN, PACKED, HEAD]
        return Block(
            self._stream,
            (*buffers, EMBED) if self._projected else tuple(buffers),
            tuple(self._before()),
            tuple(tuple(self._layer(layer)) for layer in range(self.config.layers)),
            tuple(self._after()),
        )

    def _before(self) -> Iterator[Operation]:
        """The first residual: token and position, through project_in where there is one."""
        positions = self.config.position_rows > 0
        if not self._projected:
            yield Embed(target=self._stream, positions=positions)
            return
        yield Embed(target=EMBED, positions=False)
        yield self._plain("project_in", EMBED, self._stream)
        if positions:
            yield AddPosition(target=self._stream)

    def _layer(self, layer: int) -> Iterator[Operation]:
        attention, mlp = tuple(self._attention(layer)), tuple(self._mlp(layer))
        add = AddResidual(layer=layer, stream=self._stream, branch=BRANCH, target=RESIDUAL)
        before = {
            name: self._norm(f"layer.{layer}.{name}", self._stream, INPUT, layer)
            for name in ("attn_norm", "mlp_norm")
        }
        if self.config.residual == "parallel":  # x + attention(n(x)) + mlp(n(x))
            yield from (before["attn_norm"], *attention, add, *mlp, add)
        elif self.config.residual == "parallel_two_norms":  # the sum waits: mlp_norm reads x
            yield from (before["attn_norm"], *attention, before["mlp_norm"], add, *mlp, add)
        elif self.config.norm_first:  # x + branch(n(x))
            yield from (before["attn_norm"], *attention, add, before["mlp_norm"], *mlp, add)
        else:  # n(x + branch(x))
            for name, branch in (("attn_norm", attention), ("mlp_norm", mlp)):
                yield from (*branch, add)
                yield self._norm(f"layer.{layer}.{name}", RESIDUAL, self._stream, layer)

    def _attention(self, layer: int) -> Iterator[Operation]:
        config, lead = self.config, f"layer.{layer}"
        axes: tuple[tuple[str, Axis], ...] = (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads"))
        outputs = tuple(Output(f"{lead}.{name}", axis) for name, axis in axes)
        yield self._matmul(f"{lead}.qkv", INPUT, QKV, outputs, config.qkv_bias, layer)
        if config.rope is not None:
            yield Rope(layer=layer, target=QKV)
        yield StoreKv(layer=layer, source=QKV)
        yield Attend(layer=layer, source=QKV, target=ATTENTION)
        yield self._plain(f"{lead}.o", ATTENTION, BRANCH, config.o_bias, layer)

    def _mlp(self, layer: int) -> Iterator[Operation]:
        config, lead = self.config, f"layer.{layer}"
        names = ("gate", "up") if config.gated else ("up",)
        outputs = tuple(Output(f"{lead}.{name}", "ffn") for name in names)
        shared = f"{lead}.qkv" if config.residual == "parallel" else None
        yield self._matmul(f"{lead}.up", INPUT, self.up, outputs, config.mlp_bias, layer, shared)
        yield Activate(
            layer=layer, source=self.up, target=FFN, kind=config.activation, gated=config.gated
        )
        yield self._plain(f"{lead}.down", FFN, BRANCH, config.mlp_bias, layer)

    def _after(self) -> Iterator[Operation]:
        """For the selected rows: final norm, project_out, lm_head."""
        config, selected = self.config, True
        packed = PACKED if config.final_norm else HEAD
        yield PackSelected(source=self._stream, target=packed, selected=selected)
        if config.final_norm:
            yield self._norm("final_norm", PACKED, HEAD, None)
        source = HEAD
        if self._projected:
            yield self._plain("project_out", HEAD, EMBED, selected=selected)
            source = EMBED
        yield self._plain("lm_head", source, LOGITS, config.head_bias, selected=selected)
        yield Argmax(source=LOGITS, selected=selected)

    def _norm(self, name: str, source: Buffer, target: Buffer, layer: int | None) -> Norm:
        config = self.config
        vectors = ("gamma",) if config.norm == "rmsnorm" else ("gamma", "beta")
        return Norm(
            layer=layer,
            selected=layer is None,
            name=name,
            source=source,
            target=target,
            kind=config.norm,
            vectors=vectors if config.norm_affine else (),
        )

    def _plain(
        self,
        name: str,
        source: Buffer,
        target: Buffer,
        bias: bool = False,
        layer: int | None = None,
        selected: bool = False,
    ) -> Matmul:
        """A matmul of one tensor of its own name."""
        outputs = (Output(name, target.axes[0]),)
        found = self._matmul(name, source, target, outputs, bias, layer)
        return replace(found, selected=selected)

    def _matmul(
        self,
        name: str,
        source: Buffer,
        target: Buffer,
        outputs: tuple[Output, ...],
        bias: bool,
        layer: int | None,
        input_of: str | None = None,
    ) -> Matmul:
        return Matmul(
            layer=layer,
            name=name,
            source=source,
            target=target,
            k=width(self.config, source.axes[0]),
            outputs=outputs,
            bias=bias,
            input_of=input_of,
        )
