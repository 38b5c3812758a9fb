"""Pages that the boards evict and the host keeps, on scripted boards: fewer rows, equal tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host.errors import LinkError, TransportError
from lora_sdk.kv.host_pages import HostPages
from lora_sdk.kv.host_slots import FileSlots, MemorySlots, Slots
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.kv.kv_offload import KvOffload
from lora_sdk.kv.kv_statistics import HostUse
from lora_sdk.kv.page_form import PageForm
from tests.scripted import UNWRITTEN, ScriptedRunner, greedy_tokens
from tests.searches import alone, found, search
from tests.sharing import Sharing, text
from tests.unit.test_preemption import FIELDS, check

FORM = PageForm("fp16", 1, 1, 1)


class Mover:
    """Tokens of a scripted runner's pages as K and V. `failing`: of the calls."""

    def __init__(self, runner: ScriptedRunner) -> None:
        self.runner = runner
        self.failing: set[str] = set()

    def read_checked(self, pages: Sequence[int], positions: int) -> KvArrays:
        if "read" in self.failing:
            raise TransportError("damaged on its way")
        tokens = self.runner.pages[list(pages)].reshape(-1)[:positions]
        assert UNWRITTEN not in tokens
        array = tokens.astype(np.float16).reshape(1, 1, -1, 1)
        return KvArrays("fp16", array, array.copy())

    def place(self, pages: Sequence[int], kv: KvArrays) -> None:
        if "place" in self.failing:
            self.runner.pages[list(pages)] = 0
            raise TransportError("damaged on its way")
        tokens = kv.k.reshape(-1).astype(np.int64)
        assert (tokens == kv.v.reshape(-1)).all()
        for index, page in enumerate(pages):
            part = tokens[index * 32 : (index + 1) * 32]
            self.runner.pages[page] = UNWRITTEN
            self.runner.pages[page, : len(part)] = part


class Offloading(Sharing):
    """A bench whose host keeps `count` pages."""

    def __init__(self, count: int = 100, slots: Slots | None = None, **sizes: int) -> None:
        super().__init__(**sizes)
        self.mover = Mover(self.runner)
        self.host = HostPages(slots or MemorySlots(count), FORM)
        self.cache.use_host(KvOffload(self.host, self.mover))

    @property
    def use(self) -> HostUse:
        use = self.cache.use(self.source.counts, 0).host
        assert use is not None
        return use

    def fill(self, seed: int = 9) -> None:
        """Another request that takes all pages."""
        pages = self.cache.total_pages
        tokens = text(32 * pages - 1, seed)
        assert list(self.run(tokens, max_tokens=1).result().token_ids) == greedy_tokens(tokens, 1)


def test_what_was_evicted_is_written_back_and_not_computed() -> None:
    bench = Offloading(pages=4 + 5)
    first = bench.run(text(100))
    bench.fill()
    assert bench.use.kept >= 4 and bench.use.found == 0
    before = bench.rows
    again = bench.run([*text(100), *first.result().token_ids[:2]])
    assert again.result().cached_tokens == 101 and bench.rows - before == 1 + 4
    assert bench.use.found == 4  # three full pages, and the last one with all of its positions
    assert list(again.result().token_ids) == greedy_tokens(again.tokens, 5)
    bench.check_settled()


def test_pages_of_the_boards_and_of_the_host_make_one_prefix() -> None:
    """The boards evict the last pages first; the first ones are shared where they are."""
    bench = Offloading(pages=4 + 8, sequences=3)
    bench.run(text(160), max_tokens=1)
    bench.run(text(100, 4), max_tokens=1)
    assert 0 < bench.use.kept < 5
    again = bench.run([*text(160), 1, 2, 3], max_tokens=2)
    assert again.result().cached_tokens == 159 + (again.tokens[159] == text(160)[159])
    assert 0 < bench.use.found < 5
    assert list(again.result().token_ids) == greedy_tokens(again.tokens, 2)
    bench.check_settled()


def test_a_preempted_sequence_computes_nothing_again() -> None:
    rows = {}
    for count in (0, 100):
        bench = Offloading(count, pages=4 + 6, sequences=3) if count else Sharing(
            pages=4 + 6, sequences=3)  # fmt: skip
        requests = [bench.submit(text(60, i + 1), max_tokens=90) for i in range(2)]
        bench.finish()
        assert bench.generator.preempted >= 1
        for request in requests:
            check(request)
        rows[count] = bench.rows
        bench.check_settled()
    assert rows[100] == 2 * (60 + 89) < rows[0]


def test_a_search_goes_on_from_the_hosts_pages() -> None:
    bench = Offloading(pages=4 + 11, sequences=5)
    old = bench.submit(text(100, 3), max_tokens=200)
    request = search(bench, text(70), **{**FIELDS, "max_tokens": 35})
    bench.finish()
    assert bench.generator.preempted == 3 and bench.use.found >= 2
    assert found(request) == alone(text(70), **{**FIELDS, "max_tokens": 35})
    check(old)
    bench.check_settled()


def test_the_host_holds_no_more_than_it_may_and_the_oldest_go() -> None:
    bench = Offloading(3, pages=4 + 4)
    for seed in range(1, 6):
        bench.run(text(100, seed), max_tokens=1)
        assert bench.use.held <= 3
    assert bench.use.kept > 6 and bench.use.bytes == 3 * FORM.page_bytes
    assert bench.run(text(100, 1), max_tokens=1).result().cached_tokens == 0
    bench.check_settled()


class Damaged(MemorySlots):
    """One bit of every page changes, or the store fails."""

    fails = False

    def get(self, slot: int) -> bytes:
        if self.fails:
            raise OSError("gone")
        data = bytearray(super().get(slot))
        data[5] ^= 1
        return bytes(data)


@pytest.mark.parametrize("fails", [False, True])
def test_a_damaged_copy_is_never_used(fails: bool) -> None:
    slots = Damaged(50)
    slots.fails = fails
    bench = Offloading(slots=slots, pages=4 + 5)
    bench.run(text(100))
    bench.fill()
    again = bench.run(text(100))
    assert again.result().cached_tokens == 0 and bench.use.damaged >= 1
    assert list(again.result().token_ids) == greedy_tokens(text(100), 5)
    bench.check_settled()


@pytest.mark.parametrize("call", ["read", "place"])
def test_failures_on_the_way_cost_a_computation(call: str) -> None:
    bench = Offloading(pages=4 + 5)
    bench.run(text(100))
    bench.mover.failing = {call}
    bench.fill()
    again = bench.run(text(100))
    assert again.result().cached_tokens == 0
    assert list(again.result().token_ids) == greedy_tokens(text(100), 5)
    bench.check_settled()
    bench.mover.failing = set()
    bench.fill()
    assert bench.run(text(100)).result().cached_tokens == 99


def test_copies_survive_what_empties_the_boards_cache_but_not_the_doubtful_ones() -> None:
    bench = Offloading(pages=4 + 5)
    bench.run(text(100))
    bench.fill()

    def interrupt() -> None:
        raise KeyboardInterrupt

    bench.stepper.flush()
    kept = bench.use.kept
    bench.submit(text(150, 5))
    bench.generator.advance(True)  # evicts pages; no step shows that these were right
    assert bench.use.kept > kept
    bench.runner.before_step = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.generator.advance(True)
    bench.runner.before_step = lambda: None
    assert kept <= bench.use.held < bench.use.kept
    again = bench.run(text(100))
    assert again.result().cached_tokens >= 96
    assert list(again.result().token_ids) == greedy_tokens(text(100), 5)
    bench.check_settled()


def test_a_failed_step_keeps_the_books() -> None:
    bench = Offloading(pages=4 + 5)
    bench.run(text(100))
    bench.fill()

    def fail() -> None:
        raise LinkError("cable out")

    bench.submit([*text(100), 9])  # its pages come from the host
    bench.runner.before_step = fail
    with pytest.raises(LinkError):
        while bench.generator.advance(True):  # once more, then it ends
            pass
    bench.runner.before_step = lambda: None
    again = bench.run([*text(100), 8])
    assert again.result().cached_tokens >= 96
    assert list(again.result().token_ids) == greedy_tokens([*text(100), 8], 5)
    bench.check_settled()


def test_a_file_keeps_the_same_bytes_and_leaves_nothing(tmp_path: Path) -> None:
    slots = FileSlots(8, tmp_path, FORM.page_bytes)
    bench = Offloading(slots=slots, pages=4 + 5)
    bench.run(text(100))
    bench.fill()
    assert bench.run(text(100)).result().cached_tokens == 99 and not list(tmp_path.iterdir())
    slots.close()


@pytest.mark.parametrize("kind", ["fp16", "int8", "int8-heads"])
def test_a_page_as_bytes_and_back(kind: str) -> None:
    draw = np.random.default_rng(3)
    form = PageForm(kind, 2, 3, 8)  # type: ignore[arg-type]
    values = np.float16 if kind == "fp16" else np.int8
    scales = draw.standard_normal((2, 2, 3, 32)).astype(np.float16)
    k, v = draw.integers(-99, 99, (2, 2, 3, 32, 8)).astype(values)
    kv = KvArrays(form.kind, k, v, *(scales if kind == "int8-heads" else ()))
    data = form.to_bytes(kv)
    assert len(data) == form.page_bytes
    back = form.from_bytes(data, 32)
    assert form.to_bytes(back) == data and (back.k == k).all() and (back.v == v).all()


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_mix_of_prompts_gives_the_tokens_of_each_alone(data: st.DataObject) -> None:
    window = data.draw(st.sampled_from([0, 0, 40]))
    bench = Offloading(
        data.draw(st.integers(1, 30)),
        row_limit=data.draw(st.sampled_from([4, 64])),
        pages=4 + data.draw(st.integers(5, 14)),
        window=window,
    )
    stems = [text(count, seed) for seed, count in ((1, 40), (2, 64), (3, 90))]
    requests = []
    for _ in range(data.draw(st.integers(2, 10))):
        stem = data.draw(st.sampled_from(stems))
        prompt = [*stem[: data.draw(st.integers(1, len(stem)))], *data.draw(
            st.lists(st.integers(0, 3), max_size=40))]  # fmt: skip
        requests.append(bench.submit(prompt, max_tokens=data.draw(st.integers(1, 20))))
        bench.mover.failing = data.draw(st.sampled_from([set(), set(), {"read"}, {"place"}]))
        if data.draw(st.booleans()):
            bench.finish()
    bench.finish()
    for request in requests:
        tokens = list(request.result().token_ids)
        assert tokens == greedy_tokens(request.tokens, len(tokens), window)
    bench.check_settled()
