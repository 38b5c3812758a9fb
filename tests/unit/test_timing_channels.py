# SPDX-License-Identifier: Apache-2.0
"""Modelled cycles of matmuls on channels, and of vector commands in the pipes beside them, against
those that were simulated, in cards of two and four."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lora_host import abi
from lora_lab.timing.attention_counts import attention_counts, busiest
from lora_lab.timing.card_costs import card_costs
from lora_lab.timing.card_step import CardRow
from lora_lab.timing.channel_counts import channel_counts, channel_kind, on_channels
from lora_lab.timing.pipe_counts import on_pipes, pipe_counts
from lora_sdk.compile import isa
from lora_sdk.compile.isa import Matrix, Vector
from lora_sdk.model.kv_formats import KvKind
from lora_sdk.plan.kv import KvLayout

W8A8, W4A8 = abi.WEIGHT_INT8, abi.WEIGHT_W4A8 | 7 << abi.WEIGHT_GROUP_SHIFT  # groups of 128

# channels, K, N, weights, rows, latency: from start to result, of test_channel_cards.py's steps
SIMULATED = {
    (4, 128, 128, W8A8, 1, 31): 233,
    (4, 128, 384, W8A8, 5, 31): 1027,
    (4, 128, 128, W8A8, 1, 100): 371,
    (4, 352, 128, W8A8, 1, 31): 349,
    (4, 512, 1536, W8A8, 1, 31): 3247,
    (2, 1408, 512, W8A8, 1, 31): 5819,
    # 32 channels: finishers of four
    (32, 128, 384, W8A8, 1, 31): 275,
    (32, 352, 128, W8A8, 1, 31): 385,
    (32, 128, 290, W8A8, 1, 31): 274,
    (32, 128, 384, W8A8, 5, 31): 905,
    (32, 512, 1536, W8A8, 1, 31): 724,
    (32, 512, 2816, W8A8, 1, 31): 982,
    (32, 1408, 512, W8A8, 1, 31): 918,
    (32, 512, 290, W8A8, 1, 31): 466,
    # of a layer on four boards (test_whole_token.py), banks of 0.75 whose lines are there
    (32, 4096, 8000, W8A8, 1, 7): 16586,
    (32, 4096, 1024, W4A8, 1, 7): 1362,
    (32, 4096, 2048, W4A8, 1, 7): 2450,
    (32, 4096, 5504, W4A8, 1, 7): 6795,
    (32, 11008, 1024, W4A8, 1, 7): 3250,
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


# operation, columns, extra: from start to result of one row, two channels, latency 31
PIPED = {
    ("rms_sums", 4096, 4096): 570,  # of the whole token, mean, on-chip answers after 7 cycles
    ("rms_apply", 512, 512): 275,
    ("quantize", 512, 0): 135,
    ("quantize", 1408, 0): 199,
    ("rope", 1024, 64): 276,
    ("residual", 512, 0): 156,
    ("swiglu", 1408, 0): 385,
}


def vector(name: str, columns: int, extra: int, **fields: int) -> Vector:
    op = getattr(abi, f"VEC_{name.upper()}")
    return Vector(what=name, op=op, columns=columns, extra=extra, **fields)


@pytest.mark.parametrize("case", PIPED)
def test_a_vector_command_takes_what_was_simulated(case: tuple[str, int, int]) -> None:
    command = vector(*case)
    assert on_pipes(2, command) and not on_pipes(0, command)
    latency = 7 if case[0] == "rms_sums" else 31
    found = card_costs().cycles(f"{case[0]}_pipes", pipe_counts(command, 1), latency)
    assert found == pytest.approx(PIPED[case], rel=0.05)


# kind of K and V: from start to result of 32 heads of 128 columns, one row behind 127 positions,
# four units, eight channels, latency 31 (a layer of LLaMA2-7B of test_channel_cards.py)
ATTENDED: dict[KvKind, int] = {"fp16": 13253, "int8": 5629}


@pytest.mark.parametrize("kind", ATTENDED)
def test_attention_takes_what_was_simulated(kind: KvKind) -> None:
    pages = KvLayout(0, 8, 0, 1, 32, 128, 8, 4, kind)
    heads = isa.Attention(
        what="attention", head_dim=128, kv_layer=0, q_heads=32, q_first=0, kv_heads=32, kv_first=0,
        group=1, q_offset=0, q_stride=0, y_offset=0, y_stride=0, scale=0,
    )  # fmt: skip
    own = busiest(heads, card_costs().attentions)
    counts = attention_counts(pages, own, [CardRow(127, (0,))])
    found = card_costs().cycles(f"attention_{kind}", counts, 31)
    assert found == pytest.approx(ATTENDED[kind], rel=0.05)


def test_the_unit_with_most_heads_is_timed() -> None:
    def busy(q_heads: int, group: int, units: int) -> int:
        heads = isa.Attention(
            what="attention", head_dim=64, kv_layer=0, q_heads=q_heads, q_first=0, kv_heads=1,
            kv_first=0, group=group, q_offset=0, q_stride=0, y_offset=0, y_stride=0, scale=0,
        )  # fmt: skip
        return busiest(heads, units).q_heads

    assert [busy(32, 1, n) for n in (1, 4, 8)] == [32, 8, 4]
    assert [busy(32, 8, n) for n in (1, 2, 8)] == [32, 16, 8]  # four KV heads
    assert busy(9, 1, 4) == 3 and busy(3, 4, 4) == 3


def test_what_the_pipes_do_not_take() -> None:
    others = (
        vector("residual", 512, 0, z_offset=2), vector("quantize", 512, 0, y_stride=32),
        vector("rope", 480, 96), vector("rms_sums", 128, 512, first=8), vector("ln_sums", 512, 512),
    )  # fmt: skip
    assert not any(on_pipes(2, one) for one in others)
    assert on_pipes(2, vector("quantize", 512, 0, z_offset=2))
