"""Room for adapters: slots in the weight banks, and how a matrix's ranks are sharded over boards.

An adapter's A is applied to the gathered input, and its B computes the board's own columns. So
sharding by column needs no communication (BD-LoRA, section 3). Only S-LoRA, which shards A by rank,
has a further gather of h before each matmul."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.model.block import describe
from lora_sdk.plan.partition import Share
from lora_sdk.plan.tensors import FP16_BYTES, MatrixSpec, adapted_specs, padded

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

MODES = ("auto", "nfs", "s", "bd")
FACTORS = 32  # struct lora_adapter_factor per matrix, reserved in a slot
DEFAULT_RANK = 64
CHUNK_LINES = 8192 // 64


@dataclass(frozen=True)
class AdapterOptions:
    """`slots` adapters at once on the boards (0: no support for them in the list), of ranks up to
    `max_rank`. `mode`: "auto" shards block-diagonal adapters and replicates A of the others; "nfs"
    (not fully sharded) replicates A of all; "s" (S-LoRA) shards A by rank and gathers h; "bd" is
    auto, but refuses adapters that would need communication."""

    slots: int = 0
    max_rank: int = DEFAULT_RANK
    mode: str = "auto"

    @property
    def rank(self) -> int:
        """The max rank, padded."""
        return padded_rank(self.max_rank)

    @property
    def sharded(self) -> bool:
        """Whether A is sharded by rank, so that h has to be gathered."""
        return self.slots > 0 and self.mode == "s"

    def shards(self, boards: int) -> int:
        """Boards over which the ranks of A are sharded."""
        return boards if self.sharded else 1

    def share(self, boards: int) -> int:
        """Max ranks of one tensor in a board's columns of h."""
        return -(-self.rank // self.shards(boards))


@dataclass(frozen=True)
class AdapterLayout:
    """One board's slots. `columns`: values per row of h; `matrices`: size of a slot's
    directory."""

    slots: int
    chunks: int
    bank_first: int
    bank_count: int
    line: int
    columns: int
    matrices: int

    @property
    def slot_bytes(self) -> int:
        return self.chunks * abi.ADAPTER_CHUNK

    @property
    def lines(self) -> int:
        """Lines of every bank that all slots occupy, from `line` on."""
        return bank_lines(self.slots * self.chunks, self.bank_count)

    def runs(self, slot: int, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """(bank, byte offset, from, to) of bytes start..stop-1 of a slot, chunk by chunk."""
        while start < stop:
            chunk, within = divmod(start, abi.ADAPTER_CHUNK)
            row, bank = divmod(slot * self.chunks + chunk, self.bank_count)
            end = min(stop, start - within + abi.ADAPTER_CHUNK)
            offset = self.line * abi.LINE_BYTES + row * abi.ADAPTER_CHUNK + within
            yield self.bank_first + bank, offset, start, end
            start = end


def padded_rank(rank: int) -> int:
    """`rank` rounded up to a whole group."""
    return -(-rank // abi.ADAPTER_GROUP) * abi.ADAPTER_GROUP


def bank_lines(chunks: int, banks: int) -> int:
    """Lines of each of `banks` banks over which `chunks` chunks are striped."""
    return -(-chunks // banks) * CHUNK_LINES


def h_columns(config: ModelConfig, options: AdapterOptions, boards: int) -> int:
    """Values per row of h: the max over the matrices."""
    most = max(len(matmul.outputs) for matmul in describe(config).adapted)
    return options.shards(boards) * options.share(boards) * most


def slot_chunks(config: ModelConfig, share: Share, options: AdapterOptions) -> int:
    """Chunks of a slot on one board: an adapter of the max rank on every matrix, with the whole A
    or, with "s", this board's ranks of it."""
    specs = list(adapted_specs(config, share))
    values = sum(_matrix_bytes(spec, options, share.boards) for spec in specs)
    matrices = len(specs)
    directory = padded(matrices * abi.dtype("adapter_matrix").itemsize)
    factors = matrices * FACTORS * abi.dtype("adapter_factor").itemsize
    total = abi.dtype("adapter_slot").itemsize + directory + factors + values
    return -(-total // abi.ADAPTER_CHUNK)


def _matrix_bytes(spec: MatrixSpec, options: AdapterOptions, boards: int) -> int:
    tensors = len(spec.parts)
    a = tensors * padded_rank(options.share(boards)) * spec.k
    tiles = -(-spec.n // abi.BLOCK_N) + tensors  # a tensor may begin inside a tile
    return (a + options.rank * tiles * abi.BLOCK_N) * FP16_BYTES
