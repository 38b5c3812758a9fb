"""Commands as values, and their 64-byte records, headers and seal as abi.h lays them out."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lora_host import abi
from lora_host.errors import PlacementError

if TYPE_CHECKING:
    from lora_sdk.plan.adapters import AdapterLayout
    from lora_sdk.plan.kv import SpilledPages
    from lora_sdk.plan.model_plan import Plan

NO_LAYER = 0xFFFF
_NOT_ENCODED = {"what"}


@dataclass(frozen=True, kw_only=True)
class Command:
    """What every command has. `what` names it in messages and is not encoded; the other fields are
    those of `struct lora_command`."""

    STRUCT: ClassVar[str] = "command"
    OPCODE: ClassVar[int]
    UNIT: ClassVar[int]

    what: str
    flags: int = 0
    wait_counter: int = abi.NO_COUNTER
    wait_value: int = 0
    signal_counter: int = abi.NO_COUNTER
    layer: int = NO_LAYER

    def __str__(self) -> str:
        return self.what if self.layer == NO_LAYER else f"layer {self.layer} {self.what}"


@dataclass(frozen=True, kw_only=True)
class Matrix(Command):
    """MPU: y = FP16(x*W + bias), or FP32."""

    STRUCT = "matrix"
    OPCODE = abi.CMD_MATRIX
    UNIT = abi.UNIT_MPU

    bank_first: int
    bank_count: int
    merge: int
    weight_line: int
    first: int
    x_bank: int
    y_bank: int
    k: int
    n: int
    x_offset: int
    x_stride: int
    y_offset: int
    y_stride: int
    weight_type: int = abi.FP16
    y_type: int = abi.FP16
    bias_line: int = 0
    bias_bank: int = abi.NO_BANK
    adapter: int = 0
    h_offset: int = 0
    h_stride: int = 0


@dataclass(frozen=True, kw_only=True)
class Experts(Command):
    """MPU: y = FP16(x*W) by each expert that the row has chosen, or their weighted sum."""

    STRUCT = "experts"
    OPCODE = abi.CMD_EXPERTS
    UNIT = abi.UNIT_MPU

    bank_first: int
    bank_count: int
    merge: int
    weight_type: int
    weight_line: int
    first: int
    experts: int
    chosen: int
    k: int
    n: int
    x_offset: int
    x_stride: int
    y_offset: int
    y_stride: int
    chosen_offset: int
    chosen_stride: int
    scale_bank: int = 0
    scale_line: int = 0


@dataclass(frozen=True, kw_only=True)
class Adapter(Command):
    """MPU: h = FP16(A*x) of the rows that name an adapter, for the matrix of this number."""

    STRUCT = "adapter"
    OPCODE = abi.CMD_ADAPTER
    UNIT = abi.UNIT_MPU

    adapter: int
    k: int
    x_offset: int
    x_stride: int
    h_offset: int
    h_stride: int


@dataclass(frozen=True, kw_only=True)
class Vector(Command):
    """VFU: one of enum lora_vector_op on rows."""

    STRUCT = "vector"
    OPCODE = abi.CMD_VECTOR
    UNIT = abi.UNIT_VFU

    op: int
    columns: int
    x_offset: int = 0
    x_stride: int = 0
    y_offset: int = 0
    y_stride: int = 0
    z_offset: int = 0
    z_stride: int = 0
    y_bank: int = abi.BANK_ONCHIP
    a_bank: int = abi.NO_BANK
    a_line: int = 0
    b_bank: int = abi.NO_BANK
    b_line: int = 0
    scalar: int = 0
    first: int = 0
    extra: int = 0


@dataclass(frozen=True, kw_only=True)
class Attention(Command):
    """MPU: attention of the local query heads over the KV cache; signals per head."""

    STRUCT = "attention"
    OPCODE = abi.CMD_ATTENTION
    UNIT = abi.UNIT_MPU

    head_dim: int
    kv_layer: int
    q_heads: int
    q_first: int
    kv_heads: int
    kv_first: int
    group: int
    q_offset: int
    q_stride: int
    y_offset: int
    y_stride: int
    scale: int
    v_scale: int = 0
    slope_kind: int = abi.SLOPE_NONE
    slope_bank: int = 0
    slope_line: int = 0
    window: int = 0
    cap: int = 0


@dataclass(frozen=True, kw_only=True)
class Recurrence(Command):
    """MPU: a recurrence of the local KV heads over what the cache keeps of each position."""

    STRUCT = "recurrence"
    OPCODE = abi.CMD_RECURRENCE
    UNIT = abi.UNIT_MPU

    form: int
    kernel: int
    kv_layer: int
    planes: int
    key_heads: int
    value_heads: int
    key_columns: int
    value_columns: int
    x_offset: int
    x_stride: int
    y_offset: int
    y_stride: int
    y_first: int
    y_columns: int
    table_bank: int
    table_line: int
    eps: int
    sharing: int = 0
    sharing_first: int = 0


@dataclass(frozen=True, kw_only=True)
class KvStore(Command):
    """DMA: the rows' K and V into their scratch slots."""

    STRUCT = "kv_store"
    OPCODE = abi.CMD_KV_STORE
    UNIT = abi.UNIT_DMA

    head_dim: int
    kv_layer: int
    kv_heads: int
    k_offset: int
    v_offset: int
    stride: int
    k_scales: int = 0
    v_scales: int = 0
    scale_stride: int = 0


@dataclass(frozen=True, kw_only=True)
class KvCommit(Command):
    """DMA: the step header's KV operations, of `layers` layers from `kv_layer` on; 0: of all."""

    STRUCT = "kv_commit"
    OPCODE = abi.CMD_KV_COMMIT
    UNIT = abi.UNIT_DMA

    kv_layer: int = 0
    layers: int = 0


@dataclass(frozen=True, kw_only=True)
class Gather(Command):
    """Router: all-gather of rows; the local share is already in the buffer."""

    STRUCT = "gather"
    OPCODE = abi.CMD_GATHER
    UNIT = abi.UNIT_ROUTER

    offset: int
    stride: int
    columns: int
    share_unit: int
    segment_unit: int
    element_bytes: int
    collective: int
    span: int = abi.SPAN_ALL


@dataclass(frozen=True, kw_only=True)
class MoveRows(Command):
    """DMA: rows from one buffer to another."""

    STRUCT = "move_rows"
    OPCODE = abi.CMD_MOVE_ROWS
    UNIT = abi.UNIT_DMA

    x_bank: int
    y_bank: int
    x_offset: int
    x_stride: int
    y_offset: int
    y_stride: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Fence(Command):
    """All units idle."""

    OPCODE = abi.CMD_FENCE
    UNIT = abi.UNIT_CONTROL


@dataclass(frozen=True, kw_only=True)
class Ballot(Command):
    """All units idle; in a GENERATE the board's vote on the next token. Offsets of the board's
    argmax record (0: it has no vocabulary), of all votes and of the ring of tokens."""

    STRUCT = "ballot"
    OPCODE = abi.CMD_BALLOT
    UNIT = abi.UNIT_CONTROL

    argmax_offset: int
    votes_offset: int
    ring_offset: int


@dataclass(frozen=True, kw_only=True)
class End(Command):
    """Last command of every list."""

    OPCODE = abi.CMD_END
    UNIT = abi.UNIT_CONTROL


def record(command: Command) -> bytes:
    """The command's 64 bytes. OverflowError names a field whose value is too large."""
    values = np.zeros((), abi.dtype(command.STRUCT))
    values["opcode"], values["unit"] = command.OPCODE, command.UNIT
    kind: Any = type(command)
    ranges = _ranges(command.STRUCT)
    for name in _encoded(kind):
        value, (low, high) = getattr(command, name), ranges[name]
        if not low <= value <= high:
            raise OverflowError(f"{command}: {name} is {value}, expected at most {high}")
        values[name] = value
    return values.tobytes()


@cache
def _ranges(struct: str) -> dict[str, tuple[int, int]]:
    """The least and the largest value of each field of a structure."""
    fields = (abi.dtype(struct).fields or {}).items()
    kinds = {name: np.iinfo(kind) for name, (kind, *_) in fields if kind.kind in "iu"}
    return {name: (int(kind.min), int(kind.max)) for name, kind in kinds.items()}


@cache
def _encoded(kind: Any) -> tuple[str, ...]:
    """The fields that the bytes of a kind of command hold. Kept: `fields` makes a tuple of a
    generator, and the interpreter holds on to up to 2000 of these of each length."""
    return tuple(one.name for one in dataclasses.fields(kind) if one.name not in _NOT_ENCODED)


def float_bits(value: float) -> int:
    """The FP32 bits of a number."""
    return int(np.float32(value).view(np.uint32))


def counter_count(commands: Sequence[Command]) -> int:
    """Counters that a list uses."""
    highest = 0
    for command in commands:
        eight = abi.FLAG_WAIT_SEGMENTS, abi.FLAG_SIGNAL_SEGMENTS
        counters = (command.wait_counter, command.signal_counter)
        for counter, flag in zip(counters, eight, strict=True):
            if counter != abi.NO_COUNTER:
                width = abi.SEGMENTS if command.flags & flag else 1
                highest = max(highest, counter + width)
    return highest


def encode(commands: Sequence[Command], plan: Plan, rank: int, list_id: int) -> bytes:
    """Header and commands of board `rank`'s list, sealed by CRC-32. PlacementError if the list is
    longer than the space reserved by the plan."""
    body = b"".join(record(command) for command in commands)
    header = _header(commands, plan, rank, list_id)
    room = plan.boards[rank].control.list_bytes
    if header.nbytes + len(body) > room:
        raise PlacementError(
            f"command list of board {rank} takes {header.nbytes + len(body)} B, expected at most "
            f"{room} B"
        )
    header["crc"] = zlib.crc32(header.tobytes() + body)
    sealed: bytes = header.tobytes() + body
    return sealed


def _header(commands: Sequence[Command], plan: Plan, rank: int, list_id: int) -> Any:
    board, route = plan.boards[rank], plan.route
    values = {
        "size": abi.dtype("list").itemsize,
        "abi": abi.ABI_NUMBER,
        "list_id": list_id,
        "command_count": len(commands),
        "counter_count": counter_count(commands),
        "rank": rank,
        "boards": plan.size,
        "ring": int(route.ring),
        "stage_boards": plan.stage_boards if len(plan.stages) > 1 else 0,
        "port_next": route.port_next[rank],
        "port_previous": route.port_previous[rank],
        "control_bank": plan.overlay.control_bank,
        "table_bank": plan.overlay.control_bank,
        "max_rows": plan.row_limit,
        "max_scratch": plan.overlay.max_scratch,
        "max_sequences": plan.max_sequences,
        "max_tiles": plan.max_tiles,
        "page_count": plan.page_count,
        "vocabulary": plan.config.vocabulary,
        "positions": plan.context,
        "onchip_bytes": plan.overlay.onchip_bytes,
        "kv_bank_first": board.kv.bank_first,
        "kv_bank_count": board.kv.bank_count,
        "kv_layers": board.kv.layers,
        "kv_heads": board.kv.heads,
        "head_dim": board.kv.head_dim,
        "kv_line": board.kv.line,
        "kv_type": board.kv.format.type_number,
        "table_line": board.control.table_offset // abi.LINE_BYTES,
        "results_offset": board.control.results_offset,
        "results_bytes": board.control.results_bytes,
        "embed_columns": plan.config.embed_dim,
        "taps": len(plan.hidden_taps) + plan.final_states,
        **_adapters(board.adapters),
        **_spill(board.kv.spill),
    }
    header = np.zeros((), abi.dtype("list"))
    for name, value in values.items():
        header[name] = value
    return header


def _spill(spill: SpilledPages | None) -> dict[str, int]:
    """The header's fields of KV pages outside the weight banks; empty without any."""
    if spill is None:
        return {}
    return {
        "kv_spill_page": spill.first_page,
        "kv_spill_line": spill.line,
        "kv_spill_bank_first": spill.bank_first,
        "kv_spill_bank_count": spill.bank_count,
    }


def _adapters(layout: AdapterLayout | None) -> dict[str, int]:
    """The header's fields of the adapter slots; empty without slots."""
    if layout is None:
        return {}
    return {
        "adapter_slots": layout.slots,
        "adapter_chunks": layout.chunks,
        "adapter_matrices": layout.matrices,
        "adapter_columns": layout.columns,
        "adapter_line": layout.line,
        "adapter_bank_first": layout.bank_first,
        "adapter_bank_count": layout.bank_count,
    }
