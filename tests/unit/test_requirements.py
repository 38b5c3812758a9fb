"""The versions pinned for development are those that pyproject.toml allows, each with hashes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "requirements" / "development.txt"
AGENTS = ROOT / "requirements" / "agents.txt"
# By docs/security.md.
LEFT_OUT = {
    "docs",
    "parity",
    "prefill",
    "clients",
    "agents",
    "ray",
    "vllm",
    "rtl",
    "fuzz",
    "hosts",
    "boards",
}


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def pins() -> dict[str, list[str]]:
    """The versions of each package, whose every entry has hashes."""
    found: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?=\S)", PINNED.read_text().split("\n#    make requirements\n")[1]):
        name, version = re.match(r"([\w.-]+)==([\w.+]+)", entry).groups()  # type: ignore[union-attr]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
        found.setdefault(canonicalize_name(name), []).append(version)
    return found


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    facts, found = project(), pins()
    extras = facts["optional-dependencies"]
    assert set(extras) > LEFT_OUT
    chosen = [extras[name] for name in extras if name not in LEFT_OUT]
    for text in [*facts["dependencies"], *(text for extra in chosen for text in extra)]:
        wanted = Requirement(text)
        versions = found[canonicalize_name(wanted.name)]
        assert all(wanted.specifier.contains(version) for version in versions), (text, versions)


def test_the_agents_are_pinned_within_their_bounds() -> None:
    found = dict(re.findall(r"^([\w.-]+)==([\w.]+)", AGENTS.read_text(), re.MULTILINE))
    facts = project()
    extras = facts["optional-dependencies"]
    for text in (*facts["dependencies"], *extras["test"], *extras["agents"]):
        wanted = Requirement(text)
        assert wanted.specifier.contains(found[canonicalize_name(wanted.name)]), text


def test_the_command_pins_the_same_extras() -> None:
    (line,) = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.split()) == set(project()["optional-dependencies"]) - LEFT_OUT
