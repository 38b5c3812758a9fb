from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host import abi
from lora_host.errors import LinkError, ModelError, RequestError
from lora_sdk.kv.header_queue import HeaderQueue, KvOp
from lora_sdk.kv.kvcache import KvCache, pages_for
from lora_sdk.step.step import build_rows
from tests.cache_calls import check_random_calls, feed, sees
from tests.scripted import Bench


def test_pages_for() -> None:
    assert [pages_for(n) for n in (0, 1, 32, 33)] == [0, 1, 1, 2]


def test_scratch_pages_are_never_given_to_a_sequence() -> None:
    bench = Bench(pages=8, scratch=128)
    sequence = bench.cache.open()
    bench.cache.grow(sequence, 128)
    assert bench.cache.pages(sequence) == (4, 5, 6, 7)


def test_a_committed_slot_is_not_used_by_rows_of_the_step_that_commits_it() -> None:
    bench = Bench(scratch=4)
    sequence = bench.cache.open()
    feed(bench, sequence, [1, 2])
    assert bench.cache.free_slots == 2
    second = build_rows(bench.cache, sequence, [3, 4])
    assert {row.slot for row in second} == {2, 3}
    with pytest.raises(RequestError, match="scratch slots"):
        build_rows(bench.cache, sequence, [5])
    bench.stepper.run(second)
    assert bench.cache.free_slots == 2  # the first two, their commit has been carried
    assert {row.slot for row in build_rows(bench.cache, sequence, [5, 6], after=3)} == {0, 1}


def test_commit_travels_in_the_next_header_or_an_empty_step() -> None:
    bench = Bench()
    sequence = bench.cache.open()
    feed(bench, sequence, [1, 2, 3])
    assert all(op.kind != abi.KV_COMMIT for op in bench.runner.headers[-1])
    bench.stepper.flush()
    commits = [op for op in bench.runner.headers[-1] if op.kind == abi.KV_COMMIT]
    assert [(op.a, op.c) for op in commits] == [(0, 3)] and bench.runner.steps[-1] == []


def test_fork_shares_full_pages_and_copies_the_last_partial_one() -> None:
    bench = Bench()
    parent = bench.cache.open()
    feed(bench, parent, list(range(40)))
    child = bench.cache.fork(parent)
    assert bench.cache.pages(child)[0] == bench.cache.pages(parent)[0]
    assert bench.cache.pages(child)[1] != bench.cache.pages(parent)[1]
    feed(bench, child, [50])
    feed(bench, parent, [51])
    assert sees(bench, child) == [*range(40), 50]
    assert sees(bench, parent) == [*range(40), 51]


def test_fork_at_a_page_boundary_copies_nothing() -> None:
    bench = Bench()
    parent = bench.cache.open()
    feed(bench, parent, list(range(32)))
    child = bench.cache.fork(parent)
    assert bench.cache.pages(child) == bench.cache.pages(parent)
    bench.stepper.flush()
    assert all(op.kind != abi.KV_COPY for header in bench.runner.headers for op in header)


def table_ops(bench: Bench) -> list[tuple[int, int, int]]:
    return [
        (op.sequence, op.a, op.b)
        for header in bench.runner.headers
        for op in header
        if op.kind == abi.KV_TABLE
    ]


def copies(bench: Bench) -> int:
    return sum(op.kind == abi.KV_COPY for header in bench.runner.headers for op in header)


def test_a_fork_maps_only_tiles_that_differ() -> None:
    bench = Bench()
    parent = bench.cache.open()
    feed(bench, parent, list(range(100)))
    child = bench.cache.fork(parent)
    bench.stepper.flush()
    assert [tile for sequence, tile, _ in table_ops(bench) if sequence == child] == [0, 1, 2, 3]
    bench.cache.close(child)
    bench.runner.headers.clear()
    for _ in range(3):  # the other numbers come first
        again = bench.cache.fork(parent)
        bench.cache.close(again)
    assert again == child
    again = bench.cache.fork(parent)
    while again != child:
        again = bench.cache.fork(parent)
    bench.stepper.flush()
    assert {tile for sequence, tile, _ in table_ops(bench) if sequence == again} == {3}
    assert sees(bench, again) == list(range(100))


def test_after_a_reset_every_tile_is_mapped_again() -> None:
    bench = Bench()
    first = bench.cache.open()
    feed(bench, first, list(range(40)))
    bench.cache.reset()
    bench.stepper.flush()
    for table in bench.runner.tables:  # the boards may have been reset, too
        table.clear()
    again = bench.cache.open()
    while again != first:
        again = bench.cache.open()
    feed(bench, again, list(range(40)))
    assert sees(bench, again) == list(range(40))


def test_beams_are_reordered_with_one_copy_per_further_continuation() -> None:
    bench = Bench()
    beams = [bench.cache.open()]
    feed(bench, beams[0], list(range(70)))
    beams += [bench.cache.fork(beams[0]), bench.cache.fork(beams[0])]
    for index, beam in enumerate(beams):
        feed(bench, beam, [50 + index])
    bench.stepper.flush()
    bench.runner.headers.clear()
    a, b, c = beams
    bench.cache.reorder({a: b, b: a, c: b})  # two change places, one follows
    feed(bench, a, [60])
    feed(bench, b, [61])
    feed(bench, c, [62])
    assert copies(bench) == 1 and {tile for _, tile, _ in table_ops(bench)} == {2}
    assert sees(bench, a) == [*range(70), 51, 60]
    assert sees(bench, b) == [*range(70), 50, 61]
    assert sees(bench, c) == [*range(70), 51, 62]
    bench.stepper.flush()
    bench.cache.reorder({a: a, b: b, c: c})
    assert not bench.cache.queued


def test_reorder_refuses_what_it_has_no_pages_for_and_changes_nothing() -> None:
    bench = Bench(pages=4 + 4)
    first = bench.cache.open()
    feed(bench, first, list(range(40)))
    second = bench.cache.fork(first)
    third = bench.cache.fork(first)
    with pytest.raises(RequestError, match="exhausted"):
        bench.cache.reorder({second: first, third: first})
    assert [sees(bench, s) for s in (first, second, third)] == [list(range(40))] * 3


def test_a_shared_page_outlives_its_first_owner() -> None:
    bench = Bench(pages=4 + 3)
    parent = bench.cache.open()
    feed(bench, parent, list(range(33)))
    child = bench.cache.fork(parent)
    shared = bench.cache.pages(parent)[0]
    bench.cache.close(parent)
    bench.stepper.flush()
    other = bench.cache.open()
    bench.cache.grow(other, 32)
    assert bench.cache.pages(other)[0] != shared
    assert sees(bench, child) == list(range(33))


def test_pages_come_back_after_the_step_that_freed_them() -> None:
    bench = Bench(pages=4 + 2)
    sequence = bench.cache.open()
    feed(bench, sequence, list(range(50)))
    bench.cache.close(sequence)
    assert bench.cache.free_pages == 0 and bench.cache.leaving
    bench.stepper.flush()
    assert bench.cache.free_pages == 2 and not bench.cache.leaving
    assert bench.cache.free_slots == 128


def test_promised_pages_are_kept_for_their_sequence() -> None:
    bench = Bench(pages=4 + 3)
    first = bench.cache.open(reserved=2)
    second = bench.cache.open()
    bench.cache.grow(second, 32)
    with pytest.raises(RequestError, match="exhausted"):
        bench.cache.grow(second, 33)
    bench.cache.grow(first, 64)
    assert bench.cache.free_pages == 0


def test_commit_refuses_what_is_no_path() -> None:
    bench = Bench()
    sequence = bench.cache.open()
    rows = build_rows(bench.cache, sequence, [1, 2, 3], [-1, 0, 0])
    bench.stepper.run(rows)
    slots = [row.slot for row in rows]
    for path in ([slots[1]], [slots[0], slots[1], slots[2]], [99]):
        with pytest.raises(RequestError, match="slot"):
            bench.cache.commit(sequence, path)
    bench.cache.commit(sequence, [slots[0], slots[2]])
    assert sees(bench, sequence) == [1, 3]


def test_a_failed_step_keeps_its_header_and_may_run_again() -> None:
    bench = Bench()
    sequence = bench.cache.open()
    feed(bench, sequence, [1, 2])
    rows = build_rows(bench.cache, sequence, [3])

    def fail() -> None:
        raise LinkError("cable out")

    bench.runner.before_step = fail
    with pytest.raises(LinkError):
        bench.stepper.run(rows)
    bench.runner.before_step = lambda: None
    bench.stepper.run(rows)
    assert bench.runner._seen(rows[0]) == [1, 2, 3]


def test_a_step_with_worthless_results_has_been_done_and_its_rows_are_dropped() -> None:
    bench = Bench()
    sequence = bench.cache.open()
    feed(bench, sequence, [1, 2])
    step = bench.runner.step

    def overflow(*arguments: object) -> None:
        step(*arguments)  # type: ignore[arg-type]
        raise ModelError("a unit wrote infinity")

    bench.runner.step = overflow  # type: ignore[assignment,method-assign]
    with pytest.raises(ModelError):
        feed(bench, sequence, [3, 4])
    bench.runner.step = step  # type: ignore[method-assign]
    assert sees(bench, sequence) == [1, 2]
    bench.stepper.flush()
    assert bench.cache.free_slots == 128


def test_an_interrupted_step_forgets_every_sequence() -> None:
    bench = Bench()
    sequence = bench.cache.open()
    feed(bench, sequence, [1, 2])

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.runner.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.stepper.flush()
    bench.runner.before_step = lambda: None
    assert not bench.cache.is_open(sequence) and bench.cache.free_slots == 0
    again = bench.cache.open()
    bench.stepper.flush()
    assert bench.cache.free_slots == 128
    feed(bench, again, [7])
    assert sees(bench, again) == [7]


def test_more_operations_than_a_header_holds_go_ahead_in_empty_steps() -> None:
    bench = Bench()
    cache = KvCache(40, 4, 128, 300, max_ops=3)
    bench.cache = bench.stepper._cache = cache
    parent = cache.open()
    feed(bench, parent, list(range(64)))
    cache.grow(parent, 200)
    feed(bench, parent, [3])
    assert max(len(header) for header in bench.runner.headers) <= 3
    assert [len(rows) for rows in bench.runner.steps if rows] == [64, 1]
    assert sees(bench, parent) == [*range(64), 3]


def test_unknown_sequences_and_too_many_are_refused() -> None:
    bench = Bench(sequences=1)
    with pytest.raises(RequestError, match="sequence 0 is not open"):
        bench.cache.close(0)
    bench.cache.open()
    with pytest.raises(RequestError, match="all 1 sequences"):
        bench.cache.open()


def test_the_context_is_a_limit() -> None:
    bench = Bench(context=40)
    sequence = bench.cache.open()
    with pytest.raises(RequestError, match="1 more than the context of 40"):
        bench.cache.grow(sequence, 41)
    with pytest.raises(RequestError, match="position 40"):
        build_rows(bench.cache, sequence, list(range(41)))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_calls_leaves_each_sequence_its_own_tokens(data: st.DataObject) -> None:
    check_random_calls(data, Bench(pages=1 + 14, scratch=24))


FILLS, FILLS_NONE = (20, 15), (20, 5)  # a commit's first position and positions


@pytest.mark.parametrize(
    ("commits", "tables", "fits"),
    [
        ({0: FILLS}, [(0, 2), (0, 1)], 2),  # the last tile of the commit
        ({0: FILLS}, [(0, 0)], 1),
        ({0: (70, 26)}, [(0, 0)], 1),  # a tile before it, from which the state begins
        ({0: FILLS}, [(1, 0), (0, 3)], 3),  # other sequences, and tiles behind
        ({0: FILLS, 1: FILLS_NONE}, [(0, 2), (1, 0)], 3),  # boards would move both commits
        ({1: FILLS_NONE}, [(1, 0)], 2),
    ],
)
def test_a_header_ends_before_a_table_that_would_lose_a_state(
    commits: dict[int, tuple[int, int]], tables: list[tuple[int, int]], fits: int
) -> None:
    for states in (True, False):
        queue = HeaderQueue(8, states)
        for sequence, (first, count) in commits.items():
            queue.add(KvOp.commit(sequence, first, 0, count), range(count))
        for sequence, tile in tables:
            queue.add(KvOp.table(sequence, tile, 7))
        all_of_them = len(commits) + len(tables)
        assert queue.fits == len(queue.next_header().kv_ops) == (fits if states else all_of_them)
        queue.step_done()
        assert len(queue.next_header().kv_ops) == (all_of_them - fits if states else 0)


def test_what_boards_have_moved_is_not_written_any_more() -> None:
    """A table that changes behind a commit without a state, then one that fills a page."""
    queue = HeaderQueue(8, states=True)
    queue.add(KvOp.commit(1, FILLS_NONE[0], 0, FILLS_NONE[1]), range(5))
    queue.add(KvOp.table(1, 0, 7))
    queue.add(KvOp.commit(0, FILLS[0], 5, FILLS[1]), range(15))
    queue.add(KvOp.table(1, 0, 8))
    assert queue.fits == 4
