"""Shares: every column and head on exactly one board, segments whole, KV heads where needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_host.errors import RequestError
from lora_sdk.plan.partition import Partition, shard
from tests.unit.plan_rig import LLAMA, MODELS, NARROW


@given(st.integers(0, 5000), st.integers(1, 128), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_shares_cover_all_columns_once(columns: int, unit: int, boards: int) -> None:
    shares = [shard(columns, unit, rank, boards) for rank in range(boards)]
    assert [c for share in shares for c in share] == list(range(columns))
    assert all(share.start % unit == 0 for share in shares if share)


@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8]))
def test_every_segment_of_32_column_units_lies_on_one_board(columns: int, boards: int) -> None:
    shares = [shard(columns, 32, rank, boards) for rank in range(boards)]
    for segment in range(8):
        piece = shard(columns, 32, segment, 8)
        holders = [share for share in shares if piece and piece.start in share]
        assert all(piece.stop <= share.stop for share in holders)


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_a_board_holds_the_kv_heads_of_its_query_heads(config, boards) -> None:
    group = config.heads // config.kv_heads
    for share in Partition(config, boards).shares():
        assert {head // group for head in share.q_heads} == set(share.kv_heads)
        assert len(share.q_heads) in (config.heads // boards, -(-config.heads // boards))


def test_shares_of_nine_heads_over_four_boards() -> None:
    shares = Partition(LLAMA, 4).shares()
    assert [list(share.q_heads) for share in shares] == [[0, 1], [2, 3], [4, 5], [6, 7, 8]]
    assert [list(share.kv_heads) for share in shares] == [[0], [0, 1], [1], [2]]
    assert [share.hidden for share in shares] == [
        range(0, 32), range(32, 64), range(64, 96), range(96, 144)
    ]  # fmt: skip


def test_a_narrow_model_leaves_boards_without_columns() -> None:
    assert [len(share.hidden) for share in Partition(NARROW, 8).shares()].count(0) == 6


@pytest.mark.parametrize("boards", [0, 3, 128, -1])
def test_other_board_counts_are_refused(boards: int) -> None:
    with pytest.raises(
        RequestError, match=f"{boards} boards were requested; expected 1, 2, 4, 8, 16, 32 or 64"
    ):
        Partition(LLAMA, boards)


def test_more_boards_than_query_heads_are_refused() -> None:
    from dataclasses import replace

    config = replace(LLAMA, heads=3, kv_heads=3)
    with pytest.raises(RequestError, match=r"3 query heads .* use at most 2"):
        Partition(config, 4)
