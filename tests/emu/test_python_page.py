"""Examples of docs/python.md run as they stand there, and all examples pass mypy --strict as a
program outside the packages would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import lora_sdk
from lora_sdk import Engine
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
README = (ROOT / "README.md").read_text(encoding="utf-8")
GIVEN = "from lora_sdk import Engine\nengine = Engine()\ntokens = [5, 9, 2, 40]\n"
"""What examples that go on from others need."""
OTHERS = {"True", "False", "None", "Path", "Sequence", "Mapping"}


@pytest.mark.parametrize("code", EXAMPLES, ids=lambda code: code.splitlines()[-1][:20])
def test_examples_run(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with Engine() as engine:
        exec(compile(code, "docs/python.md", "exec"), {"engine": engine, "tokens": [5, 9, 2, 40]})


def test_names_of_the_page_are_those_of_the_package() -> None:
    spans = " ".join(re.findall(r"`([^`\n]+)`", PAGE))
    named = set(re.findall(r"(?<![\w.<$|/])[A-Z][a-z]+(?:[A-Z]\w*)?\b", spans)) - OTHERS
    assert {"Engine", "AllowedTokens", "Progress", "LoadingBar", "OnNotice"} <= named
    assert not {name for name in named if not hasattr(lora_sdk, name)}
    assert all(hasattr(lora_sdk, name) for name in lora_sdk.__all__)


def test_all_packages_say_that_they_are_typed() -> None:
    setup = (ROOT / "setup.py").read_text()
    packages = [*(p.parent for p in ROOT.glob("sdk/*/__init__.py")), ROOT / "host" / "lora_host"]
    assert len(packages) == 6
    for package in packages:
        assert (package / "py.typed").is_file() and f'"{package.name}"' in setup


@pytest.mark.slow
def test_examples_pass_a_strict_type_checker(tmp_path: Path) -> None:
    """From a folder of their own, against the packages as they would be installed."""
    pytest.importorskip("mypy")
    venv.create(tmp_path / "env", system_site_packages=True)
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{ROOT / 'sdk'}\n{ROOT / 'host'}\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for example in (ROOT / "examples").glob("*.py"):
        (programs / example.name).write_text(example.read_text())
    texts = [*EXAMPLES, *re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)]
    for number, code in enumerate(texts):
        given = "" if "Engine(" in code else GIVEN
        (programs / f"page{number}.py").write_text(given + code)
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable",
         str(tmp_path / "env" / "bin" / "python"), "--cache-dir", str(tmp_path / "cache"),
         *map(str, sorted(programs.iterdir()))],
        cwd=programs, env=variables, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
