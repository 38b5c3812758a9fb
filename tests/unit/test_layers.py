"""Arrows between packages point down: what each imports at run time is what sdk/layers.yaml
allows, and the allowed arrows have no cycle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ALLOWED: dict[str, list[str]] = yaml.safe_load((ROOT / "sdk" / "layers.yaml").read_text())
SDK = ROOT / "sdk" / "lora_sdk"
LOOSE = {"__init__.py"}  # the package's own front door


def runtime_imports(tree: ast.AST) -> Iterator[str]:
    """Modules that the code imports when it runs, inside functions too; not under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"line {node.lineno}: an import of a package above"
            if node.level == 0:
                yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        yield from runtime_imports(node)


def upward(package: str, source: str) -> list[str]:
    """Imports of a module of `package` that its row does not allow."""
    allowed = {package, *ALLOWED[package]}
    found = []
    for name in runtime_imports(ast.parse(source)):
        parts = name.split(".")
        if parts[0] == "lora_sdk" and parts[1] in ALLOWED and parts[1] not in allowed:
            found.append(name)
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below(package: str) -> None:
    files = sorted((SDK / package).rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(SDK)): found
        for path in files
        if (found := upward(package, path.read_text(encoding="utf-8")))
    }
    assert not wrong


def test_an_upward_import_is_found() -> None:
    assert upward("plan", "from lora_sdk.model.spec import ModelConfig") == []
    planted = "def late():\n    from lora_sdk.engine.engine import Engine"
    assert upward("plan", planted) == ["lora_sdk.engine.engine.Engine"]


def test_the_allowed_arrows_have_no_cycle() -> None:
    assert list(TopologicalSorter(ALLOWED).static_order())


def test_every_module_lies_in_a_package_that_is_listed() -> None:
    packages = {path.parent.name for path in SDK.glob("*/__init__.py")}
    assert packages == set(ALLOWED)
    assert {path.name for path in SDK.glob("*.py")} == LOOSE


def test_the_host_side_does_not_import_the_sdk() -> None:
    for path in sorted((ROOT / "host" / "lora_host").rglob("*.py")):
        assert "lora_sdk" not in path.read_text(encoding="utf-8"), path
