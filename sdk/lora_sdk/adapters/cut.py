"""The part of an adapter that one board holds: factors of A and B for each of its matrices.

B is sharded by column, like the base matrix. A block-diagonal B (bd_b) keeps only the blocks that
overlap the board's columns, and A keeps only their ranks. A block-diagonal A (bd_a) is kept whole
and applied block by block (BD-LoRA, section 3). With S-LoRA, A is sharded by rank and h is
gathered. Zero blocks are skipped everywhere, so all modes and board counts add the same terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lora_sdk.adapters.weights import AdapterWeights, Half, Module, Target
from lora_sdk.plan.adapters import AdapterOptions, padded_rank
from lora_sdk.plan.tensors import MatrixSpec

if TYPE_CHECKING:
    from lora_sdk.plan.partition import Share


@dataclass(frozen=True)
class RankLayout:
    """How the ranks of one tensor are laid out in a row of h."""

    h_first: int
    h_run: int
    h_skip: int


@dataclass(frozen=True)
class Factor:
    """`values`: FP16 [rank_count, count]. Columns start at `first`: in x for A, in the board's
    matrix for B. `rank_first` counts from the adapter's first rank."""

    first: int
    rank_first: int
    rank: int
    scale: np.float32
    layout: RankLayout
    values: Half


@dataclass(frozen=True)
class MatrixCut:
    """The factors of one matrix."""

    down: tuple[Factor, ...]
    up: tuple[Factor, ...]


def cut(
    weights: AdapterWeights, spec: MatrixSpec, share: Share, options: AdapterOptions
) -> MatrixCut:
    """The part of an adapter that board `share` needs for matrix `spec`."""
    down: list[Factor] = []
    up: list[Factor] = []
    column = 0
    for index, part in enumerate(spec.parts):
        target = weights.targets.get(part.tensor)
        if target is not None:
            layout = _rank_layout(target.module, index, len(spec.parts), share.boards, options)
            columns = range(part.start, part.stop)
            ups = list(_up(target, columns, column, layout))
            down.extend(_down(target.module, _ranks(target.module, ups, share, options), layout))
            up.extend(ups)
        column += part.width
    return MatrixCut(tuple(down), tuple(up))


def _rank_layout(
    module: Module, index: int, tensors: int, boards: int, options: AdapterOptions
) -> RankLayout:
    shards, share = options.shards(boards), options.share(boards)
    if shards == 1:
        return RankLayout(index * share, padded_rank(module.rank), 0)
    return RankLayout(index * share, -(-module.rank // shards), tensors * share)


def _up(target: Target, columns: range, local: int, layout: RankLayout) -> Iterator[Factor]:
    """B's blocks that overlap the board's columns of a tensor. `local` is the first of these
    columns in the board's matrix."""
    module = target.module
    height, ranks = module.outputs // module.b_blocks, module.rank // module.b_blocks
    outputs = target.outputs(columns)
    blocks = outputs // height
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1), len(outputs)]
    for low, high in pairwise(cuts):
        if low < high:
            values = module.b[outputs[low:high]].T
            rank = padded_rank(module.rank)
            first = int(blocks[low]) * ranks
            yield Factor(local + int(low), first, rank, module.scale, layout, values)


def _ranks(module: Module, ups: list[Factor], share: Share, options: AdapterOptions) -> range:
    """Ranks of A that this board applies."""
    shards = options.shards(share.boards)
    if shards > 1:
        run = -(-module.rank // shards)
        return range(min(module.rank, share.rank * run), min(module.rank, (share.rank + 1) * run))
    if not ups:
        return range(0)
    if options.mode == "nfs":
        return range(module.rank)
    ends = (factor.rank_first + len(factor.values) for factor in ups)
    return range(min(factor.rank_first for factor in ups), max(ends))


def _down(module: Module, ranks: range, layout: RankLayout) -> Iterator[Factor]:
    """A's rows `ranks`, one factor per block of A."""
    height, width = module.rank // module.a_blocks, module.inputs // module.a_blocks
    for block in range(module.a_blocks):
        low, high = max(ranks.start, block * height), min(ranks.stop, (block + 1) * height)
        if low < high:
            rank, values = padded_rank(module.rank), module.a[low:high]
            yield Factor(block * width, low, rank, module.scale, layout, values)


def a_layout(values: Half) -> NDArray[np.float16]:
    """[rank_count, count] -> [ceil(rank_count/8)][count][8], as abi.h lays out A."""
    ranks, count = values.shape
    padded = np.zeros((padded_rank(ranks), count), np.float16)
    padded[:ranks] = values
    return np.ascontiguousarray(padded.reshape(-1, 8, count).transpose(0, 2, 1))


def b_layout(values: Half, first: int) -> NDArray[np.float16]:
    """[rank_count, count] from column `first` on -> [tiles][rank_count][32]."""
    ranks, count = values.shape
    left = first % 32
    tiles = -(-(left + count) // 32)
    padded = np.zeros((ranks, tiles * 32), np.float16)
    padded[:, left : left + count] = values
    return np.ascontiguousarray(padded.reshape(ranks, tiles, 32).transpose(1, 0, 2))
