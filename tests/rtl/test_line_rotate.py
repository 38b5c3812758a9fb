"""Lines of all banks to all groups of an array, in order for any number of blocks a tile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import mistaken

pytestmark = [pytest.mark.rtl, pytest.mark.slow]

ROUNDS = 20


def test_each_group_gets_its_blocks() -> None:
    found = counted(run(build("rotate"), ROUNDS))
    # all but those that are still on their way at the end
    assert found["lines"] >= ROUNDS * 32 * sum(range(1, 98)) - 100


@pytest.mark.long
@pytest.mark.parametrize(
    "mistake",
    [("(g+2*4**s)%LINES", "(g+4**s)%LINES"), ("turns[s] >> 2", "turns[s] >> 1")],
)
def test_a_mistake_is_noticed(mistake: tuple[str, str], tmp_path: Path) -> None:
    sources = mistaken(tmp_path, "mpu/line_rotate.sv", *mistake)
    assert run(build("rotate", sources=sources, folder=tmp_path / "build"), 1).returncode != 0
