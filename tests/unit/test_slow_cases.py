"""The list of slow cases, and which of them CI runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import slow_cases, thinning

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.emu.test_a" name="test_b[x-1]" time="0.700" />
<testcase classname="tests.emu.test_a" name="test_b[x-2]" time="0.100" />
<testcase classname="tests.emu.test_a" name="test_c" time="9.000"><failure /></testcase>
</testsuite></testsuites>"""


def test_every_case_is_one_of_a_test() -> None:
    cases = slow_cases.listed()
    assert len(cases) > 100
    for case in cases:
        path, name = case.split("[")[0].split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), case


def test_times_change_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    (tmp_path / "list").write_text(
        "tests/emu/test_a.py::test_b[x-2]\ntests/emu/test_a.py::test_c\ntests/emu/test_d.py::test\n"
    )
    monkeypatch.setattr(slow_cases, "_LIST", tmp_path / "list")
    slow_cases.main([str(tmp_path / "report.xml")])
    assert slow_cases.listed() == {
        "tests/emu/test_a.py::test_b[x-1]",
        "tests/emu/test_a.py::test_c",
        "tests/emu/test_d.py::test",
    }


@dataclass(frozen=True)
class Item:
    """What is read of a pytest.Item."""

    nodeid: str
    keywords: frozenset[str] = frozenset({"slow"})


def test_a_third_of_many_cases_is_kept_of_each_parameter() -> None:
    pairs = [(boards, case) for boards in (1, 2, 4) for case in range(100)]
    many = {pair: Item(f"tests/a.py::test_many[{pair[0]}-{pair[1]}]") for pair in pairs}
    few = [Item(f"tests/a.py::test_few[{case}]") for case in range(thinning.MANY)]
    fast = [Item(f"tests/a.py::test_fast[{case}]", frozenset()) for case in range(30)]
    items = [*many.values(), *few, *fast]
    kept = thinning.thinned(items, 3)
    assert kept >= {*few, *fast}
    for boards in (1, 2, 4):
        assert 20 < sum(many[boards, case] in kept for case in range(100)) < 50
    assert thinning.thinned(items, 1) == set(items)
    assert len(thinning.thinned([*many.values()], 10**9)) == 1
