"""Options that are numbers: finite, in a range, and refused in one line with exit code 2."""

from __future__ import annotations

import pytest

from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command

OPTIONS = (
    ("list", "--watch", "--count", "1", "--interval"),
    ("top", "--once", "--interval"),
    ("lab", "torture", "--soak"),
    ("lab", "torture", "--kinds", "--fault-every"),
)


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "-inf", "1e400"])
def test_a_number_that_is_not_finite_is_refused(
    words: tuple[str, ...], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(lora, "lora", [*words, value]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    assert f"'{words[-1]}': {value} is no finite number;" in err and "expected" in err


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("value", ["-1", "1e300", "one"])
def test_a_number_outside_its_range_is_refused(
    words: tuple[str, ...], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(lora, "lora", [*words, value]) == 2
    assert f"'{words[-1]}': " in capsys.readouterr().err


def test_a_number_in_its_range_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lora, "lora", ["lab", "torture", "--kinds", "--fault-every", "0"]) == 0
    assert capsys.readouterr().out
