"""The list of slow cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import slow_cases

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
