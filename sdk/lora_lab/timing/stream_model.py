"""FlightLLM's decoder as a stream, as described by GLITCHES and the tree-speculation paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_lab.timing.designs import StreamDesign
from lora_lab.timing.facts import BoardFacts
from lora_lab.timing.shape import block_weights, head_weights

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig


@dataclass(frozen=True)
class StreamTime:
    """Seconds by category, bytes moved, and multiply-accumulates."""

    by: dict[str, float]
    bytes: dict[str, float]
    macs: float

    @property
    def seconds(self) -> float:
        """The total."""
        return sum(self.by.values())


class StreamModel:
    """A stream design on a board with a model."""

    def __init__(self, design: StreamDesign, board: BoardFacts, config: ModelConfig) -> None:
        """RequestError: the design does not exist for the board."""
        if board.name not in design.boards:
            raise RequestError(
                f"design {design.name} on board {board.name}: it exists for "
                f"{', '.join(design.boards)}; use one of these boards"
            )
        self.design = design
        self.board = board
        self.config = config
        self.rate = design.hbm_efficiency * board.bytes_per_second
        self.macs = design.macs_on(board.name)

    def decode(self, context: int) -> StreamTime:
        """One plain token: streaming weights, issuing loads, reading the cache (GLITCHES IV)."""
        design, config = self.design, self.config
        count = block_weights(config) + head_weights(config)
        weights = count * design.weight_bytes
        loads = design.loads_per_block * count * design.weight_bits / 8 / design.block_bytes
        kv = self.kv_bytes(context)
        return StreamTime(
            by={
                "weights": weights / self.rate,
                "issue": loads / design.merge * design.issue_cycles / design.clock_hz,
                "attention": kv * design.kv_factor / self.rate,
            },
            bytes={"weights": weights, "kv": kv, "link": 0.0},
            macs=count + self.attention_macs(context),
        )

    def verify(self, rows: int, context: int) -> StreamTime:
        """A tree of `rows`: the plain step, or the time of the multipliers if longer. As in the
        paper's figures, the latter excludes lm_head."""
        plain = self.decode(context)
        macs = rows * (block_weights(self.config) + self.attention_macs(context))
        compute = macs / (self.macs * self.design.clock_hz)
        by = dict(plain.by)
        by["compute"] = max(0.0, compute - plain.seconds)
        return StreamTime(by=by, bytes=plain.bytes, macs=macs)

    def prefill(self, length: int) -> StreamTime:
        """All rows at once, attention over the full square (as in GLITCHES table I)."""
        macs = length * (block_weights(self.config) + self.attention_macs(length))
        rate = self.macs * self.design.clock_hz * self.design.prefill_utilisation
        weights = (block_weights(self.config)) * self.design.weight_bytes
        compute, stream = macs / rate, weights / self.rate
        by = {"compute": compute, "weights": max(0.0, stream - compute)}
        moved = {"weights": weights, "kv": self.kv_bytes(length), "link": 0.0}
        return StreamTime(by=by, bytes=moved, macs=macs)

    def kv_bytes(self, context: int) -> float:
        """Bytes of K and V of `context` positions, all blocks."""
        config = self.config
        width = 2 * config.layers * config.kv_heads * config.head_dim
        return float(width * self.design.kv_bytes * context)

    def attention_macs(self, context: int) -> float:
        """Multiply-accumulates of one row's attention over `context` positions, all blocks."""
        config = self.config
        return 2.0 * config.layers * config.heads * config.head_dim * context
