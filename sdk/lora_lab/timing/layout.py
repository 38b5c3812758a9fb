"""How the boards of a modelled cluster run a model: stages of layers, and their links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lora_host.boards import board_names, load_board
from lora_host.errors import RequestError
from lora_lab.timing.shape import block_weights, head_weights
from lora_sdk.plan.partition import check_stages, shard

if TYPE_CHECKING:
    from lora_lab.timing.designs import ArrayDesign
    from lora_sdk.model.spec import ModelConfig

CROSS_CAGES = 4  # a ring of each stage takes two, cables to the stages before and behind two


@dataclass(frozen=True)
class Layout:
    """`boards` in `stages` stages of as many each. All are in one ring, in which a stage is a path;
    with `cross_links` each stage is a ring of its own, and a cable joins each board to that of its
    rank in the next stage."""

    boards: int
    stages: int = 1
    cross_links: bool = False

    @property
    def stage_boards(self) -> int:
        """Boards that share each layer."""
        return self.boards // self.stages

    @property
    def is_path(self) -> bool:
        """Whether the boards of a stage form a path and no ring."""
        return self.stages > 1 and not self.cross_links

    @property
    def hops(self) -> int:
        """The most that a block of a layer's gather travels."""
        return self.stage_boards - 1 if self.is_path else self.stage_boards // 2

    def check(self, config: ModelConfig, board: str) -> None:
        """RequestError: stages that the boards or the model do not have, or cables without cages,
        and what works."""
        if self.stages == 1 and not self.cross_links:
            return  # any number of boards, for designs of papers
        check_stages(self.boards, self.stages)
        if self.stages > config.layers:
            raise RequestError(
                f"{self.stages} stages: the model has {config.layers} layers and each stage needs "
                f"one; use at most {config.layers}"
            )
        if self.cross_links and self.stages == 1:
            raise RequestError("cables between stages need stages: use 2 or more, or one ring")
        cages = _cages(board)
        if self.cross_links and cages < CROSS_CAGES:
            raise RequestError(
                f"a ring of each stage and cables between stages take {CROSS_CAGES} cages of a "
                f"board; {board} has {cages}: use one ring of all boards"
            )

    def layers(self, config: ModelConfig) -> int:
        """Layers of the largest stage."""
        last = self.stages - 1
        return len(shard(config.layers, 1, last, self.stages))

    def begins(self, config: ModelConfig) -> frozenset[int]:
        """The first layer of each stage but the first."""
        return frozenset(
            shard(config.layers, 1, index, self.stages).start for index in range(1, self.stages)
        )

    def board_bytes(self, config: ModelConfig, design: ArrayDesign) -> float:
        """Bytes that a step reads of the weights of a board of the last stage, which has the most
        layers, and lm_head if the design has it."""
        layers = block_weights(config) * self.layers(config) / config.layers
        head = head_weights(config) * (design.head_bits / 8 or design.weight_bytes)
        whole = layers * design.weight_bytes + (head if design.lm_head else 0.0)
        return whole / self.stage_boards


def _cages(board: str) -> int:
    """Link cages of a board; 0 of one that is not described in boards/."""
    return load_board(board).links.cages if board in board_names() else 0
