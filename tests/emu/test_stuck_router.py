"""A stuck Router is blamed on its own board: every board, in the middle of every kind of gather, on
rings and paths. The other boards' Routers wait for its frames as long as it does itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tests.drive
from lora_host import abi
from lora_host.errors import HangError
from lora_sdk.plan.topology import route
from lora_sdk.step.runner import KvOp, Row, Runner
from tests.drive import open_runner
from tests.variants import variant, write_checkpoint

NARROW = variant("llama_narrow")
# Gathers of more frames than a FIFO holds: Routers also wait for room.
WIDE = replace(NARROW, config={**NARROW.config, "intermediate_size": 6000, "num_hidden_layers": 1})
FIRST_PAGE = abi.MAX_SCRATCH // abi.TILE_POSITIONS
STUCK = abi.FAULT_UNIT_STUCK | abi.FAULT_UNTIL_RESET


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("stuck")
    return {
        "narrow": write_checkpoint(NARROW, root / "narrow"),
        "wide": write_checkpoint(WIDE, root / "wide"),
    }


def fail(runner: Runner, rows: int) -> HangError:
    """What a step of this many rows ends with; then the boards are as new."""
    ops = [KvOp.length(0, 0), *(KvOp.table(0, tile, FIRST_PAGE + tile) for tile in range(2))]
    with pytest.raises(HangError) as ended:
        runner.step([Row(0, i, 17, i, parent=i - 1) for i in range(rows)], ops)
    runner.cluster.reset()
    runner.restore(Counter())
    return ended.value


def misjudged(runner: Runner, rows: tuple[int, ...], moved: tuple[int, ...]) -> Iterator[str]:
    """Each board's Router stops after so many frames: what names another board."""
    emulated = runner.cluster.emulated
    assert emulated is not None
    for board in range(runner.cluster.size):
        for frames in moved:
            for count in rows:
                emulated.fault(board, STUCK, abi.UNIT_ROUTER, frames)
                error = fail(runner, count)
                assert error.failure is not None and error.failure.unit == abi.UNIT_ROUTER
                if error.failure.board != board:
                    yield f"board {board} after {frames} frames, {count} rows: {error}"


@pytest.mark.parametrize("boards", [2, 4])
def test_the_board_of_a_stuck_router_is_named(folders: dict[str, Path], boards: int) -> None:
    with open_runner(folders["narrow"], boards) as runner:
        assert not [*misjudged(runner, (17,), (0, 3, 23))]


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["ring", "path"])
@pytest.mark.parametrize("boards", [2, 4, 8])
def test_also_where_fifos_are_full(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, boards: int, shape: str
) -> None:
    if shape == "path" and boards > 2:
        monkeypatch.setattr(tests.drive, "route", lambda cables, n: route(cables[:-1], n))
    with open_runner(folders["wide"], boards) as runner:
        assert runner.plan.route.ring == (shape == "ring" and boards > 2)
        assert not [*misjudged(runner, (64,), (0, 20, 61, 150))]
