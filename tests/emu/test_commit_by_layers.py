"""Lists with a KV_COMMIT a layer: the bytes are those of lists with one, behind faults too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from lora_host import overlay
from lora_host.overlay import COLUMN
from lora_sdk import BeamSearchParams, Engine, Result
from tests.recovery_rig import (
    FAULTS,
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
    return write_folders(tmp_path_factory.mktemp("by_layers"))


def all_of(engine: Engine, disturbed: bool) -> list[Any]:
    """Mixed requests with adapters, twice, the second time with faults; beams, which copy pages."""
    found = [texts(engine, mixed(3))]
    faults = {
        4: lambda: inject(engine, 0, *FAULTS["done lost"]),
        9: lambda: inject(engine, 0, *FAULTS["DMA stuck"]),
    }
    with Disturbed(engine, faults if disturbed else {}):
        found.append(texts(engine, mixed(5)))
    beams = engine.beam_search(PROMPT, BeamSearchParams(beam_width=3, n=3, max_tokens=12))
    assert isinstance(beams, Result)
    return [*found, [(one.token_ids, one.score) for one in beams.outputs]]


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Overlays whose column tiles lie whole in a bank each."""
    whole = overlay.load_overlay
    monkeypatch.setattr(
        overlay, "load_overlay", lambda *names: replace(whole(*names), merge=COLUMN)
    )
    yield


@pytest.fixture(scope="module")
def wanted(folders: Folders) -> dict[str, list[Any]]:
    """By whether trees are verified; of one board."""
    found = {}
    for method in ("lookup", ""):
        with opened(folders, 1, **options(folders, method)) as engine:
            found[method] = all_of(engine, False)
    return found


def options(folders: Folders, method: str) -> dict[str, Any]:
    chosen = {"speculation": speculation(folders, method)} if method else {}
    return {**chosen, "context": 256, "threads": 1}


@pytest.mark.parametrize("boards", [1, 2])
@pytest.mark.parametrize("method", ["lookup", ""])
def test_texts_are_those_of_one_commit(
    folders: Folders, wanted: dict[str, list[Any]], columns: None, method: str, boards: int
) -> None:
    with opened(folders, boards, **options(folders, method)) as engine:
        plan = engine.plan
        assert plan.overlay.channels and plan.config.layers > 1
        assert all_of(engine, True) == wanted[method]
