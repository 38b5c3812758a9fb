"""Lints overlays/rtl: slang, `verilator -Wall`, heads of files.

`python -m tools.rtl_lint [--sources FOLDER]` prints what is wrong, a line each: file, line, kind
and message. All warnings are errors but those of overlays/rtl/lint.yaml, each with its reason; one
there that nothing warns of any more is an error too.
Verilator is asked for every module that no other
one instantiates. Exit: 0 all right, 1 something found, 2 wrong use or a missing tool. Needs the
extra `rtl` (pyslang) and Verilator.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools.rtl_cells import RTL, sources
from tools.rtl_hierarchy import instances

HEAD = "// SPDX-License-Identifier: Apache-2.0\n"
UNUSED = {"UNUSEDSIGNAL", "unused-port", "unused-but-set-variable"}
OF_ALL_TOPS = ("unused-package", "unused-def")
OF_PACKAGES = {"unused-package-parameter", "unused-package-typedef"}
_WARNING = re.compile(r"%(?:Warning|Error)-?(\w*): (?:(\S+?):(\d+):\d+: )?(.*)")


@dataclass(frozen=True, order=True)
class Finding:
    """What a tool says. `kind`: its name of the warning; `name`: the signal, where it says one."""

    file: str
    line: int
    kind: str
    message: str

    @property
    def name(self) -> str:
        quoted = re.search(r"'([\w.$]+)'", self.message)
        return quoted[1] if quoted else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.message}"


def heads(folder: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Files that do not say their licence."""
    for path in files:
        if not path.read_text().startswith(HEAD):
            yield Finding(
                str(path.relative_to(folder)), 1, "head", f"expected {HEAD.strip()!r}: put it there"
            )


def slang(
    folder: Path, files: list[Path], without: Iterable[str], parameters: dict[str, list[str]]
) -> set[Finding]:
    """What slang says of the whole source, and of the tops in `parameters` once more. Kinds
    `without` are not asked for. A module, or what a package has, is unused where no run uses it."""
    runs = [set(_slang(folder, files, without, ()))]
    for top in parameters.keys() & instances(files).keys():
        chosen = (f"--top {top}", *(f"-G{one}" for one in parameters[top]))
        runs.append(set(_slang(folder, files, without, chosen)))
    found = set().union(*runs)
    return {
        one
        for one in found
        if not one.kind.startswith(OF_ALL_TOPS) or all(one in run for run in runs)
    }


def _slang(
    folder: Path, files: Iterable[Path], without: Iterable[str], more: Iterable[str]
) -> Iterator[Finding]:
    from pyslang.driver import Driver

    driver = Driver()
    driver.addStandardArgs()
    options = ["slang", "-Weverything", *(f"-Wno-{kind}" for kind in without), *more]
    words = [*options, *(f'"{path}"' for path in files)]
    if not (driver.parseCommandLine(" ".join(words)) and driver.processOptions()):
        raise ValueError("slang: options refused: expected those of pyslang 12")
    driver.diagEngine.clearClients()
    driver.parseAllSources()
    compilation = driver.createCompilation()
    compilation.getAllDiagnostics()
    analysis = driver.runAnalysis(compilation)
    engine, manager = driver.diagEngine, driver.sourceManager
    for told in [*compilation.getAllDiagnostics(), *analysis.getDiagnostics()]:
        if engine.getSeverity(told.code, told.location).name in ("Ignored", "Note"):
            continue
        path = Path(manager.getFileName(told.location)).resolve()
        yield Finding(
            os.path.relpath(path, folder.resolve()),
            manager.getLineNumber(told.location),
            engine.getOptionName(told.code) or "error",
            engine.formatMessage(told),
        )


def verilator(
    folder: Path, files: list[Path], parameters: dict[str, list[str]]
) -> Iterator[Finding]:
    """What Verilator says of each top module, of those in `parameters` with these once more."""
    below = instances(files)
    tops = sorted(set(below).difference(*below.values()))
    runs = [(top, list[str]()) for top in tops]
    runs += [(top, [f"-G{one}" for one in parameters[top]]) for top in tops if top in parameters]
    for top, given in runs:
        with tempfile.TemporaryDirectory() as made:
            done = subprocess.run(
                ["verilator", "--lint-only", "-Wall", "-Wno-fatal", "--Mdir", made,
                 *given, "--top-module", top, *ordered(files)],
                capture_output=True, text=True,
            )  # fmt: skip
        for kind, file, line, message in _WARNING.findall(done.stderr):
            if file:
                place = os.path.relpath(Path(file).resolve(), folder.resolve())
                if kind == "UNUSEDPARAM" and Path(file).stem not in below:
                    continue  # of a package, by one top alone: slang looks at all of them
                yield Finding(place, int(line), kind or "ERROR", message)
            elif done.returncode:
                yield Finding(top, 0, kind or "ERROR", message)


def ordered(files: Iterable[Path]) -> list[Path]:
    """Packages before those that use them, as Verilator wants them."""
    texts = {path: re.sub(r"//[^\n]*", "", path.read_text()) for path in files}
    homes = {
        name: path
        for path, text in texts.items()
        for name in re.findall(r"^package (\w+)", text, re.MULTILINE)
    }
    done: list[Path] = []

    def visit(path: Path) -> None:
        if path not in done:
            for name in re.findall(r"\b(\w+)::", texts[path]):
                if name in homes and homes[name] != path:
                    visit(homes[name])
            done.append(path)

    for path in [*homes.values(), *texts]:
        visit(path)
    return done


def listed(allowed: Any) -> dict[tuple[str, str], str]:
    """(file, signal) -> reason of those that may stay."""
    return {
        (file, name): reason
        for reason, files in allowed["signals"].items()
        for file, names in files.items()
        for name in names
    }


def wrong(folder: Path) -> list[Finding]:
    """All that is neither right nor listed."""
    allowed = yaml.safe_load((folder / "lint.yaml").read_text())
    files = sources(folder)
    signals, again = listed(allowed), allowed["parameters"]
    seen: set[tuple[str, str]] = set()
    found: set[Finding] = set(heads(folder, files))
    every = [*slang(folder, files, allowed["without"], again), *verilator(folder, files, again)]
    for one in every:
        if one.kind in UNUSED and (one.file, one.name) in signals:
            seen.add((one.file, one.name))
        elif not (one.kind in OF_PACKAGES and one.file in allowed["packages"]):
            found.add(one)
    for file, name in set(signals) - seen:
        found.add(Finding("lint.yaml", 0, "listed", f"{file}: {name} is not warned of: remove it"))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.rtl_lint", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--sources", type=Path, default=RTL, help="folder like overlays/rtl")
    given = parser.parse_args()
    try:
        import pyslang.driver  # noqa: F401
    except ImportError:
        parser.error("pyslang is not installed: pip install '.[rtl]'")
    if shutil.which("verilator") is None:
        parser.error("verilator is not installed (Debian: apt-get install verilator)")
    found = wrong(given.sources)
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
