"""Steps of exp's polynomial, which know their operands' bounds, give the bits of a product and a
sum in FP32 (docs/numbers.md, 4.1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rtl.bench_rig import build, counted, run
from tests.rtl_rig import first_then_long, mistaken

pytestmark = pytest.mark.rtl

PAIRS = 300_000


@pytest.mark.parametrize("pairs", [PAIRS, pytest.param(30_000_000, marks=pytest.mark.long)])
def test_steps_are_a_product_and_a_sum(pairs: int) -> None:
    found = counted(run(build("exponential"), pairs))
    assert found["pairs"] == pairs and found["tiny"] > pairs // 100


MISTAKES = [
    ("horner_step", "{shifted & {26{!gone_5}}, lost != 24'd0}", "{shifted & {26{!gone_5}}, 1'b0}"),
    ("horner_step", "sum_8[2] && (sum_8[3] || sum_8[1:0] != 2'd0)", "sum_8[2]"),
    ("horner_step", "gone_4 || apart_4[8:5] != 4'd0", "gone_4"),
    ("normal_multiply", "product_2[21:0] != 22'd0}", "1'b0}"),
]


@pytest.mark.parametrize("mistake", first_then_long(MISTAKES))
def test_a_mistake_is_noticed(mistake: tuple[str, str, str], tmp_path: Path) -> None:
    module, right, wrong = mistake
    sources = mistaken(tmp_path, f"fp/{module}.sv", right, wrong)
    done = run(build("exponential", sources=sources, folder=tmp_path / "build"), PAIRS)
    assert done.returncode == 1 and done.stderr
