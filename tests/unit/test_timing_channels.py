# SPDX-License-Identifier: Apache-2.0
"""Modelled cycles of matmuls on channels against those that were simulated, in cards of two and
four."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lora_host import abi
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.channel_counts import channel_counts, channel_kind, on_channels
from lora_sdk.compile.isa import Matrix

W8A8, W4A8 = abi.WEIGHT_INT8, abi.WEIGHT_W4A8 | 7 << abi.WEIGHT_GROUP_SHIFT  # groups of 128

# channels, K, N, weights, rows, latency: from start to result, of test_channel_cards.py's steps
SIMULATED = {
    (4, 128, 128, W8A8, 1, 31): 233,
    (4, 128, 384, W8A8, 5, 31): 1027,
    (4, 128, 128, W8A8, 1, 100): 371,
    (4, 352, 128, W8A8, 1, 31): 349,
    (4, 512, 1536, W8A8, 1, 31): 3247,
    (2, 1408, 512, W8A8, 1, 31): 5819,
    (4, 128, 256, W4A8, 1, 100): 1228,
    (4, 256, 384, W4A8, 5, 31): 4715,
    (2, 512, 2816, W4A8, 1, 31): 21279,
    (2, 1408, 512, W4A8, 1, 31): 6333,
}


def matrix(channels: int, k: int, n: int, kind: int) -> Matrix:
    return Matrix(
        what="matrix", bank_first=0, bank_count=channels, merge=-(-k // abi.BLOCK_K),
        weight_line=0, first=0, x_bank=abi.BANK_ONCHIP, y_bank=abi.BANK_ONCHIP, k=k, n=n,
        x_offset=0, x_stride=0, y_offset=0, y_stride=0, weight_type=kind,
    )  # fmt: skip


@pytest.mark.parametrize("case", SIMULATED)
def test_a_matmul_takes_what_was_simulated(case: tuple[int, int, int, int, int, int]) -> None:
    channels, k, n, kind, rows, latency = case
    command = matrix(channels, k, n, kind)
    assert on_channels(channels, command)
    counts = channel_counts(channels, command, rows)
    found = card_costs().cycles(channel_kind(command), counts, latency)
    assert found == pytest.approx(SIMULATED[case], rel=0.02)


def test_what_the_channels_do_not_take() -> None:
    command = matrix(4, 256, 64, W8A8)
    others = (
        {"merge": 4}, {"bank_first": 1}, {"bank_count": 8}, {"adapter": 1},
        {"weight_type": abi.WEIGHT_FP16},
    )  # fmt: skip
    assert on_channels(4, command)
    assert not any(on_channels(4, replace(command, **other)) for other in others)
    assert not on_channels(0, command)
