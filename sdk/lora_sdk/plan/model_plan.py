"""The plan of a model on boards: everything that loading, lowering and running need to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lora_host import abi
from lora_sdk.plan.adapters import AdapterLayout, AdapterOptions
from lora_sdk.plan.banks import MIB, MatrixPlacement, TablePlacement, real_bytes
from lora_sdk.plan.collectives import Collective, LinkBytes, add_traffic, votes
from lora_sdk.plan.control import ControlLayout
from lora_sdk.plan.kv import KvLayout
from lora_sdk.plan.onchip import OnchipBuffer
from lora_sdk.plan.partition import Share, Stage
from lora_sdk.plan.topology import Route

if TYPE_CHECKING:
    from lora_host.boards import Board
    from lora_host.overlay import Overlay
    from lora_sdk.model.spec import ModelConfig


@dataclass(frozen=True)
class Replica:
    """Bytes of a board that are stored elsewhere too."""

    what: str
    why: str
    bytes: int


@dataclass(frozen=True)
class BankUse:
    """Bytes of one bank by purpose, padding included; `free` is what is left of `usable`."""

    bank: int
    weights: int
    kv: int
    tables: int
    control: int
    usable: int
    adapters: int = 0

    @property
    def reserved(self) -> int:
        return self.weights + self.kv + self.tables + self.control + self.adapters

    @property
    def free(self) -> int:
        return self.usable - self.reserved


@dataclass(frozen=True)
class BoardPlan:
    """One board. `board` is its index in the cluster, `rank` its position in the route;
    `arenas`: bytes to reserve in each bank, from offset 0 on."""

    rank: int
    board: int
    share: Share
    matrices: dict[str, MatrixPlacement]
    tables: dict[str, TablePlacement]
    kv: KvLayout
    control: ControlLayout
    onchip: dict[str, OnchipBuffer]
    arenas: dict[int, int]
    use: tuple[BankUse, ...]
    replicas: tuple[Replica, ...]
    adapters: AdapterLayout | None = None

    @property
    def spilled(self) -> tuple[MatrixPlacement, ...]:
        """Matrices that did not fit in the weight banks."""
        return tuple(matrix for matrix in self.matrices.values() if matrix.spilled)

    @property
    def weight_bytes(self) -> int:
        """Bytes of matrices and tables without padding; computed tables (RoPE) are not weights."""
        tables = [table for table in self.tables.values() if table.spec.kind != "rope"]
        return real_bytes(self.matrices.values()) + real_bytes(tables)

    @property
    def placed_bytes(self) -> int:
        """Bytes that loading writes, padding and RoPE tables included."""
        matrices = sum(matrix.placed_bytes for matrix in self.matrices.values())
        return matrices + sum(table.placed_bytes for table in self.tables.values())


@dataclass(frozen=True)
class Plan:
    """`boards` by rank. A pure function of its inputs: equal inputs give equal plans.

    `context` is the max sequence length, `page_count` the KV pages of every board (scratch pages
    included), `page_room` the pages that fit beside all else, without the scratch pages,
    `row_limit` the max rows of a step, `context_limit` the longest context that one sequence could
    have with this placement of the weights. `final_states`: whether rows may request lm_head's
    input."""

    config: ModelConfig
    overlay: Overlay
    board: Board
    route: Route
    boards: tuple[BoardPlan, ...]
    context: int
    context_limit: int
    page_count: int
    page_room: int
    max_sequences: int
    row_limit: int
    hidden_taps: tuple[int, ...]
    collectives: tuple[Collective, ...]
    adapters: AdapterOptions = field(default_factory=AdapterOptions)
    stages: tuple[Stage, ...] = ()
    final_states: bool = False

    def _repr_html_(self) -> str:
        """For notebooks: what `lora plan` prints."""
        from html import escape

        from lora_sdk.plan.report import report, table

        return f"<pre>{escape(table(report(self)))}</pre>"

    def __repr__(self) -> str:
        return f"<Plan of {self.config.architecture}: {self.summary}>"

    @property
    def summary(self) -> str:
        """Boards and limits on one line."""
        return (
            f"{self.size} x {self.board.name}{self._in_stages}, overlay {self.overlay.name}, "
            f"{self.weight_bytes / MIB:.1f} MiB of weights, context {self.context}, "
            f"{self.max_sequences} sequences"
        )

    @property
    def _in_stages(self) -> str:
        return f" in {len(self.stages)} stages" if len(self.stages) > 1 else ""

    @property
    def size(self) -> int:
        """Number of boards."""
        return len(self.boards)

    @property
    def stage_boards(self) -> int:
        """Boards that share each layer."""
        return self.boards[0].share.boards

    @cached_property
    def by_board(self) -> dict[int, BoardPlan]:
        """Board plans by the board's index in the cluster."""
        return {plan.board: plan for plan in self.boards}

    @property
    def weight_bytes(self) -> int:
        """Weight bytes over all boards without padding: the model's plus the replicas'."""
        return sum(plan.weight_bytes for plan in self.boards)

    @property
    def replica_bytes(self) -> int:
        """Weight bytes that are stored elsewhere too."""
        return sum(
            replica.bytes
            for plan in self.boards
            for replica in plan.replicas
            if replica.what not in ("rope", "rope_local")
        )

    @property
    def host_bytes(self) -> int:
        """Host memory of the boards' banks once every byte has been touched: emulated banks are
        host memory, and XRT keeps a copy of each buffer object."""
        return sum(sum(plan.arenas.values()) for plan in self.boards)

    @property
    def scratch_pages(self) -> int:
        """Pages of the scratch slots, the first ones of `page_count`."""
        return self.boards[0].kv.scratch_pages

    @property
    def first_spilled(self) -> int:
        """The first KV page outside the weight banks, `page_count` if there is none."""
        return self.boards[0].kv.first_spilled

    @property
    def max_tiles(self) -> int:
        """Max tiles of 32 positions of a sequence."""
        return -(-self.context // abi.TILE_POSITIONS)

    def link_bytes(self, rows: int, selected: int) -> dict[tuple[int, int], LinkBytes]:
        """Bytes that each port sends in one step of `rows` rows, `selected` of them selected, by
        (board, port)."""
        count, ring = self.size, self.route.ring
        totals = {
            (rank, direction): LinkBytes()
            for rank in range(count)
            for direction in ("next", "previous")
        }
        for collective in self.collectives if count > 1 else ():
            add_traffic(totals, collective, count, ring, selected if collective.selected else rows)
        if count > 1:
            add_traffic(totals, votes(count), count, ring, min(1, rows))
        ports = {"next": self.route.port_next, "previous": self.route.port_previous}
        return {
            (self.route.order[rank], ports[direction][rank]): sent
            for (rank, direction), sent in totals.items()
            if ports[direction][rank] != abi.NO_PORT
        }
