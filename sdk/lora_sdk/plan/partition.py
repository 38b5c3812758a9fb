"""Which columns and heads each board owns (the `lora` scheme: tensor parallel by column), and which
layers: those of its stage, a group of neighboring boards. Stages only pass rows on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host import abi
from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.model.operations import width
from lora_sdk.model.stage import describe_stage

if TYPE_CHECKING:
    from lora_sdk.model.block import Block
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
class Stage:
    """Stage `index` of `count`: the boards that run `layers`, with the first what comes before the
    layers, with the last what comes after them. `all_rows`: the last layer's output is needed of
    all rows, not of the selected ones alone."""

    index: int
    count: int
    layers: range
    all_rows: bool = False

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def is_last(self) -> bool:
        return self.index + 1 == self.count

    def block(self, config: ModelConfig) -> Block:
        """Its operations."""
        return describe_stage(config, self.layers, self.all_rows)

    def holds_tap(self, layer: int, layers: int) -> bool:
        """Whether the input of `layer` is this stage's; that of `layers`, the output of the last
        of all, is the last stage's."""
        return layer in self.layers or (self.is_last and layer == layers)


@dataclass(frozen=True)
class Share:
    """One board's part of a model: board `rank` of the `boards` of its stage. All ranges are
    global; heads count heads, the others columns."""

    rank: int
    boards: int
    stage: Stage
    q_heads: range
    kv_heads: range
    hidden: range
    ffn: range
    vocabulary: range
    embed: range
    expert_ffn: range = range(0)
    shared_ffn: range = range(0)

    @property
    def place(self) -> int:
        """The board's position in the path or ring of all boards."""
        return self.stage.index * self.boards + self.rank

    def block(self, config: ModelConfig) -> Block:
        """The operations of its stage."""
        return self.stage.block(config)


def axis_columns(config: ModelConfig, share: Share, axis: Axis) -> range:
    """The share's columns of an axis."""
    if axis in ("heads", "kv_heads"):
        heads = share.q_heads if axis == "heads" else share.kv_heads
        return range(heads.start * config.head_dim, heads.stop * config.head_dim)
    if axis.startswith("mixed"):
        return _mixed_columns(config, share, axis)
    if axis in ("experts", "chosen", "shared_gate", "rope_key"):
        return range(width(config, axis))
    if axis in ("q_latent", "kv_latent"):
        return shard(width(config, axis), abi.UNIT_COLUMNS, share.rank, share.boards)
    if axis in ("kv_nope", "kv_values", "values"):
        heads = share.q_heads if axis == "values" else share.kv_heads
        each = width(config, axis) // config.kv_heads
        return range(heads.start * each, heads.stop * each)
    if axis == "chosen_ffn":
        chosen = width(config, "chosen")
        return range(share.expert_ffn.start * chosen, share.expert_ffn.stop * chosen)
    found = {
        "hidden": share.hidden,
        "embed": share.embed,
        "ffn": share.ffn,
        "expert_ffn": share.expert_ffn,
        "shared_ffn": share.shared_ffn,
        "vocabulary": share.vocabulary,
    }
    return found[axis]


def _mixed_columns(config: ModelConfig, share: Share, axis: Axis) -> range:
    """The columns of a recurrence that go with the share's query heads, or with its KV heads."""
    columns = width(config, axis)
    of_queries = axis == "mixed"
    heads = share.q_heads if of_queries else share.kv_heads
    count = config.heads if of_queries else config.kv_heads
    recurrent = config.recurrent
    if axis == "mixed_keys" and recurrent is not None and recurrent.key_heads:
        each, groups = columns // recurrent.key_heads, recurrent.key_heads
        first, last = heads.start * groups // count, -(-heads.stop * groups // count)
        return range(first * each, last * each)
    return range(heads.start * columns // count, heads.stop * columns // count)


def first_columns(config: ModelConfig, share: Share, buffer: Buffer) -> range:
    """The share's columns of a buffer's first axis."""
    return axis_columns(config, share, buffer.axes[0])


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


def check_stages(boards: int, stages: int) -> None:
    """RequestError unless so many boards can be cut into so many stages of as many boards each."""
    if stages < 1 or boards % stages:
        counts = [str(count) for count in BOARD_COUNTS if count <= boards]
        listed = ", ".join(counts[:-1]) + f" or {counts[-1]}" if counts[1:] else counts[0]
        raise RequestError(
            f"{counted(stages, 'stage')} of {counted(boards, 'board')} were requested; expected "
            f"{listed}"
        )


def fewest_stages(config: ModelConfig, boards: int) -> int | None:
    """The fewest stages in which each of the boards has a query head; None: no number works."""
    fitting = (n for n in BOARD_COUNTS if n <= min(boards, config.layers))
    return next((n for n in fitting if boards // n <= config.heads), None)


class Partition:
    """The shares of a model over so many boards, cut into stages of as many boards each;
    RequestError if it cannot be sharded. `all_rows`: as of a stage."""

    def __init__(
        self, config: ModelConfig, boards: int, stages: int = 1, all_rows: bool = False
    ) -> None:
        check_board_count(boards)
        check_stages(boards, stages)
        if stages > config.layers:
            most = max(count for count in BOARD_COUNTS if count <= config.layers)
            raise RequestError(
                f"{stages} stages were requested, but the model has {config.layers} layers and "
                f"each stage needs one; use at most {most}"
            )
        if boards // stages > config.heads:
            raise _too_few_heads(config, boards, stages)
        self.config = config
        self.boards = boards
        self.stages = tuple(
            Stage(index, stages, shard(config.layers, 1, index, stages), all_rows)
            for index in range(stages)
        )

    @property
    def stage_boards(self) -> int:
        """Boards of a stage."""
        return self.boards // len(self.stages)

    def share(self, place: int) -> Share:
        """The part of the board at `place` of the path or ring."""
        config, unit, boards = self.config, abi.UNIT_COLUMNS, self.stage_boards
        index, rank = divmod(place, boards)
        stage = self.stages[index]

        def columns(count: int) -> range:
            return shard(count, unit, rank, boards)

        q_heads = shard(config.heads, 1, rank, boards)
        group = config.heads // config.kv_heads
        return Share(
            rank=rank,
            boards=boards,
            stage=stage,
            q_heads=q_heads,
            kv_heads=range(q_heads.start // group, -(-q_heads.stop // group)),
            hidden=columns(config.hidden),
            ffn=columns(config.ffn),
            vocabulary=columns(config.vocabulary) if stage.is_last else range(0),
            embed=columns(config.embed_dim),
            expert_ffn=columns(width(config, "expert_ffn")),
            shared_ffn=columns(width(config, "shared_ffn")),
        )

    def shares(self) -> tuple[Share, ...]:
        """All shares by place."""
        return tuple(self.share(place) for place in range(self.boards))


def _too_few_heads(config: ModelConfig, boards: int, stages: int) -> RequestError:
    fewer = max(count for count in BOARD_COUNTS if count <= config.heads) * stages
    works, more = f"use at most {fewer}", fewest_stages(config, boards)
    if more is not None:
        works += f", or {more} stages"
    of_stages = f" in {counted(stages, 'stage')}" if stages > 1 else ""
    return RequestError(
        f"{boards} boards{of_stages} were requested, but the model has {config.heads} query heads "
        f"and each board needs one; {works}"
    )
