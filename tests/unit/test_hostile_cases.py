"""Hostile input made by hand, through the commands: one line on stderr and an exit code. Every
fourth runs always, all of them among the slow tests."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path

import pytest

from lora_host.errors import MAX_MESSAGE
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run
from tests.hostile_cases import commands, files, folders, gguf_models, templates
from tests.hostile_cases.case import Case, Place, Stock
from tests.mutations import time_limit

CASES = (*files.CASES, *folders.CASES, *commands.CASES, *templates.CASES, *gguf_models.CASES)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(tmp_path_factory.mktemp("stock"))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (number % 4 > 0))
        for number, case in enumerate(CASES)
    ],
)
def test_it_is_refused_in_one_line(
    case: Case, stock: Stock, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = [str(word) for word in case.make(Place(tmp_path, stock))]
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the command sets it
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.stdin)))
    capfd.readouterr()
    with time_limit(60):  # for a busy machine
        if words[0] == "lora-run":
            code = run_command(lora_run, "lora-run", words[1:])
        else:
            code = run_command(lora, "lora", words)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert len(lines) == 1 and len(err) < MAX_MESSAGE + 60, err
    assert ": error: " in err and case.says in err, err
    assert (code, out) == (case.code, ""), err


def test_each_kind_is_there_once() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names) >= 172
