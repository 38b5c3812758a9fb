"""The all-gathers of one step, and the bytes they put on each link (the paper's section III)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.plan.adapters import MATRICES, AdapterOptions, tensor_count
from lora_sdk.plan.formats import product_format
from lora_sdk.plan.partition import shard
from lora_sdk.plan.tensors import FP16_BYTES

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

FRAME_OVERHEAD = 32 + 4  # struct lora_frame and the CRC behind the payload


@dataclass(frozen=True)
class Collective:
    """One all-gather: `columns` elements a row, sharded in `share_unit`, cut into eight segments of
    `segment_unit`. `selected`: of the selected rows only."""

    what: str
    columns: int
    share_unit: int
    segment_unit: int
    element_bytes: int
    selected: bool = False

    def blocks(self, rank: int, boards: int, rows: int) -> Iterator[int]:
        """Bytes of each block that board `rank` sends of a row group of `rows` rows, in order.

        Consecutive segments travel as one block while it fits one frame."""
        pending = 0
        for size in self._segment_bytes(rank, boards):
            if pending and (pending + size) * rows > abi.FRAME_PAYLOAD:
                yield pending * rows
                pending = 0
            pending += size
        if pending:
            yield pending * rows

    def _segment_bytes(self, rank: int, boards: int) -> Iterator[int]:
        """Bytes a row of each segment's part that lies on the board."""
        share = shard(self.columns, self.share_unit, rank, boards)
        for segment in range(abi.SEGMENTS):
            piece = shard(self.columns, self.segment_unit, segment, abi.SEGMENTS)
            count = min(share.stop, piece.stop) - max(share.start, piece.start)
            yield max(0, count) * self.element_bytes


@dataclass
class LinkBytes:
    """Bytes that one port sends: whole frames, and their payloads alone."""

    frames: int = 0
    payload: int = 0


def activations(
    config: ModelConfig,
    what: str,
    columns: int,
    adapters: AdapterOptions | None,
    selected: bool = False,
) -> Collective:
    """The gather of an activation row before the matrix product `what`."""
    unit = abi.UNIT_COLUMNS
    return Collective(what, columns, unit, unit, element_bytes(config, what, adapters), selected)


def element_bytes(config: ModelConfig, product: str, adapters: AdapterOptions | None) -> int:
    """Bytes of an activation on the links: INT8 where the product reads it so, but for plans with
    adapter slots, since adapters read the FP16 activation."""
    slots = adapters is not None and adapters.slots > 0
    return FP16_BYTES if slots or not product_format(config, product).integer else 1


def norm_sums(what: str, config: ModelConfig, selected: bool = False) -> Collective:
    """The exchange inside a norm: one record a segment, {T, Q} or {S} in FP32."""
    record = 8 if config.norm == "layernorm" else 4
    return Collective(what, abi.SEGMENTS, 1, 1, record, selected)


def head_outputs(what: str, config: ModelConfig, adapters: AdapterOptions | None) -> Collective:
    """The gather of attention's output, sharded by query head."""
    columns, size = config.heads * config.head_dim, element_bytes(config, what, adapters)
    return Collective(what, columns, config.head_dim, abi.UNIT_COLUMNS, size)


def adapter_ranks(
    what: str, config: ModelConfig, matrix: str, adapters: AdapterOptions, boards: int
) -> Collective:
    """S-LoRA's gather of h before a product: each board's ranks of all the matrix's tensors."""
    share = adapters.share(boards) * tensor_count(config, matrix)
    return Collective(what, share * boards, share, share, FP16_BYTES)


def collectives(
    config: ModelConfig, adapters: AdapterOptions | None = None, boards: int = 1
) -> tuple[Collective, ...]:
    """All gathers of a step in the order in which every board runs them."""
    found: list[Collective] = []
    if config.embed_dim != config.hidden:
        found.append(activations(config, "project_in", config.embed_dim, adapters))
    for layer in range(config.layers):
        prefix = f"layer.{layer}"
        for collective in _layer(config, prefix, adapters):
            found.append(collective)
            matrix = collective.what.rpartition(".")[2]
            if matrix in MATRICES and adapters is not None and adapters.sharded:
                what = f"{prefix}.{matrix} adapter"
                found.append(adapter_ranks(what, config, matrix, adapters, boards))
    if config.final_norm:
        found.append(norm_sums("final_norm", config, selected=True))
    if config.embed_dim != config.hidden:
        found.append(activations(config, "project_out", config.hidden, adapters, selected=True))
    found.append(activations(config, "lm_head", config.embed_dim, adapters, selected=True))
    return tuple(found)


def _layer(
    config: ModelConfig, prefix: str, adapters: AdapterOptions | None
) -> Iterator[Collective]:
    attn_norm = norm_sums(f"{prefix}.attn_norm", config)
    mlp_norm = norm_sums(f"{prefix}.mlp_norm", config)
    if config.norm_first:
        yield attn_norm
    yield activations(config, f"{prefix}.qkv", config.hidden, adapters)
    yield head_outputs(f"{prefix}.o", config, adapters)
    yield mlp_norm if config.norm_first else attn_norm
    yield activations(config, f"{prefix}.up", config.hidden, adapters)
    yield activations(config, f"{prefix}.down", config.ffn, adapters)
    if not config.norm_first:
        yield mlp_norm


def row_groups(rows: int) -> list[int]:
    """Rows of each group of at most abi.ROW_GROUP."""
    full, rest = divmod(rows, abi.ROW_GROUP)
    return [abi.ROW_GROUP] * full + ([rest] if rest else [])


def add_traffic(
    totals: dict[tuple[int, str], LinkBytes],
    collective: Collective,
    boards: int,
    ring: bool,
    rows: int,
) -> None:
    """Adds one collective over `rows` rows to the bytes by (rank, "next" or "previous")."""
    for source in range(boards):
        number = 0  # blocks of a source are numbered through one collective
        for group in row_groups(rows):
            for size in collective.blocks(source, boards, group):
                forward, backward = hops(source, number, boards, ring)
                _add(totals, size, [(source + hop) % boards for hop in range(forward)], "next")
                _add(totals, size, [(source - hop) % boards for hop in range(backward)], "previous")
                number += 1


def hops(source: int, block: int, boards: int, ring: bool) -> tuple[int, int]:
    """Hops of a block towards the next and the previous boards (Figure 9)."""
    if not ring:
        return boards - 1 - source, source
    far, near = boards // 2, (boards - 1) // 2  # ceil and floor of (boards - 1) / 2
    return (far, near) if block % 2 == 0 else (near, far)


def _add(
    totals: dict[tuple[int, str], LinkBytes], size: int, senders: list[int], direction: str
) -> None:
    parts = -(-size // abi.FRAME_PAYLOAD)
    for rank in senders:
        link = totals[rank, direction]
        link.frames += size + parts * FRAME_OVERHEAD
        link.payload += size
