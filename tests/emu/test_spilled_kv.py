"""KV pages in DDR: engines whose HBM holds few pages give the bytes of those with room for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lora_host import abi, overlay
from lora_sdk import BeamSearchParams, Engine, Result
from lora_sdk.kv.pages import PagePool
from tests.recovery_rig import (
    Disturbed,
    Folders,
    inject,
    mixed,
    opened,
    speculation,
    texts,
    write_folders,
)

PROMPT = [(7 * i + i * i) % 280 + 3 for i in range(150)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("spilled"))


def small_board(monkeypatch: pytest.MonkeyPatch, hbm: int) -> None:
    """Boards whose HBM banks may hold `hbm` bytes each."""
    whole = overlay.load_overlay

    def load(*arguments: Any) -> Any:
        found = whole(*arguments)
        banks = (replace(b, usable=hbm if b.kind == "hbm" else b.usable) for b in found.board.banks)
        return replace(found, board=replace(found.board, banks=tuple(banks)))

    monkeypatch.setattr(overlay, "load_overlay", load)


@contextmanager
def taken_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For every page that is taken, whether it lies in DDR."""
    take, found = PagePool.take, []

    def noted(pool: PagePool) -> int:
        page = take(pool)
        found.append(page >= pool.spilled)
        return page

    monkeypatch.setattr(PagePool, "take", noted)
    yield found


def all_of(engine: Engine, recover: bool) -> list[Any]:
    """Mixed requests with adapters and samples, twice (prefixes are found again), and beams."""
    found = [texts(engine, mixed(3)), texts(engine, mixed(3))]
    if recover:
        with Disturbed(engine, {9: lambda: inject(engine, 0, abi.FAULT_DONE_LOST)}):
            found.append(texts(engine, mixed(5)))
    else:
        found.append(texts(engine, mixed(5)))
    beams = engine.beam_search(PROMPT, BeamSearchParams(beam_width=3, n=3, max_tokens=12))
    assert isinstance(beams, Result)
    return [*found, [(one.token_ids, one.score) for one in beams.outputs]]


@pytest.mark.parametrize("boards", [1, 2])
def test_texts_are_the_same_with_pages_in_ddr(
    folders: Folders, boards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"speculation": speculation(folders, "lookup"), "context": 256, "threads": 1}
    with opened(folders, boards, **options) as engine:
        assert engine.plan.first_spilled == engine.plan.page_count
        want = all_of(engine, recover=False)
    small_board(monkeypatch, 20_000)
    with (
        taken_pages(monkeypatch) as there,
        opened(folders, boards, **options) as engine,
    ):
        assert 0 < engine.plan.first_spilled < engine.plan.page_count
        assert all_of(engine, recover=True) == want
        assert len(engine.recoveries) == 1
    assert sum(there) > len(there) / 3


@pytest.mark.parametrize("kernels", ["native", "numpy"])
def test_one_sequence_grows_out_of_hbm_with_the_same_logits(
    folders: Folders, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []

    def run() -> tuple[Any, ...]:
        with Engine(
            folders.model, boards=1, context=256, max_sequences=2, kernels=kernels, threads=1
        ) as engine:
            sequence = engine.open_sequence()
            last = engine.prefill(sequence, PROMPT[:100])
            there.append(engine._cache.spilled_positions(sequence) // abi.TILE_POSITIONS)
            held = engine.export_kv(sequence)
            other = engine.import_kv(PROMPT[:64], _first(held, 64))
            again = engine.prefill(other, PROMPT[64:100])
            return last, again, held.k.tobytes(), held.v.tobytes()

    want = run()
    small_board(monkeypatch, 12_000)
    found = run()
    assert there[0] == 0 < there[1] < 4  # of four pages
    for a, b in zip(want, found, strict=True):
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def _first(kv: Any, count: int) -> Any:
    return replace(kv, k=kv.k[:, :, :count].copy(), v=kv.v[:, :, :count].copy())
