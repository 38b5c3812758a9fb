"""Which columns and heads each board owns (the `lora` scheme: tensor parallel by column)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import RequestError

if TYPE_CHECKING:
    from lora_sdk.model.operations import Axis, Buffer
    from lora_sdk.model.spec import ModelConfig

BOARD_COUNTS = (1, 2, 4, 8, 16, 32, 64)  # up to abi.MAX_BOARDS
"""Up to eight boards every segment of a row lies on one board; beyond, boards share segments."""
COUNTS = ", ".join(map(str, BOARD_COUNTS[:-1])) + f" or {BOARD_COUNTS[-1]}"


def shard(columns: int, unit: int, rank: int, boards: int) -> range:
    """Columns of board `rank`: units floor(rank*U/boards) .. of `unit` columns, U = their number,
    the last one short. May be empty."""
    units = -(-columns // unit)
    first, last = (min(columns, index * units // boards * unit) for index in (rank, rank + 1))
    return range(first, last)


@dataclass(frozen=True)
class Share:
    """One board's part of a model. All ranges are global; heads count heads, the others columns."""

    rank: int
    boards: int
    q_heads: range
    kv_heads: range
    hidden: range
    ffn: range
    vocabulary: range
    embed: range


def axis_columns(config: ModelConfig, share: Share, axis: Axis) -> range:
    """The share's columns of an axis."""
    if axis in ("heads", "kv_heads"):
        heads = share.q_heads if axis == "heads" else share.kv_heads
        return range(heads.start * config.head_dim, heads.stop * config.head_dim)
    found = {
        "hidden": share.hidden,
        "embed": share.embed,
        "ffn": share.ffn,
        "vocabulary": share.vocabulary,
    }
    return found[axis]


def local_columns(config: ModelConfig, share: Share, buffer: Buffer) -> range:
    """The share's columns of a buffer; of a gathered buffer, those that the board itself writes."""
    if len(buffer.axes) == 1:
        return axis_columns(config, share, buffer.axes[0])
    return range(sum(len(axis_columns(config, share, axis)) for axis in buffer.axes))


def shares_segments(boards: int) -> bool:
    """Whether a segment of a row may lie on several boards. Then no board sums one by itself:
    norms gather the columns in place of the sums (docs/numbers.md, 2.3)."""
    return boards > abi.SEGMENTS


def check_board_count(boards: int) -> None:
    """RequestError unless a model can be sharded over so many boards."""
    if boards not in BOARD_COUNTS:
        raise RequestError(f"{boards} boards were requested; expected {COUNTS}")


class Partition:
    """The shares of a model over so many boards; RequestError if it cannot be sharded."""

    def __init__(self, config: ModelConfig, boards: int) -> None:
        check_board_count(boards)
        if boards > config.heads:
            fewer = max(count for count in BOARD_COUNTS if count <= config.heads)
            raise RequestError(
                f"{boards} boards were requested, but the model has {config.heads} query heads and "
                f"each board needs one; use at most {fewer}"
            )
        self.config = config
        self.boards = boards

    def share(self, rank: int) -> Share:
        """The part of board `rank` (its position in the path or ring, not the board's index)."""
        config, unit = self.config, abi.UNIT_COLUMNS

        def columns(count: int) -> range:
            return shard(count, unit, rank, self.boards)

        q_heads = shard(config.heads, 1, rank, self.boards)
        group = config.heads // config.kv_heads
        return Share(
            rank=rank,
            boards=self.boards,
            q_heads=q_heads,
            kv_heads=range(q_heads.start // group, -(-q_heads.stop // group)),
            hidden=columns(config.hidden),
            ffn=columns(config.ffn),
            vocabulary=columns(config.vocabulary),
            embed=columns(config.embed_dim),
        )

    def shares(self) -> tuple[Share, ...]:
        """All shares by rank."""
        return tuple(self.share(rank) for rank in range(self.boards))
