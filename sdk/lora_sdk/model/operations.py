"""The operations of a step as data: what each reads, writes and computes. `model/block.py` makes
the list of a model from them.

A matmul reads whole rows of a gathered buffer and computes the board's own columns of its target. A
new kind of operation is a class here and an entry in each of the tables that
tests/unit/test_block.py lists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.numerics import soft_cap
from lora_sdk.model.spec import Activation, ModelConfig, NormKind, Recurrence, SigmoidRouting

Axis = Literal[
    "hidden", "embed", "heads", "kv_heads", "ffn", "vocabulary",
    "experts", "chosen", "expert_ffn", "chosen_ffn", "shared_ffn", "shared_gate",
    "mixed", "mixed_values", "mixed_keys", "mixed_heads",
    "q_latent", "kv_latent", "rope_key", "kv_nope", "kv_values", "values",
]  # fmt: skip
"""What a range of columns consists of. Boards shard it by heads or by units of columns; every board
has all of `experts`, `shared_gate`, `chosen` and `rope_key`. `expert_ffn` is of one expert,
`chosen_ffn` of each expert that a row has chosen: column by column, side by side. Of a recurrence:
`mixed`, what comes out of it, goes with the query heads; what goes into it with the KV heads. Of
latent attention: `kv_nope` and `kv_values`, columns of KV heads, `values`, of query heads."""


@dataclass(frozen=True)
class Buffer:
    """Rows of activations. `axes`: their columns, side by side. `gathered`: every board holds whole
    rows, filled by gathers; otherwise only its own columns. `results`: FP32 in the control bank.
    `element_bytes`: of a value; 4 is FP32, 8 struct lora_chosen."""

    name: str
    axes: tuple[Axis, ...]
    gathered: bool = False
    results: bool = False
    element_bytes: int = 2


@dataclass(frozen=True)
class Output:
    """Columns of a matmul that are those of one tensor of the checkpoint."""

    tensor: str
    axis: Axis


@dataclass(frozen=True, kw_only=True)
class Operation:
    """`layer` is None outside the layers. `selected`: only on rows whose logits are requested. They
    are the first ones of their buffers: PackSelected moves them there; Attend does so with q, and
    a Matmul with an input that an earlier one has gathered."""

    layer: int | None = None
    selected: bool = False


@dataclass(frozen=True, kw_only=True)
class Embed(Operation):
    """target = rows of the token table, times `scale`, plus the position's row if `positions`."""

    target: Buffer
    positions: bool
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AddPosition(Operation):
    """target = target + the position's row."""

    target: Buffer


@dataclass(frozen=True, kw_only=True)
class Norm(Operation):
    """target = norm of source over the columns of all boards, times gamma, plus beta; `vectors`
    names those of the two that exist. An RMSNorm with `one_plus` multiplies by 1 + gamma, and by
    `numerator`, a power of two."""

    name: str
    source: Buffer
    target: Buffer
    kind: NormKind
    vectors: tuple[str, ...]
    eps: float
    one_plus: bool = False
    numerator: float = 1.0

    @property
    def tensors(self) -> tuple[str, ...]:
        """Checkpoint names of its vectors."""
        return tuple(f"{self.name}.{vector}" for vector in self.vectors)


@dataclass(frozen=True, kw_only=True)
class Matmul(Operation):
    """target = source*W (+ bias); W is [k, columns of all `outputs`]. `input_of`: the earlier
    matmul whose gather filled the source; None: the source is gathered for this one (`gather`)."""

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
    def row_columns(self) -> int:
        """Columns of a row of its source."""
        return self.k

    @property
    def short(self) -> str:
        """Its name within its layer."""
        return self.name.rpartition(".")[2]

    @property
    def adapts(self) -> bool:
        """Whether adapters may change it: routers and experts have none."""
        return self.layer is not None and not self.routes

    @property
    def routes(self) -> bool:
        """Whether it is a router's, which every board has whole, in FP16."""
        return self.target.axes[0] == "experts"


@dataclass(frozen=True, kw_only=True)
class ExpertMatmul(Matmul):
    """target = source*W of each expert that the row has chosen; `outputs` are those of all
    `experts`, one after the other. With `combine` the source has a row of k columns for each chosen
    expert, and the target is the sum of their outputs by the weights of `chosen_from`; otherwise
    one row is multiplied by all of them, and the target has columns for each."""

    experts: int
    chosen: int
    combine: bool
    chosen_from: Buffer

    @property
    def row_columns(self) -> int:
        return self.k * (self.chosen if self.combine else 1)

    @property
    def adapts(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class Route(Operation):
    """target = the `chosen` experts of the largest logits in source, and their weights, which add
    up to 1 where `renormalize`. With `sigmoid` they are as that says, by the FP32 vector `bias`
    [experts] of the checkpoint; without it `taken` of `groups` are chosen from, and weights are
    multiplied by `factor`."""

    source: Buffer
    target: Buffer
    chosen: int
    renormalize: bool
    sigmoid: SigmoidRouting | None = None
    bias: str = ""
    groups: int = 1
    taken: int = 1
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AddGated(Operation):
    """target = FP16(target + source*sigmoid(gate)); `gate` is the last column of a router's row."""

    source: Buffer
    gate: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class NormHeads(Operation):
    """q or k of `target`, in place: RMSNorm of each head, or of the columns of all boards if
    `whole`, times gamma, or 1 + gamma if `one_plus`."""

    name: str
    target: Buffer
    part: Literal["q", "k"]
    whole: bool
    one_plus: bool = False

    @property
    def axis(self) -> Axis:
        """What its columns consist of."""
        return "heads" if self.part == "q" else "kv_heads"

    @property
    def tensor(self) -> str:
        """Checkpoint name of gamma: [head_dim], or [columns of all heads] if `whole`."""
        return f"{self.name}.gamma"


@dataclass(frozen=True, kw_only=True)
class Rope(Operation):
    """q and k of `target` rotated by the row's position, with the angles of `table`."""

    target: Buffer
    table: str = "rope"


@dataclass(frozen=True, kw_only=True)
class JoinHeads(Operation):
    """Of latent attention: k of target, from each head's columns in source and the rotated ones at
    the end of `shared`; v of target, from each head's columns behind those, and zeros; "y":
    target = the columns of v that source has of each head."""

    source: Buffer
    target: Buffer
    part: Literal["k", "v", "y"]
    shared: Buffer | None = None


@dataclass(frozen=True, kw_only=True)
class StoreKv(Operation):
    """k and v of source into the layer's KV cache."""

    source: Buffer


@dataclass(frozen=True, kw_only=True)
class Attend(Operation):
    """target = attention of source's q over the layer's KV cache. `window`: the positions that a
    row sees, itself included, 0 for all. `slopes`: each head's scores get a bias by position.
    `cap`: soft bound of the scores, 0 for none. `sinks`: the checkpoint's vector [heads] of logits
    that weigh no position, "" without."""

    source: Buffer
    target: Buffer
    window: int = 0
    slopes: bool = False
    cap: float = 0.0
    sinks: str = ""


@dataclass(frozen=True, kw_only=True)
class GateHeads(Operation):
    """target = FP16(target*sigmoid(gate)), the gate the last columns of source."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class Recur(Operation):
    """target = what the layer's recurrence makes of source and of earlier positions, of which the
    cache keeps what it needs. The last columns of source are the gate of the target's."""

    name: str
    source: Buffer
    target: Buffer
    kind: Recurrence
    eps: float

    @property
    def table(self) -> str:
        """The board's table of its weights."""
        return f"{self.name}.table"


@dataclass(frozen=True, kw_only=True)
class NormGroups(Operation):
    """target = RMSNorm of it in `groups` of equal widths, of the columns of all boards, times
    gamma."""

    name: str
    target: Buffer
    groups: int
    eps: float

    @property
    def tensor(self) -> str:
        """Checkpoint name of gamma: [columns of all groups]."""
        return f"{self.name}.gamma"


@dataclass(frozen=True, kw_only=True)
class Activate(Operation):
    """target = activation of source; if `gated`, that of its first half, times `scale`, times its
    second half, or where `limit` is not 0 the clamped SwiGLU of both, with `alpha`."""

    source: Buffer
    target: Buffer
    kind: Activation
    gated: bool
    scale: float = 1.0
    limit: float = 0.0
    alpha: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Elementwise(Operation, ABC):
    """Each of the board's own columns of target is a function of those of the operands: one vector
    command. Every table has a row for this class, so a subclass, which says the rest, needs none.
    The command also gets `first`, the number of the first column, unless target is of results."""

    target: Buffer

    @property
    @abstractmethod
    def what(self) -> str:
        """Its name where a step's time or a list is told."""

    @property
    @abstractmethod
    def command(self) -> int:
        """Of the ABI, LORA_VEC_..."""

    @property
    def operands(self) -> Mapping[str, Buffer]:
        """By the command's operand besides y, which is target: x, z."""
        return {}

    @property
    def scalar(self) -> float | None:
        """The command's FP32 number, where it has one."""
        return None

    @abstractmethod
    def floats(self, *rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The function in floats, for `lora quantize`: of the operands' rows [T, columns] in their
        order, of the target's where there are none."""


@dataclass(frozen=True, kw_only=True)
class AddResidual(Elementwise):
    """target = FP16(stream + branch*scale)."""

    stream: Buffer
    branch: Buffer
    scale: float = 1.0

    @property
    def what(self) -> str:
        return "residual"

    @property
    def command(self) -> int:
        return abi.VEC_RESIDUAL if self.scalar is None else abi.VEC_RESIDUAL_SCALED

    @property
    def operands(self) -> Mapping[str, Buffer]:
        return {"x": self.stream, "z": self.branch}

    @property
    def scalar(self) -> float | None:
        return self.scale if self.scale != 1 else None

    def floats(self, *rows: NDArray[np.float32]) -> NDArray[np.float32]:
        stream, branch = rows
        if self.scale != 1:
            branch = branch * np.float32(self.scale)
        found: NDArray[np.float32] = stream + branch
        return found


@dataclass(frozen=True, kw_only=True)
class PackSelected(Operation):
    """target = the selected rows of source, without gaps."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, kw_only=True)
class ScaleLogits(Elementwise):
    """target = target*scale, in FP32."""

    scale: float

    @property
    def what(self) -> str:
        return "scale logits"

    @property
    def command(self) -> int:
        return abi.VEC_SCALE

    @property
    def scalar(self) -> float:
        return self.scale

    def floats(self, *rows: NDArray[np.float32]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = rows[0] * np.float32(self.scale)
        return found


@dataclass(frozen=True, kw_only=True)
class CapLogits(Elementwise):
    """target = cap*tanh(target/cap), in FP32."""

    cap: float

    @property
    def what(self) -> str:
        return "cap logits"

    @property
    def command(self) -> int:
        return abi.VEC_SOFTCAP

    @property
    def scalar(self) -> float:
        return self.cap

    def floats(self, *rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return soft_cap(rows[0], np.float32(self.cap))


@dataclass(frozen=True, kw_only=True)
class Argmax(Operation):
    """The index of the max of source's columns, which is a result too."""

    source: Buffer


KINDS: tuple[type[Operation], ...] = (
    Embed, AddPosition, Norm, Matmul, NormHeads, Rope, StoreKv, Attend, Activate, Elementwise,
    PackSelected, Argmax, Route, ExpertMatmul, AddGated, Recur, GateHeads, NormGroups,
    JoinHeads,
)  # fmt: skip
"""What a consumer's table has a row for."""
Row = TypeVar("Row")


def row(table: Mapping[type[Operation], Row], operation: Operation) -> Row:
    """The operation's entry in a consumer's table, its own class's before the one above it;
    TypeError names a kind without one."""
    kind = type(operation)
    for one in kind.__mro__:
        if one in table:
            return table[one]
    raise TypeError(f"operation {kind.__name__}: no row in this table; expected one per kind")


def matmuls(operations: Iterator[Operation] | tuple[Operation, ...]) -> tuple[Matmul, ...]:
    """The matmuls among `operations`."""
    return tuple(operation for operation in operations if isinstance(operation, Matmul))


def target(operation: Operation) -> Buffer | None:
    """The buffer of activations that an operation writes; None for K and V, and argmax."""
    found: Buffer | None = getattr(operation, "target", None)
    return found


def width(config: ModelConfig, axis: Axis) -> int:
    """Columns of an axis, all boards together."""
    experts = config.experts
    count, chosen, ffn = (experts.count, experts.chosen, experts.ffn) if experts else (0, 0, 0)
    shared, gates = (experts.shared, int(experts.shared_gate)) if experts else (0, 0)
    recurrent = config.recurrent
    values, keys = (recurrent.values, recurrent.keys) if recurrent else (0, 0)
    latent = config.latent
    q_latent, kv_latent = (latent.q, latent.kv) if latent else (0, 0)
    key, value = (latent.rope, latent.values) if latent else (0, 0)
    return {
        "hidden": config.hidden,
        "embed": config.embed_dim,
        "heads": config.heads * config.head_dim,
        "kv_heads": config.kv_heads * config.head_dim,
        "ffn": config.ffn,
        "vocabulary": config.vocabulary,
        "experts": count,
        "chosen": chosen,
        "expert_ffn": ffn,
        "chosen_ffn": ffn * chosen,
        "shared_ffn": shared,
        "shared_gate": gates,
        "mixed": values,
        "mixed_values": values,
        "mixed_keys": keys,
        "mixed_heads": recurrent.value_heads if recurrent else 0,
        "q_latent": q_latent,
        "kv_latent": kv_latent,
        "rope_key": key,
        "kv_nope": config.kv_heads * (config.head_dim - key),
        "kv_values": config.kv_heads * value,
        "values": config.heads * value,
    }[axis]
