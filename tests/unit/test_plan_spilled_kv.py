"""KV pages outside the weight banks: used as soon as those are full, shown and charged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lora_host import abi
from lora_host.errors import PlacementError
from lora_host.overlay import load_overlay
from lora_lab.timing import step as steps
from lora_lab.timing.overlay_time import OverlayTiming
from lora_sdk.kv.header_queue import HeaderQueue
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.kv.pages import PagePool
from lora_sdk.kv.uncommitted import Uncommitted
from lora_sdk.plan.kv import tiles
from lora_sdk.plan.model_plan import Plan
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.report import report, table
from tests.unit.plan_rig import LLAMA, LLAMA2_7B, board, overlay, quantized

LONG = replace(LLAMA, positions=8192)


def plan(config=LONG, boards=1, hbm=150_000, **options) -> Plan:
    return make_plan(config, overlay(), board(hbm), boards, **options)


def wanted(found: Plan) -> int:
    """Pages that all sequences together could have."""
    return found.scratch_pages + tiles(found.context) * found.max_sequences


@pytest.mark.parametrize("boards", [1, 4])
@pytest.mark.parametrize("context", [None, 4096])
@pytest.mark.parametrize("sequences", [None, 7])
@pytest.mark.parametrize("hbm", [80_000, 150_000, 2_000_000])
def test_no_page_is_missing_while_a_bank_has_room(
    hbm: int, boards: int, context: int | None, sequences: int | None
) -> None:
    """DDR has 16 GiB a bank. What full weight banks do not hold lies there, and nothing else."""
    found = plan(boards=boards, hbm=hbm, context=context, sequences=sequences)
    assert found.page_count == wanted(found) and found.context == (context or LONG.positions)
    for one in found.boards:
        assert not one.spilled or one.kv.first_spilled == one.kv.scratch_pages
        near = one.kv.capacity(hbm // abi.LINE_BYTES)
        assert one.kv.first_spilled == found.first_spilled <= near
        assert one.kv.spilled_pages == 0 or found.first_spilled == min(
            other.kv.capacity(hbm // abi.LINE_BYTES) for other in found.boards
        )
        ddr = [use.kv for use in one.use if use.bank in found.overlay.spill_banks]
        assert (sum(ddr) > 0) == (found.page_count > found.first_spilled)


def test_full_hbm_and_empty_ddr_never_limit_a_real_model() -> None:
    """Plans of 16 sequences of 4096 positions stopped at what HBM holds, with 0 B of KV in DDR."""
    config = quantized(LLAMA2_7B, "w4a8")
    found = make_plan(config, load_overlay("lora_w4a8_u280"), board(), 1, sequences=16)
    assert (found.context, found.page_count) == (4096, 4 + 16 * 128)
    assert found.boards[0].kv.spilled_pages > 0 and not found.boards[0].spilled
    free = {use.bank: use.free for use in found.boards[0].use}
    assert all(free[bank] < found.boards[0].kv.page_bytes for bank in found.overlay.weight_banks)


def test_weights_come_before_pages_in_hbm() -> None:
    """A step reads every weight, but only the pages of its sequences."""
    found = plan(LLAMA2_7B, hbm=None)
    assert found.boards[0].spilled and found.first_spilled < tiles(2048)
    spilled = sum(matrix.placed_bytes for matrix in found.boards[0].spilled)
    kept = sum(m.placed_bytes for m in found.boards[0].matrices.values() if not m.spilled)
    assert kept + spilled == sum(m.placed_bytes for m in found.boards[0].matrices.values())
    assert kept > 0.9 * found.boards[0].kv.bank_count * board().banks[0].usable


def test_ddr_without_room_for_pages_leaves_the_cache_in_hbm() -> None:
    banks = board(150_000, ddr=625_000)
    found = make_plan(LONG, overlay(), banks, 1)
    assert 2048 <= found.context < 8192 and found.boards[0].kv.spill is None
    with pytest.raises(PlacementError, match="longest context that fits is"):
        make_plan(LONG, overlay(), banks, 1, context=8192)


def test_the_plan_shows_the_pages_and_their_cost() -> None:
    found = report(plan(context=8192, sequences=1))
    one = found["board"][0]["spilled_kv"]
    assert one["banks"] == ["DDR[0]", "DDR[1]"] and one["pages"] == 260 - one["first_page"]
    page = 3 * 3 * 2 * 1024
    each = (page / 38e9 - page / 460e9) * 1e3
    assert one["modelled_extra_ms_a_page"] == pytest.approx(each)
    assert one["modelled_extra_ms_a_token"] == pytest.approx(each * one["pages"])
    assert "spill: board 0 keeps 109 of 260 KV pages (1.9 MiB) in DDR[0], DDR[1]" in table(found)
    assert report(plan(hbm=None))["board"][0]["spilled_kv"] is None


def attention(found: Plan, shape: steps.StepShape) -> float:
    """Cycles in which one layer's K and V stream."""
    ops = OverlayTiming(found.config, found).step(shape).ops
    return next(op.stream for op in ops if op.category == "attention")


def test_pages_in_ddr_are_read_at_its_bandwidth() -> None:
    found, whole = plan(context=8192, sequences=1), plan(hbm=None, context=8192, sequences=1)
    near = (found.first_spilled - found.scratch_pages) * abi.TILE_POSITIONS
    assert attention(found, steps.decode(near)) == attention(whole, steps.decode(near))
    more = attention(found, steps.decode(8192)) - attention(found, steps.decode(near))
    fast = attention(whole, steps.decode(8192)) - attention(whole, steps.decode(near))
    assert more / fast == pytest.approx(460 / 38, rel=0.05)  # whole blocks in the fullest bank
    few = replace(steps.decode(near), spilled=near)
    assert attention(found, few) > 5 * attention(found, steps.decode(near))
    none = replace(steps.decode(8192), spilled=0)
    assert attention(found, none) == attention(whole, none)


def test_a_window_reads_no_more_than_its_pages() -> None:
    found = plan(replace(LONG, windows=(64,) * 3), context=8192, sequences=1)
    assert attention(found, steps.decode(8192)) == attention(found, steps.decode(4096))


def test_commits_to_ddr_wait_for_it() -> None:
    found = plan(context=8192, sequences=1)
    timing = OverlayTiming(found.config, found)
    near, far = (
        next(op for op in timing.step(replace(steps.decode(64), spilled=there)).ops
             if op.what == "kv commit" or op.category == "kv")
        for there in (0, 64)
    )  # fmt: skip
    assert near.stream == 0 < far.stream


def test_hbm_pages_are_taken_first_also_after_use() -> None:
    queue = HeaderQueue(8)
    pool = PagePool(4, 12, queue, 7)
    taken = [pool.take() for _ in range(8)]
    assert taken == list(range(4, 12)) and pool.spilled_among(taken) == 5
    pool.returned([10, 5, 11, 4])
    pool._references.clear()
    assert [pool.take() for _ in range(4)] == [5, 4, 10, 11]
    pool.give_back(11)
    pool.give_back(4)
    assert pool.free == 2 and pool.take() == 4


def test_pages_that_have_come_back_are_taken_before_new_ones() -> None:
    """In their order: a second prompt lies where the first did."""
    pool = PagePool(0, 12, HeaderQueue(8), 10)
    first = [pool.take() for _ in range(3)]
    pool._references.clear()
    pool.returned(first)
    assert [pool.take() for _ in range(4)] == [*first, 3]


def test_after_a_loss_pages_follow_the_new_boards() -> None:
    cache = KvCache(20, 3, 64, 400, 64, first_spilled=4)
    sequence = cache.open()
    for start in range(0, 96, 32):
        slots = cache.take_slots(32)
        for i, slot in enumerate(slots):
            parent = slots[i - 1] if i else -1
            cache.add_row(sequence, slot, Uncommitted(1, start + i, parent))
        cache.commit(sequence, slots)
        while cache.queued or cache.leaving:
            cache.next_header()
            cache.step_done()
    assert cache.pages(sequence) == (2, 3, 4) and cache.spilled_positions(sequence) == 32
    cache.lose(20, 3)
    cache.grow(sequence, 96)
    assert cache.spilled_positions(sequence) == 64
    cache.lose()
    cache.grow(sequence, 96)
    assert cache.spilled_positions(sequence) == 64
    cache.lose(20)
    cache.grow(sequence, 96)
    assert cache.spilled_positions(sequence) == 0


U55C = load_overlay("lora_f_u55c")


def test_a_board_without_ddr_holds_all_in_hbm() -> None:
    """LLaMA2-7B in FP16 fits a U55C, tables and control data in a bank of their own."""
    found = make_plan(LLAMA2_7B, U55C, U55C.board, 1)
    assert found.context == 4096 and found.first_spilled == found.page_count
    (one,) = found.boards
    assert not one.spilled and {table.bank for table in one.tables.values()} == {31}
    assert [use.bank for use in one.use] == list(range(32))
    assert "DDR" not in table(report(found)) and "spill" not in table(report(found))


@pytest.mark.parametrize(
    ("config", "context", "message"),
    [
        (replace(LLAMA2_7B, positions=65536), 32768, r"a context of 32768 positions: KV cache .*"
         r"HBM\[0\]..HBM\[30\].*the longest context that fits is \d+; 2 boards would fit"),
        (replace(LLAMA2_7B, layers=48), None, r"does not fit on board 0, banks HBM\[0\]"
         r"..HBM\[30\].*overlay lora_f_u55c has no spill banks; 2 boards would fit"),
        (replace(LLAMA2_7B, layers=2, vocabulary=128256), None,
         r"embed.token does not fit on board 0, bank HBM\[31\]: .*4 boards would fit"),
    ],
)  # fmt: skip
def test_what_hbm_alone_has_no_room_for_is_refused_by_name(config, context, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        make_plan(config, U55C, U55C.board, 1, context=context)
