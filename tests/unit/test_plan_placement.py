"""Placement: everything inside its bank, nothing twice, all sums right, errors with figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lora_host import abi
from lora_host.errors import OverlayError, PlacementError, RequestError
from lora_host.overlay import COLUMN
from lora_sdk.plan.model_plan import BoardPlan, Plan
from lora_sdk.plan.placement import make_plan
from tests.unit.plan_rig import GPT2, LLAMA, LLAMA2_7B, MODELS, OPT_POST, board, overlay

BLOCK = abi.BLOCK_BYTES_FP16
FOUR_BITS = {32: 2368, 64: 2240, 128: 2176}  # by group: values, scales, zero points, whole lines


def plan(
    config=LLAMA, boards=4, hbm=None, ddr=None, context=None, sequences=None, **changes
) -> Plan:
    return make_plan(config, overlay(**changes), board(hbm, ddr), boards, context, sequences)


def ranges(found: BoardPlan, control_bank: int) -> Iterator[tuple[int, int, int, str]]:
    """(bank, start, end, name) of everything that lies on a board, by the formulas of abi.h."""
    for matrix in found.matrices.values():
        form = matrix.spec.format
        size = FOUR_BITS[form.group] if form.group else BLOCK // (2 if form.kind == "int8" else 1)
        for block in range(matrix.spec.blocks):
            request, place = divmod(block, matrix.merge)
            bank = matrix.bank_first + (matrix.first + request) % matrix.bank_count
            row = (matrix.first + request) // matrix.bank_count
            line = matrix.weight_line + (row * matrix.merge + place) * (size // 64)
            assert matrix.address(block) == (bank, line * 64)
            yield bank, line * 64, line * 64 + size, f"{matrix.name} block {block}"
    for table in found.tables.values():
        yield table.bank, table.offset, table.offset + table.placed_bytes, table.name
    kv, control = found.kv, found.control
    lines = {"fp16": kv.head_dim, "int8": kv.head_dim // 2, "int8-heads": kv.head_dim // 2 + 1}
    kv_lines, stride = lines[kv.kind], kv.layers * kv.heads * 2 | 1
    for page in range(kv.pages):
        for block in range(kv.layers * kv.heads * 2):
            bank, offset = kv.address(
                page, block // 2 // kv.heads, block // 2 % kv.heads, block % 2
            )
            pool: Any = kv if kv.spill is None or page < kv.spill.first_page else kv.spill
            number = (page - (0 if pool is kv else pool.first_page)) * stride + block
            assert bank == pool.bank_first + number % pool.bank_count
            assert offset == (pool.line + number // pool.bank_count * kv_lines) * 64
            yield bank, offset, offset + kv_lines * 64, f"kv page {page} block {block}"
    yield control_bank, 0, abi.CONTROL_PAGE, "firmware's page"
    yield control_bank, control.block_offset, control.block_offset + control.block_bytes, "block"
    yield control_bank, control.list_offset, control.list_offset + control.list_bytes, "list"
    end = control.results_offset + control.results_bytes
    yield control_bank, control.results_offset, end, "results"


@pytest.mark.parametrize(("merge", "hbm"), [(1, None), (4, None), (1, 12_000), (COLUMN, None)])
@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_nothing_overlaps_and_everything_is_reserved(
    config, boards: int, merge: int | str, hbm: int | None
) -> None:
    """With little HBM some pages lie in DDR."""
    found = plan(config, boards, hbm=hbm, merge=merge, sequences=3)
    assert (found.boards[0].kv.spilled_pages > 0) == (hbm is not None)
    for one in found.boards:
        placed = sorted(ranges(one, found.overlay.control_bank))
        for (bank, _, end, name), (other, start, _, next_name) in pairwise(placed):
            assert bank != other or end <= start, (name, next_name)
        for bank, _, end, name in placed:
            assert end <= one.arenas[bank], name
        for use in one.use:
            assert use.reserved == one.arenas.get(use.bank, 0)
            assert use.free >= 0


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_weights_are_the_model_and_the_listed_replicas(config, boards: int) -> None:
    d, q, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    e, ffn = config.embed_dim, config.ffn * (2 if config.gated else 1)
    layer = d * (q + 2 * kv) + q * d + d * ffn + config.ffn * d
    layer += (q + 2 * kv) * config.qkv_bias + d * config.o_bias + (ffn + d) * config.mlp_bias
    vectors = (1 if config.norm == "rmsnorm" else 2) * d
    total = config.layers * (layer + 2 * vectors) + vectors * config.final_norm
    total += config.vocabulary * e * (1 if config.tied else 2) + config.position_rows * d
    total += 2 * e * d if e != d else 0
    found = plan(config, boards)
    assert found.weight_bytes == 2 * total + found.replica_bytes
    tied = sum(r.bytes for b in found.boards for r in b.replicas if r.what == "lm_head")
    assert tied == (2 * config.vocabulary * e if config.tied else 0)


def test_matrices_continue_one_block_number_over_the_banks() -> None:
    matrices = plan().boards[1].matrices.values()
    following = 0
    for matrix in matrices:
        assert matrix.address(0) == (following % 32, following // 32 * BLOCK)
        following += matrix.spec.blocks


@pytest.mark.parametrize("banks", [2, 4, 32])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_column_tiles_lie_whole_in_a_bank(config, banks: int) -> None:
    """Tile t in bank (first + t) mod banks, and a bank's tiles of a matrix are one run."""
    for one in plan(config, 2, merge=COLUMN, weight_banks=range(banks)).boards:
        for matrix in one.matrices.values():
            tall = -(-matrix.k // abi.BLOCK_K)
            assert (matrix.merge, matrix.bank_first, matrix.bank_count) == (tall, 0, banks)
            ends: dict[int, int] = {}
            for tile in range(matrix.spec.blocks // tall):
                bank, start = matrix.address(tile * tall)
                assert bank == (matrix.first + tile) % banks
                assert ends.get(bank, start) == start
                for block in range(tall):
                    assert matrix.address(tile * tall + block) == (bank, start + block * BLOCK)
                ends[bank] = start + tall * BLOCK


def test_a_column_that_no_command_can_say_is_refused() -> None:
    """255 blocks are the most."""
    wide = replace(LLAMA, ffn=255 * abi.BLOCK_K)
    assert plan(wide, 1, merge=COLUMN).boards[0].matrices["layer.0.down"].merge == 255
    with pytest.raises(OverlayError, match=r"lora_f_u280 .*: K = 32641 found, at most 32640 exp"):
        plan(replace(wide, ffn=wide.ffn + 1), 1, merge=COLUMN)


def test_parts_name_the_tensors_columns_of_the_share() -> None:
    found = plan(boards=4).boards[1]
    assert found.matrices["layer.2.qkv"].parts == (
        ("layer.2.q", 32, 64), ("layer.2.k", 0, 32), ("layer.2.v", 0, 32)
    )  # fmt: skip
    ffn = (found.share.ffn.start, found.share.ffn.stop)
    assert found.matrices["layer.0.up"].parts == (("layer.0.gate", *ffn), ("layer.0.up", *ffn))
    assert found.matrices["layer.0.up"].n == 2 * (ffn[1] - ffn[0])
    bias = plan(GPT2).boards[1].tables["layer.0.qkv.bias"]
    assert [part.tensor for part in bias.spec.parts] == [f"layer.0.{p}.bias" for p in "qkv"]


def test_the_seven_billion_model_fits_one_board_by_spilling() -> None:
    one, two = plan(LLAMA2_7B, 1), plan(LLAMA2_7B, 2)
    assert one.boards[0].spilled and not any(found.spilled for found in two.boards)
    assert one.weight_bytes == two.weight_bytes
    assert one.context >= 2048 and two.context == 4096
    assert plan(LLAMA2_7B, 1, context=4096).context == 4096  # more spills, the context is kept


def test_the_step_block_lies_at_the_same_place_on_every_board() -> None:
    for config in MODELS.values():
        found = plan(config, 8).boards
        assert len({(one.control.block_offset, one.control.block_bytes) for one in found}) == 1
        assert all(one.control.link_test_offset == abi.CONTROL_PAGE for one in found)


def test_planning_is_pure() -> None:
    assert plan(OPT_POST) == plan(OPT_POST)


def test_pages_are_those_of_the_sequences_and_the_scratch() -> None:
    found = plan(context=100, sequences=3)
    assert (found.page_count, found.scratch_pages, found.max_sequences) == (4 + 3 * 4, 4, 3)
    assert {one.kv.pages for one in found.boards} == {16}


LONG = replace(LLAMA, positions=8192)


def test_default_context_is_the_models_or_what_fits() -> None:
    assert plan().context == 256
    small = plan(LONG, 1, hbm=150_000, ddr=625_000)
    assert not small.boards[0].spilled and 2048 <= small.context < 8192
    assert small.context == small.context_limit and small.max_sequences == 1
    with_ddr = plan(LONG, 1, hbm=150_000)
    assert with_ddr.context == 8192 and with_ddr.max_sequences == 16
    assert plan(LONG, 1, hbm=150_000, context=small.context).context == small.context
    with pytest.raises(
        PlacementError, match=r"a context of 8192 .*longest context that fits is \d+;"
    ):
        plan(LONG, 1, hbm=150_000, ddr=625_000, context=8192)


def test_sequences_share_pages_where_not_all_fit() -> None:
    small = plan(LONG, 1, hbm=150_000, ddr=625_000, sequences=8)
    assert small.max_sequences == 8
    assert small.page_count == small.scratch_pages + small.max_tiles


def test_rows_are_what_the_on_chip_buffer_holds() -> None:
    whole = plan()
    assert whole.row_limit == 64
    one_row = sum(buffer.stride for buffer in whole.boards[3].onchip.values())
    assert plan(onchip_bytes=one_row * 5 + 1).row_limit == 5
    with pytest.raises(PlacementError, match=r"one row do not fit on board 3, on-chip"):
        plan(onchip_bytes=one_row - 1)


def test_onchip_buffers_do_not_overlap() -> None:
    for config in MODELS.values():
        found = plan(config, 2)
        for one in found.boards:
            end = 0
            for buffer in one.onchip.values():
                assert buffer.offset == end and buffer.stride % 64 == 0
                end += buffer.stride * found.row_limit
            assert end <= found.overlay.onchip_bytes


def test_full_banks_name_tensor_board_bank_and_figures() -> None:
    quarter = {"hbm": 64 << 20, "ddr": 4 << 30}
    with pytest.raises(
        PlacementError,
        match=r"layer\.\d+\.\w+ does not fit on board 0, bank DDR\[\d\]: requested [\d.]+ MiB, "
        r"free [\d.]+ MiB, capacity 4096.0 MiB.*; 2 boards would fit",
    ):
        plan(LLAMA2_7B, 1, **quarter)
    assert plan(LLAMA2_7B, 2, **quarter).context > 0
    with pytest.raises(PlacementError, match="no number of boards up to 64 would fit"):
        plan(LLAMA2_7B, 1, hbm=1 << 20, ddr=64 << 20)


def test_no_room_for_the_cache_names_the_banks() -> None:
    with pytest.raises(
        PlacementError, match=r"a KV cache for one sequence.*HBM\[0\]..HBM\[31\].*MiB"
    ):
        plan(boards=1, hbm=2048)


def test_tables_go_to_the_control_bank_where_there_is_no_other() -> None:
    only = plan(spill_banks=range(32, 33))
    assert {table.bank for table in only.boards[0].tables.values()} == {32}
    assert {table.bank for table in plan().boards[0].tables.values()} == {33}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": 257}, "context 257 is out of range: the model has 256 positions"),
        ({"context": 0}, "context 0 is out of range"),
        ({"sequences": 65}, "65 sequences are out of range.* 1 to 64"),
        ({"sequences": 0}, "0 sequences"),
    ],
)
def test_arguments_out_of_range(arguments, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        plan(**arguments)


@pytest.mark.parametrize("taps", [(4,), (-1,), tuple(range(9))])
def test_taps_out_of_range(taps) -> None:
    with pytest.raises(RequestError, match="hidden taps"):
        make_plan(LLAMA, overlay(), board(), 2, hidden_taps=taps)


def test_hidden_taps_have_results() -> None:
    found = make_plan(LLAMA, overlay(), board(), 2, hidden_taps=(0, 3))
    control = found.boards[1].control
    end = control.hidden_offset + 2 * control.hidden_tap_bytes
    assert end == control.votes_offset < control.ring_offset
    end = control.ring_offset + abi.MAX_GENERATE * abi.dtype("token").itemsize
    assert end == control.results_offset + control.results_bytes
    assert control.hidden_tap_bytes == 64 * control.hidden_stride


def test_a_group_of_boards_that_is_too_small_for_heads_of_one_board() -> None:
    config = replace(LLAMA, heads=2, kv_heads=1)
    with pytest.raises(PlacementError, match="no number of boards"):
        plan(config, 2, hbm=512)
